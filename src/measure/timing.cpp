#include "measure/timing.hpp"

namespace jitune::measure {
namespace {

constexpr double kRestedMs = 5;          // a GPU that idles longer may have lowered its clocks
constexpr int64_t kGateCycles = 40'000;  // about 20 us at 2 GHz: enqueueing an event and a launch takes less

}  // namespace

Timer::~Timer() {
  if (begin_ != nullptr) driver_->cuEventDestroy(begin_);
  if (end_ != nullptr) driver_->cuEventDestroy(end_);
}

gpu::Trouble Timer::prepare(const gpu::Driver& driver, const Utility& utility, const Buffers& buffers, CUstream stream,
                            int64_t l2_bytes, bool cold_l2) {
  driver_ = &driver;
  utility_ = &utility;
  buffers_ = &buffers;
  stream_ = stream;
  cold_l2_ = cold_l2;
  if (auto bad = trouble(driver, "cuEventCreate", driver.cuEventCreate(&begin_, CU_EVENT_DEFAULT))) return bad;
  if (auto bad = trouble(driver, "cuEventCreate", driver.cuEventCreate(&end_, CU_EVENT_DEFAULT))) return bad;
  return flush_.allocate(driver, planned_bytes(l2_bytes, cold_l2), "the L2 flush buffer");
}

gpu::Trouble Timer::record(CUevent event) {
  return trouble(*driver_, "cuEventRecord", driver_->cuEventRecord(event, stream_));
}

gpu::Trouble Timer::time_launch(Loaded& loaded, double& us) {
  if (auto bad = record(begin_)) return bad;
  if (auto bad = loaded.launch(stream_)) return bad;
  if (auto bad = record(end_)) return bad;
  if (auto bad = trouble(*driver_, "the launch", driver_->cuEventSynchronize(end_))) return bad;
  float ms = 0;
  if (auto bad = trouble(*driver_, "cuEventElapsedTime", driver_->cuEventElapsedTime(&ms, begin_, end_))) return bad;
  us = static_cast<double>(ms) * 1000;
  last_busy_ = Clock::now();
  return {};
}

gpu::Trouble Timer::sample(Loaded& loaded, double& us) {
  if (auto bad = buffers_->restore()) return bad;
  if (cold_l2_) {
    if (flush_.bytes() > 0)
      if (auto bad =
              trouble(*driver_, "flushing L2",
                      driver_->cuMemsetD32Async(flush_.address(), 0, static_cast<size_t>(flush_.bytes()) / 4, stream_)))
        return bad;
  } else {
    if (auto bad = loaded.launch(stream_)) return bad;
    if (auto bad = buffers_->restore()) return bad;
    if (auto bad = utility_->spin(kGateCycles)) return bad;
  }
  // What is enqueued above keeps the GPU busy until the launch is in the queue too, so no host time is measured.
  return time_launch(loaded, us);
}

bool Timer::rested() const {
  return ms_since(last_busy_) > kRestedMs;
}

}  // namespace jitune::measure
