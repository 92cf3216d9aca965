#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace jitune::tune {

/// How long a compilation may take, by what the other configs of its space have needed.
///
/// kMultiple times the kQuantile of the times so far, once there are kSamples of them; not below kFloor, and never
/// above the user's limit. A compilation that was ended by such a deadline counts with the time that it had: where many
/// configs are slow the deadline grows. Wall time, as deadlines are, so a loaded machine stretches both.
/// Thread-safe.
class CompileDeadlines {
 public:
  using Milliseconds = std::chrono::milliseconds;
  static constexpr double kMultiple = 10, kQuantile = 0.9;
  static constexpr size_t kSamples = 8;
  static constexpr Milliseconds kFloor{5000};

  explicit CompileDeadlines(Milliseconds limit) : limit_(limit) {}

  /// For a compilation of `space` now.
  Milliseconds deadline(const std::string& space) const;

  /// A compilation of `space` succeeded, or was ended, after `ms`.
  void note(const std::string& space, double ms);

 private:
  const Milliseconds limit_;
  mutable std::mutex mutex_;
  std::map<std::string, std::vector<double>> times_ms_;  // sorted
};

}  // namespace jitune::tune
