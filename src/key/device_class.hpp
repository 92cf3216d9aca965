#pragma once

#include <string>
#include <vector>

#include "space/device.hpp"

namespace jitune::key {

/// Where two devices are not of one class, by the fields of a key: `sm_count: 132 / 78`. Empty: answers of one serve
/// the other.
std::vector<std::string> class_differences(const space::DeviceInfo& a, const space::DeviceInfo& b);

}  // namespace jitune::key
