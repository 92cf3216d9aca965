#include "measure/timing.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace jitune::measure {
namespace {

constexpr double kRestedMs = 5;               // a GPU that idles longer may have lowered its clocks
constexpr int64_t kGateCycles = 40'000;       // about 20 us at 2 GHz: enqueueing an event and a launch takes less
constexpr int64_t kGraphGateCycles = 80'000;  // a graph launch costs the host 10 to 20 us
constexpr double kCyclesPerMs = 1.5e6;
constexpr double kGraphSampleUs = 150;  // resolved to 0.3 % by events of half a microsecond
constexpr int kFewestLaunches = 4;
constexpr int kMostLaunches = 64;
constexpr int64_t kMostCopyBytes = int64_t{2} << 30;

}  // namespace

Timer::~Timer() {
  if (begin_ != nullptr) driver_->cuEventDestroy(begin_);
  if (end_ != nullptr) driver_->cuEventDestroy(end_);
}

gpu::Trouble Timer::prepare(const gpu::Driver& driver, const Utility& utility, Buffers& buffers, CUstream stream,
                            int64_t l2_bytes, bool cold_l2) {
  driver_ = &driver;
  utility_ = &utility;
  buffers_ = &buffers;
  stream_ = stream;
  cold_l2_ = cold_l2;
  if (auto bad = trouble(driver, "cuEventCreate", driver.cuEventCreate(&begin_, CU_EVENT_DEFAULT))) return bad;
  if (auto bad = trouble(driver, "cuEventCreate", driver.cuEventCreate(&end_, CU_EVENT_DEFAULT))) return bad;
  if (auto bad = clock_.allocate(driver, 2 * sizeof(uint64_t), "the clock's reading")) return bad;
  return flush_.allocate(driver, planned_bytes(l2_bytes, cold_l2), "the L2 flush buffer");
}

gpu::Trouble Timer::record(CUevent event) {
  return trouble(*driver_, "cuEventRecord", driver_->cuEventRecord(event, stream_));
}

gpu::Trouble Timer::elapsed(const char* what, double& us) {
  if (auto bad = trouble(*driver_, what, driver_->cuEventSynchronize(end_))) return bad;
  float ms = 0;
  if (auto bad = trouble(*driver_, "cuEventElapsedTime", driver_->cuEventElapsedTime(&ms, begin_, end_))) return bad;
  us = static_cast<double>(ms) * 1000;
  last_busy_ = Clock::now();
  return {};
}

gpu::Trouble Timer::time_launch(Loaded& loaded, double& us) {
  if (auto bad = record(begin_)) return bad;
  if (auto bad = loaded.launch(stream_)) return bad;
  if (auto bad = record(end_)) return bad;
  return elapsed("the launch", us);
}

gpu::Trouble Timer::flush() {
  if (flush_.bytes() == 0) return {};
  return trouble(*driver_, "flushing L2",
                 driver_->cuMemsetD32Async(flush_.address(), 0, static_cast<size_t>(flush_.bytes()) / 4, stream_));
}

gpu::Trouble Timer::time_alone(Loaded& loaded, double& us) {
  if (auto bad = buffers_->restore()) return bad;
  if (cold_l2_) {
    if (auto bad = flush()) return bad;
  } else {
    if (auto bad = loaded.launch(stream_)) return bad;
    if (auto bad = buffers_->restore()) return bad;
    if (auto bad = utility_->spin(kGateCycles)) return bad;
  }
  if (kernel_times_ != nullptr) return time_record(loaded, us);
  // What is enqueued above keeps the GPU busy until the launch is in the queue too, so no host time is measured.
  return time_launch(loaded, us);
}

/// By the kernel's own record: what ran before must be done, so that its records are told from this one.
gpu::Trouble Timer::time_record(Loaded& loaded, double& us) {
  if (auto bad = trouble(*driver_, "waiting before a launch", driver_->cuStreamSynchronize(stream_))) return bad;
  if (auto bad = kernel_times_->forget()) return bad;
  if (auto bad = loaded.launch(stream_)) return bad;
  if (auto bad = trouble(*driver_, "the launch", driver_->cuStreamSynchronize(stream_))) return bad;
  last_busy_ = Clock::now();
  return kernel_times_->latest(us);
}

gpu::Trouble Timer::sample(Loaded& loaded, double& us) {
  return launches_ > 1 ? sample_graph(loaded, us) : time_alone(loaded, us);
}

gpu::Trouble Timer::sample_graph(Loaded& loaded, double& us) {
  if (!loaded.batch) {
    if (auto bad = loaded.batch.build(*driver_, loaded.module, *loaded.candidate, *buffers_, launches_,
                                      buffers_->copies() > 0, stream_))
      return bad;
    if (auto bad = buffers_->restore_copies()) return bad;
    if (auto bad = loaded.batch.launch(stream_)) return bad;  // uploads it, and warms L2 where that is wanted
  }
  if (auto bad = buffers_->restore_copies()) return bad;
  if (cold_l2_)
    if (auto bad = flush()) return bad;
  if (auto bad = utility_->spin(kGraphGateCycles)) return bad;
  if (auto bad = record(begin_)) return bad;
  if (auto bad = loaded.batch.launch(stream_)) return bad;
  if (auto bad = record(end_)) return bad;
  if (auto bad = elapsed("the graph of launches", us)) return bad;
  us /= launches_;
  return {};
}

int Timer::graph_launches(double launch_us) {
  const double wanted = std::ceil(kGraphSampleUs / std::max(0.1, launch_us));
  return static_cast<int>(std::clamp(wanted, static_cast<double>(kFewestLaunches), static_cast<double>(kMostLaunches)));
}

gpu::Trouble Timer::use_graph(int launches, int64_t memory_bytes) {
  launches_ = 1;
  if (!has_graphs(*driver_)) return {};
  // In a hot L2 all launches may use one set of buffers, unless a launch finds there what the one before it left.
  if (!cold_l2_) {
    if (!buffers_->needs_restore()) launches_ = std::max(launches, kFewestLaunches);
    return {};
  }
  const int64_t each = std::max<int64_t>(1, buffers_->bytes_of_copy());
  const int64_t fitting = std::min(memory_bytes, kMostCopyBytes) / each;
  const int copies = static_cast<int>(std::min<int64_t>(launches, fitting));
  if (copies < kFewestLaunches) return {};
  if (auto bad = buffers_->make_copies(copies)) {
    if (bad.code == CUDA_ERROR_OUT_OF_MEMORY) return {};
    return bad;
  }
  launches_ = copies;
  return {};
}

gpu::Trouble Timer::refine(double launch_us, int64_t memory_bytes) {
  const int before = launches_, wanted = graph_launches(launch_us);
  if (before < 2 || wanted <= before) return {};
  if (auto bad = use_graph(wanted, memory_bytes)) return bad;
  return launches_ < before ? use_graph(before, memory_bytes) : gpu::Trouble{};
}

gpu::Trouble Timer::read_clock(int& mhz) {
  mhz = 0;
  std::array<uint64_t, 2> cycles_and_ns{};
  if (auto bad = utility_->clock(clock_.address())) return bad;
  if (auto bad =
          trouble(*driver_, "reading the SM clock",
                  driver_->cuMemcpyDtoHAsync(cycles_and_ns.data(), clock_.address(), sizeof cycles_and_ns, stream_)))
    return bad;
  if (auto bad = trouble(*driver_, "reading the SM clock", driver_->cuStreamSynchronize(stream_))) return bad;
  last_busy_ = Clock::now();
  if (cycles_and_ns[1] == 0) return {};
  const double seen = 1000.0 * static_cast<double>(cycles_and_ns[0]) / static_cast<double>(cycles_and_ns[1]);
  if (seen > 0 && seen < 100'000) mhz = static_cast<int>(seen + 0.5);
  return {};
}

gpu::Trouble Timer::warm_up(double ms) {
  if (auto bad = utility_->spin(static_cast<int64_t>(ms * kCyclesPerMs))) return bad;
  if (auto bad = trouble(*driver_, "warming up", driver_->cuStreamSynchronize(stream_))) return bad;
  last_busy_ = Clock::now();
  return {};
}

bool Timer::rested() const {
  return ms_since(last_busy_) > kRestedMs;
}

}  // namespace jitune::measure
