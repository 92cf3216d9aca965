#pragma once

#include <cuda.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/result.hpp"
#include "jitune/tuner.hpp"
#include "runtime/background.hpp"
#include "runtime/environment.hpp"
#include "runtime/striped_counter.hpp"
#include "space/device.hpp"
#include "tune/services.hpp"

namespace jitune::runtime {

class KernelState;

/// What a Tuner shares with its kernels. Kernels keep it alive, but only a Tuner that is still there makes it `open`.
class TunerState {
 public:
  explicit TunerState(Settings settings);
  ~TunerState();

  /// Ends workers and closes the database, at the latest when the slow path of a launch that is under way has let go of
  /// them; launches fail from here on with Error{lifetime}.
  void close();
  bool is_open() const { return open_.load(std::memory_order_acquire); }

  /// Ends studies and has none begin, while launches go on.
  void stop() { stopped_.store(true, std::memory_order_release); }
  bool may_tune() const { return is_open() && !stopped_.load(std::memory_order_acquire); }

  const Settings& settings() const { return settings_; }
  Log& log() { return log_; }
  /// What tuning is done with, kept alive while it is held; null after close().
  std::shared_ptr<tune::Services> services();

  /// Files of winners to look into after the database, in the order of Options::bundles; those that could be opened.
  struct Bundle {
    std::string path;
    std::unique_ptr<store::Store> store;
  };
  const std::vector<Bundle>& bundles() const { return bundles_; }

  /// Facts about the device of a context, asked of the driver once for each device.
  Result<space::DeviceInfo> device_of(CUdevice device);

  /// Marks a key as being tuned by this process. False when another thread does that already.
  bool begin_tuning(const std::string& key_sha256);
  void end_tuning(const std::string& key_sha256);
  /// Waits until no thread of this process tunes the key. False when `deadline` came first or the Tuner ends.
  bool wait_tuned(const std::string& key_sha256, Clock::time_point deadline);

  StripedCounter<64> launches;
  /// Kernels that have misses to tell when the Tuner ends.
  void add(std::weak_ptr<KernelState> kernel);
  /// Tells the store of misses, at most every five seconds: called where a launch was slow anyway.
  void tell_misses_now_and_then();

  std::atomic<WhileTuned> while_tuned{WhileTuned::wait};
  Background& background() { return *background_; }

  /// Slow path only. For Tuner::statistics and the summary in the log.
  void count_decision(const std::string& rule);
  std::map<std::string, long long> decisions();

  std::atomic<long long> stalls{0}, stall_us{0}, fallbacks{0};
  std::atomic<long long> hits{0}, misses{0}, trials{0}, compilations{0};

 private:
  void tell_misses();
  void log_summary();
  Settings settings_;
  Log log_;
  std::vector<Bundle> bundles_;  ///< after log_, which they use
  std::atomic<bool> open_{true}, stopped_{false};
  std::mutex mutex_;  // of what follows
  std::shared_ptr<tune::Services> services_;
  std::map<CUdevice, space::DeviceInfo> devices_;
  std::set<std::string> tuning_;
  std::condition_variable tuned_;
  std::vector<std::weak_ptr<KernelState>> kernels_;
  std::map<std::string, long long> decisions_;
  Clock::time_point misses_told_ = Clock::now();
  std::unique_ptr<Background> background_;
};

namespace detail {
extern std::atomic<bool> forked;
}

/// Whether this process is a fork of the one that loaded jitune: it must not touch connections, workers or CUDA.
inline bool is_forked_child() noexcept {
  return detail::forked.load(std::memory_order_relaxed);
}

}  // namespace jitune::runtime
