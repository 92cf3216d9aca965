#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "base/clock.hpp"

namespace jitune::prewarm {

/// How far the work on one kernel and problem is.
struct ProgressState {
  std::string label;   ///< `2/6 gemm T=half M=4096`
  uint64_t total = 0;  ///< configs; 0 when not known
  uint64_t done = 0;
  uint64_t failed = 0;
  double best_us = 0, default_us = 0;  ///< 0: not known, or nothing is measured
  double elapsed_ms = 0;
  double budget_ms = 0;  ///< 0: none
  uint64_t skipped = 0;  ///< compiled and not run
};

/// Time left at the pace so far, never beyond the budget; negative while nothing can be said.
double time_left_ms(const ProgressState& state);

/// One line of at most `width` columns with a bar, for a terminal.
std::string bar_line(const ProgressState& state, int width);

/// One line for a pipe or a log file.
std::string plain_line(const ProgressState& state);

/// Shows progress on stderr: on a terminal one line that is drawn again up to ten times a second, elsewhere a plain
/// line after 2 s, then every 5 s, after a minute every 30 s. Safe from any thread.
class Progress {
 public:
  explicit Progress(bool terminal) : terminal_(terminal) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Whether stderr is a terminal that can move its cursor.
  static bool on_terminal();

  void update(const ProgressState& state);

  /// Takes the bar away, before something else is printed and at the end of a problem.
  void clear();

  /// Prints a line on stderr, above the bar.
  void say(const std::string& line);

 private:
  void draw(const ProgressState& state);
  void erase();

  const bool terminal_;
  std::mutex mutex_;
  bool drawn_ = false;
  std::string label_;
  Clock::time_point next_{};
  ProgressState state_;
};

}  // namespace jitune::prewarm
