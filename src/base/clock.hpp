#pragma once

#include <chrono>
#include <cstdint>

namespace jitune {

using Clock = std::chrono::steady_clock;

/// Milliseconds since `start`.
inline double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// UTC seconds since 1970, for rows that people read; deadlines use Clock.
inline int64_t unix_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace jitune
