#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace jitune::prewarm {

/// Reads `30s`, `500ms`, `2m`, `1.5h`: a number and its unit. The failure shows how to write one.
Result<std::chrono::milliseconds> parse_duration(std::string_view text);

/// `640 ms`, `12.3 s`, `4 min 10 s`, `2 h 5 min`.
std::string duration_text(double ms);

/// `12.31 us`, `4.20 ms`; `-` for 0, which means not known.
std::string time_text(double us);

/// `1.23x`: how many times as fast as the default; `-` where one is not known.
std::string ratio_text(double default_us, double us);

/// `139.7 GiB`, `40.0 KiB`, `512 bytes`.
std::string bytes_text(int64_t bytes);

/// `1 config`, `72 configs`.
std::string count_text(uint64_t count, const std::string& singular, const std::string& plural = {});

/// `a`, `a and b`, `a, b and c`.
std::string join_words(const std::vector<std::string>& words);

std::string_view trim(std::string_view text);

}  // namespace jitune::prewarm
