#include "pool/spawn_policy.hpp"

#include <algorithm>
#include <utility>

namespace jitune::pool {

bool SpawnPolicy::failed(Clock::time_point now, const std::string& last, bool at_start) {
  if (failures_++ == 0) deadly_ = false;
  const bool deadly = deadly_ || !at_start;
  if (failures_ >= storm_deaths_) {
    turn_off(now, std::to_string(failures_) + " workers in a row ended without an answer, the last one: " + last);
    deadly_ = deadly;
    return true;
  }
  deadly_ = deadly;
  // The first death costs no wait: one bad config is no reason to slow the others down.
  if (failures_ > 1) next_spawn_ = now + backoff_ * (1 << std::min(failures_ - 2, 6));
  return false;
}

void SpawnPolicy::turn_off(Clock::time_point now, std::string reason) {
  off_until_ = now + pause_;
  reason_ = std::move(reason);
  failures_ = 0;
  deadly_ = false;
  next_spawn_ = {};
}

std::optional<std::string> SpawnPolicy::off(Clock::time_point now) const {
  if (now >= off_until_) return std::nullopt;
  return reason_;
}

void SpawnPolicy::reset() {
  failures_ = 0;
  deadly_ = false;
  next_spawn_ = off_until_ = {};
  reason_.clear();
}

}  // namespace jitune::pool
