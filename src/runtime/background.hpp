#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "jitune/kernel.hpp"
#include "key/key.hpp"
#include "runtime/caller_data.hpp"
#include "space/instance.hpp"
#include "tune/tune.hpp"

namespace jitune::runtime {

class TunerState;
class KernelState;

/// What is to be tuned behind a launch that went ahead with another config.
struct BackgroundJob {
  std::weak_ptr<KernelState> kernel;
  Problem problem;
  CUcontext context = nullptr;
  std::shared_ptr<const space::Instance> instance;
  key::TuningKey key;
  CallerData data;        ///< a snapshot; empty: fills
  bool confirms = false;  ///< the quiet rematch of what was measured beside the application
  bool resumes = false;   ///< a winner is stored, but its study was cut short: it goes on
  int held = 0;           ///< how often another process was found tuning it
};

/// The background track's one thread: takes jobs in order, pauses after each use of the GPU so that the application
/// keeps its share, and measures finalists again once the application has been quiet for a while.
/// Safe from any thread. Starts its thread with the first job; stop() ends a study within about 200 ms.
class Background {
 public:
  explicit Background(TunerState& tuner) : tuner_(tuner) {}
  ~Background() { stop(); }

  void add(BackgroundJob job);
  void stop();

 private:
  void run();
  std::optional<BackgroundJob> next(std::unique_lock<std::mutex>& lock);
  void tune(BackgroundJob job);
  tune::Outcome study(const BackgroundJob& job, tune::Services& services, const space::Instance& instance,
                      std::vector<space::DeviceInfo> more_devices);
  std::vector<space::DeviceInfo> idle_devices(const BackgroundJob& job);
  tune::Rationing rationing(const BackgroundJob& job, tune::Services& services);
  void swap_in(const BackgroundJob& job, const tune::Outcome& outcome, bool disturbed, bool elsewhere);
  void pause(double busy_ms);
  void queue(std::deque<BackgroundJob>& jobs, BackgroundJob job);
  bool wait(std::chrono::milliseconds time);  // false: it is to stop
  bool is_quiet();

  TunerState& tuner_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<BackgroundJob> jobs_, unconfirmed_;
  bool stop_ = false;
  std::thread thread_;
  // Of the thread alone.
  long long launches_seen_ = -1;
  Clock::time_point quiet_since_{};
};

}  // namespace jitune::runtime
