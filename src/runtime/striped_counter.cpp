#include "runtime/striped_counter.hpp"

#include <bit>
#include <cstdint>

namespace jitune::runtime::detail {
namespace {

std::atomic<uint64_t> taken{0};  // a bit for each number below kThreadSlots; who clears one has finished its adds

struct Release {
  unsigned slot = 0;
  ~Release() {
    // What runs later at this thread's end, another variable's destructor, shares.
    thread_slot = kThreadSlots;
    if (slot != 0) taken.fetch_and(~(uint64_t{1} << (slot - 1)), std::memory_order_release);
  }
};
thread_local Release release;

}  // namespace

unsigned claim_thread_slot() noexcept {
  uint64_t seen = taken.load(std::memory_order_relaxed);
  unsigned slot = kThreadSlots;
  do {
    slot = static_cast<unsigned>(std::countr_one(seen)) + 1;
    if (slot >= kThreadSlots) return thread_slot = kThreadSlots;
  } while (!taken.compare_exchange_weak(seen, seen | uint64_t{1} << (slot - 1), std::memory_order_acquire,
                                        std::memory_order_relaxed));
  release.slot = slot;
  return thread_slot = slot;
}

}  // namespace jitune::runtime::detail

namespace jitune::runtime {

PackedCounter PackedCounters::make() {
  const std::lock_guard lock(mutex_);
  if (used_ == PackedCounter::kAside) {
    pages_.push_back(std::make_unique<Page>());
    used_ = 0;
  }
  return PackedCounter(&pages_.back()->counts[used_++]);
}

}  // namespace jitune::runtime
