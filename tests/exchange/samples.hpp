#pragma once

#include <string>
#include <vector>

#include "store/record.hpp"

namespace jitune::test {

/// A winner of a kernel for `rows` rows, on a made-up H200.
store::WinnerRecord sample(int rows, const std::string& config, double median_us);

/// Gives it a cubin of these bytes.
void add_cubin(store::WinnerRecord& record, const std::string& build, const std::string& bytes);

/// A line for each record with all that must survive a journey.
std::string told(const std::vector<store::WinnerRecord>& records);

}  // namespace jitune::test
