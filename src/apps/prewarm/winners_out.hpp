#pragma once

#include <string>
#include <vector>

#include "apps/prewarm/today.hpp"
#include "store/record.hpp"

namespace jitune::prewarm {

/// Writes winners where and how a person asked: `format` is database, json, csv or defaults, "" as the path's name
/// says. Returns what was done, one line. Throws Stop.
/// json: a path that ends in .json becomes one document, any other a directory of one for each NVRTC, kernel, problem
/// and device.
std::string write_winners(const std::vector<store::WinnerRecord>& records, const std::string& path, std::string format);

/// The winners as default rules of their kernel, TOML to put before the rules that are there. Throws Stop where a
/// winner can't be said so, for instance since `today` lacks the kernel.
std::string defaults_toml(const std::vector<store::WinnerRecord>& records, const Today& today);

}  // namespace jitune::prewarm
