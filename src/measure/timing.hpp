#pragma once

#include "base/clock.hpp"
#include "measure/arguments.hpp"

namespace jitune::measure {

/// Times single launches with CUDA events on one stream. Every function but enqueueing ones waits for the GPU.
class Timer {
 public:
  Timer() = default;
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer();

  /// `l2_bytes` of the device decide what a flush writes: twice as much.
  gpu::Trouble prepare(const gpu::Driver& driver, const Utility& utility, const Buffers& buffers, CUstream stream,
                       int64_t l2_bytes, bool cold_l2);
  static int64_t planned_bytes(int64_t l2_bytes, bool cold_l2) { return cold_l2 ? 2 * l2_bytes : 0; }

  /// One launch as it comes, without restoring or flushing; `us` is its duration.
  gpu::Trouble time_launch(Loaded& loaded, double& us);

  /// One sample by the policy: buffers restored and L2 flushed (or warmed by a launch) before, outside the timed
  /// region.
  gpu::Trouble sample(Loaded& loaded, double& us);

  /// Whether the GPU has done nothing for us for more than 5 ms, so that its clocks may have gone down.
  bool rested() const;

 private:
  gpu::Trouble record(CUevent event);

  const gpu::Driver* driver_ = nullptr;
  const Utility* utility_ = nullptr;
  const Buffers* buffers_ = nullptr;
  CUstream stream_ = nullptr;
  CUevent begin_ = nullptr, end_ = nullptr;
  DeviceMemory flush_;
  bool cold_l2_ = true;
  Clock::time_point last_busy_{};
};

}  // namespace jitune::measure
