#pragma once

#include "base/clock.hpp"
#include "measure/kernel_times.hpp"
#include "measure/loaded.hpp"

namespace jitune::measure {

/// Times launches with CUDA events on one stream. Every function but enqueueing ones waits for the GPU.
class Timer {
 public:
  Timer() = default;
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer();

  /// `l2_bytes` of the device decide what a flush writes: twice as much.
  gpu::Trouble prepare(const gpu::Driver& driver, const Utility& utility, Buffers& buffers, CUstream stream,
                       int64_t l2_bytes, bool cold_l2);

  /// Single launches are timed by CUPTI's records from now on, instead of by events; null: by events again.
  void use_kernel_times(KernelTimes* times) { kernel_times_ = times; }
  static int64_t planned_bytes(int64_t l2_bytes, bool cold_l2) { return cold_l2 ? 2 * l2_bytes : 0; }

  /// One launch as it comes, without restoring or flushing; `us` is its duration.
  gpu::Trouble time_launch(Loaded& loaded, double& us);

  /// One launch after restoring the checked buffers and flushing L2 (or warming it by a launch), outside the timed
  /// region.
  gpu::Trouble time_alone(Loaded& loaded, double& us);

  /// One sample by the study's method: time_alone, or the mean of a graph of launches over copies of the buffers, all
  /// restored and L2 flushed before. The first graph sample of a candidate records the graph and runs it once untimed.
  gpu::Trouble sample(Loaded& loaded, double& us);

  /// How sample() does it. `launches` of a graph each take about `launch_us`; as many copies as fit `memory_bytes`.
  /// Stays with single launches where the driver has no graphs or fewer than four copies fit.
  gpu::Trouble use_graph(int launches, int64_t memory_bytes);
  static int graph_launches(double launch_us);

  /// More launches a sample than use_graph() chose, where faster candidates than its one are to be told apart. Graphs
  /// recorded before must go first. Where memory does not suffice nothing changes. Never changes single launches.
  gpu::Trouble refine(double launch_us, int64_t memory_bytes);
  int launches() const { return launches_; }  ///< of a graph sample; 1: single launches

  /// The SM clock at this moment, 0 when the GPU's timer makes no sense. Takes about 50 us, 10 of them on the GPU.
  gpu::Trouble read_clock(int& mhz);

  /// Keeps the SMs busy for about `ms`.
  gpu::Trouble warm_up(double ms);

  /// Whether the GPU has done nothing for us for more than 5 ms, so that its clocks may have gone down.
  bool rested() const;

 private:
  gpu::Trouble record(CUevent event);
  gpu::Trouble flush();
  gpu::Trouble elapsed(const char* what, double& us);
  gpu::Trouble time_record(Loaded& loaded, double& us);
  gpu::Trouble sample_graph(Loaded& loaded, double& us);

  const gpu::Driver* driver_ = nullptr;
  const Utility* utility_ = nullptr;
  Buffers* buffers_ = nullptr;
  KernelTimes* kernel_times_ = nullptr;
  CUstream stream_ = nullptr;
  CUevent begin_ = nullptr, end_ = nullptr;
  DeviceMemory flush_, clock_;
  bool cold_l2_ = true;
  int launches_ = 1;
  Clock::time_point last_busy_{};
};

}  // namespace jitune::measure
