#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "measure/early_stop.hpp"
#include "tune/measurer.hpp"

namespace jitune::tune {

/// One GPU of a study. Belongs to its lane's thread while that is at work, else to the study's; `state` always to the
/// study's.
struct Lane {
  enum class State : uint8_t {
    waiting,  ///< for the right to measure on it, and for its buffers
    begun,    ///< has buffers, but has not timed the yardstick
    joined,   ///< takes trials
    ended,    ///< lost, or never to be had
  };
  size_t number = 0;
  Measurer* measurer = nullptr;
  std::string uuid;
  State state = State::waiting;
  bool held = false;     ///< its measurer is this study's until end()
  bool trusted = false;  ///< its worker holds the outputs of the definition's own reference
  double offset = 1;     ///< how much longer the yardstick, one config that all time, takes here than on the first
  measure::DriftMonitor drift;
  std::shared_ptr<const measure::Candidate> anchor;  ///< the best config that ran here: tells this GPU's speed
  double anchor_us = 0;                              ///< its time as on the first lane
  int trials_since_anchor = 0;
  double measured_ms = 0;  ///< since the anchor was timed

  /// Times of now, divided by this, are as on the first lane when the study began.
  double scale() const { return drift.factor() * offset; }
};

/// The lanes of a study, each with a thread that waits for its measuring worker. All members but `wake`'s call are for
/// one thread, the study's. The destructor waits for what runs.
class Lanes {
 public:
  Lanes() = default;
  ~Lanes() { stop(); }
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  Lane& add(Measurer& measurer, std::string uuid);
  size_t size() const { return slots_.size(); }
  Lane& operator[](size_t number) { return slots_[number]->lane; }

  /// Runs `work` on an idle lane's thread; `finish` follows on the study's, in collect(). `counted`: its time is
  /// measuring time.
  void start(size_t number, std::function<void(Lane&)> work, std::function<void(Lane&)> finish, bool counted = true);
  bool is_idle(size_t number) const { return !slots_[number]->busy; }
  bool are_idle() const;

  /// Waits until some lane's work is done, at most so long.
  void wait(std::chrono::milliseconds limit);
  /// Runs the `finish` of all work that is done. What `work` threw is thrown here.
  void collect();
  /// Called by finish() now and then while it waits.
  void set_look(std::function<void()> look) { look_ = std::move(look); }
  /// Waits for this lane and collects.
  void finish(size_t number);

  /// Called on a lane's thread whenever its work is done. Once this has returned, the earlier one is called no more.
  void set_wake(std::function<void()> wake);

  /// Waits for what runs and ends the threads; nothing is started afterwards.
  void stop();

  /// Wall time during which at least one lane was at counted work.
  double busy_ms() const;

 private:
  struct Slot {
    Lane lane;
    bool busy = false;  // the study's thread: started and not collected
    std::function<void(Lane&)> work, finish;
    bool counted = true, started = false, done = false, quit = false;  // with mutex_
    std::exception_ptr thrown;
    std::thread thread;
  };
  void serve(Slot& slot);
  void note_busy(int change);  // with mutex_

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::function<void()> look_;
  std::function<void()> wake_;  // with mutex_
  int counted_ = 0;
  Clock::time_point busy_since_;
  double busy_ms_ = 0;
};

}  // namespace jitune::tune
