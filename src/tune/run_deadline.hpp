#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace jitune::tune {

constexpr std::chrono::milliseconds kFirstRunLimit{30'000};  ///< of a config's run before any time is known

/// How long a config's trial may take before its worker is killed: twenty times what the best one needs for all its
/// samples, or ten times what the quickest good trial took in all, at least a second.
///
/// `launches_us`: the best config's launches of one trial, together; 0: no time is known. `quickest_ms`: wall time of
/// the quickest good trial. The latter counts where checks take longer than samples, or where a key is tuned at several
/// problems and the slow one weighs little in their mean.
inline std::chrono::milliseconds run_deadline(double launches_us, double quickest_ms) {
  constexpr double kLaunches = 20, kTrials = 10, kFloorMs = 1000;
  if (launches_us <= 0) return kFirstRunLimit;
  return std::chrono::milliseconds(
      static_cast<int64_t>(std::max({kFloorMs, kLaunches * launches_us / 1000, kTrials * quickest_ms})));
}

}  // namespace jitune::tune
