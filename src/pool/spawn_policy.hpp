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

  void succeeded() { failures_ = 0, deadly_ = false; }

  /// A worker died by itself, spoke nonsense or could not be started. True when that was one too many: the policy is
  /// now off, with a reason that ends in `last`. `at_start`: it ended by itself before its hello, with an exit code, as
  /// where a library is missing; a storm of such deaths alone says nothing against the requests.
  bool failed(Clock::time_point now, const std::string& last, bool at_start = false);

  /// No worker for a while: the program itself is wrong.
  void turn_off(Clock::time_point now, std::string reason);

  /// Whether it is off, if it is, because of what workers were asked: `gave_up` rather than `no_worker`.
  Outcome refusal() const { return deadly_ ? Outcome::gave_up : Outcome::no_worker; }

  /// Why no worker may be started now, or nothing.
  std::optional<std::string> off(Clock::time_point now) const;

  /// Before this moment none is started.
  Clock::time_point next_spawn() const { return next_spawn_; }

  void reset();

 private:
  int storm_deaths_;
  Milliseconds pause_, backoff_;
  int failures_ = 0;
  bool deadly_ = false;
  Clock::time_point next_spawn_{}, off_until_{};
  std::string reason_;
};

}  // namespace jitune::pool
