#include "apps/prewarm/progress.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "apps/prewarm/text.hpp"

namespace jitune::prewarm {
namespace {

constexpr int kBarColumns = 20;

int terminal_width() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/// `34/72 configs, 2 failed, best 12.31 us, default 15.14 us, 12.0 s left`
std::string facts(const ProgressState& state) {
  std::string text =
      std::to_string(state.done) + (state.total > 0 ? "/" + std::to_string(state.total) : "") + " configs";
  if (state.failed > 0) text += ", " + std::to_string(state.failed) + " failed";
  if (state.skipped > 0) text += ", " + std::to_string(state.skipped) + " skipped";
  if (state.best_us > 0) text += ", best " + time_text(state.best_us);
  if (state.default_us > 0) text += ", default " + time_text(state.default_us);
  if (const double left = time_left_ms(state); left >= 0) text += ", " + duration_text(left) + " left";
  return text;
}

}  // namespace

double time_left_ms(const ProgressState& state) {
  double left = -1;
  if (state.total > 0 && state.done >= state.total) return 0;
  if (state.total > 0 && state.done > 0)
    left = state.elapsed_ms / static_cast<double>(state.done) * static_cast<double>(state.total - state.done);
  if (state.budget_ms > 0) {
    const double rest = std::max(0.0, state.budget_ms - state.elapsed_ms);
    left = left < 0 ? rest : std::min(left, rest);
  }
  return left;
}

std::string bar_line(const ProgressState& state, int width) {
  std::string bar;
  if (state.total > 0) {
    const auto full = static_cast<size_t>(std::min<uint64_t>(kBarColumns, state.done * kBarColumns / state.total));
    bar = "[" + std::string(full, '#') + std::string(kBarColumns - full, '.') + "] ";
  }
  const std::string text = facts(state);
  const size_t columns = static_cast<size_t>(std::max(width, 20));
  // The facts matter most, then the bar, then the label: what does not fit goes in the other order.
  if (bar.size() + text.size() > columns) bar.clear();
  std::string line = bar + text;
  if (line.size() > columns) return line.substr(0, columns);
  const size_t room = columns - line.size();
  if (state.label.size() + 1 <= room) return state.label + " " + line;
  if (room >= 12) return state.label.substr(0, room - 3) + ".. " + line;
  return line;
}

std::string plain_line(const ProgressState& state) {
  return state.label + ": " + facts(state) + " (" + duration_text(state.elapsed_ms) + " so far)";
}

bool Progress::on_terminal() {
  const char* term = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) == 1 && term != nullptr && std::strcmp(term, "dumb") != 0;
}

void Progress::update(const ProgressState& state) {
  const std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  state_ = state;
  if (state.label != label_) {
    label_ = state.label;
    next_ = terminal_ ? now : now + std::chrono::seconds(2);
  }
  if (now < next_) return;
  if (terminal_) {
    next_ = now + std::chrono::milliseconds(100);
    draw(state);
  } else {
    next_ = now + std::chrono::seconds(state.elapsed_ms < 60e3 ? 5 : 30);
    std::fprintf(stderr, "%s\n", plain_line(state).c_str());
  }
}

void Progress::draw(const ProgressState& state) {
  // One column stays free: a full line makes some terminals wrap.
  std::fprintf(stderr, "\r%s\x1b[K", bar_line(state, terminal_width() - 1).c_str());
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::erase() {
  if (!drawn_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

void Progress::clear() {
  const std::lock_guard lock(mutex_);
  erase();
  label_.clear();
}

void Progress::say(const std::string& line) {
  const std::lock_guard lock(mutex_);
  const bool again = drawn_;
  erase();
  std::fprintf(stderr, "%s\n", line.c_str());
  if (again) draw(state_);
}

}  // namespace jitune::prewarm
