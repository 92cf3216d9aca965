#pragma once

#include <optional>
#include <string>

#include "base/clock.hpp"
#include "pool/pool.hpp"

namespace jitune::pool {

/// Decides when a worker may be started: at once as long as workers answer, later and later while they die, not at all
/// for a while after too many deaths in a row.
class SpawnPolicy {
 public:
  SpawnPolicy(int storm_deaths, Milliseconds pause, Milliseconds backoff)
      : storm_deaths_(storm_deaths), pause_(pause), backoff_(backoff) {}

  void succeeded() { failures_ = 0; }

  /// A worker died by itself, spoke nonsense or could not be started. True when that was one too many: the policy is
  /// now off, with a reason that ends in `last`.
  bool failed(Clock::time_point now, const std::string& last);

  /// No worker for a while: the program itself is wrong.
  void turn_off(Clock::time_point now, std::string reason);

  /// Why no worker may be started now, or nothing.
  std::optional<std::string> off(Clock::time_point now) const;

  /// Before this moment none is started.
  Clock::time_point next_spawn() const { return next_spawn_; }

  void reset();

 private:
  int storm_deaths_;
  Milliseconds pause_, backoff_;
  int failures_ = 0;
  Clock::time_point next_spawn_{}, off_until_{};
  std::string reason_;
};

}  // namespace jitune::pool
