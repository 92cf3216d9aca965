#include "apps/prewarm/text.hpp"

#include <charconv>
#include <cmath>
#include <cstdio>

namespace jitune::prewarm {
namespace {

std::string format(const char* pattern, double value) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, pattern, value);  // NOLINT(clang-diagnostic-format-nonliteral)
  return buffer;
}

struct Unit {
  std::string_view name;
  double ms;
};
constexpr Unit kUnits[] = {{"ms", 1}, {"s", 1e3}, {"m", 60e3}, {"min", 60e3}, {"h", 3600e3}};

}  // namespace

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

Result<std::chrono::milliseconds> parse_duration(std::string_view text) {
  const std::string_view whole = trim(text);
  const Failure failure{"'" + std::string(text) +
                        "' is not a duration; write a number and its unit: 500ms, 30s, 2m or 1h"};
  double number = 0;
  const auto [end, error] =
      std::from_chars(whole.data(), whole.data() + whole.size(), number, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(number) || number < 0) return failure;
  const std::string_view name = trim(std::string_view(end, static_cast<size_t>(whole.data() + whole.size() - end)));
  for (const Unit& unit : kUnits) {
    if (name != unit.name) continue;
    const double ms = number * unit.ms;
    if (ms > 30 * 24 * 3600e3) return Failure{"'" + std::string(text) + "' is longer than 30 days"};
    if (ms < 1) return Failure{"'" + std::string(text) + "' is shorter than 1 ms"};
    return std::chrono::milliseconds(std::llround(ms));
  }
  return failure;
}

std::string duration_text(double ms) {
  if (ms < 999.5) return format("%.0f ms", ms);
  if (ms < 99.95e3) return format("%.1f s", ms / 1e3);
  const auto seconds = static_cast<int64_t>(std::llround(ms / 1e3));
  if (seconds < 3600) {
    const std::string rest = seconds % 60 == 0 ? "" : " " + std::to_string(seconds % 60) + " s";
    return std::to_string(seconds / 60) + " min" + rest;
  }
  const int64_t minutes = (seconds + 30) / 60;
  const std::string rest = minutes % 60 == 0 ? "" : " " + std::to_string(minutes % 60) + " min";
  return std::to_string(minutes / 60) + " h" + rest;
}

std::string time_text(double us) {
  if (!(us > 0)) return "-";
  if (us < 9999.5) return format(us < 99.995 ? "%.2f us" : "%.1f us", us);
  if (us < 1e6) return format("%.2f ms", us / 1e3);
  return format("%.2f s", us / 1e6);
}

std::string ratio_text(double default_us, double us) {
  return default_us > 0 && us > 0 ? format("%.2fx", default_us / us) : "-";
}

std::string bytes_text(int64_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
  const char* const names[] = {"KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1023.95 && unit < 3) {
    value /= 1024;
    ++unit;
  }
  return format("%.1f ", value) + names[unit];
}

std::string count_text(uint64_t count, const std::string& singular, const std::string& plural) {
  return std::to_string(count) + " " + (count == 1 ? singular : plural.empty() ? singular + "s" : plural);
}

std::string join_words(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " and " : ", ";
    text += words[i];
  }
  return text;
}

}  // namespace jitune::prewarm
