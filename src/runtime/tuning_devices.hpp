#pragma once

#include <string>
#include <vector>

#include "space/device.hpp"

namespace jitune::runtime {

/// The GPUs that a list of UUIDs, or the word `all`, means beside `own`.
struct TuningDevices {
  std::vector<space::DeviceInfo> devices;  ///< of own's class, each once, own left out
  std::vector<std::string> wrong;          ///< for each name that this process sees no GPU of, or one of another class
};
TuningDevices find_tuning_devices(const std::vector<std::string>& names, const space::DeviceInfo& own);

/// Whether Options::tuning_devices may hold this: a UUID, `all` or `own`.
bool is_tuning_device(const std::string& name);

}  // namespace jitune::runtime
