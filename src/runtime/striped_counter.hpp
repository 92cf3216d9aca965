#pragma once

#include <array>
#include <atomic>
#include <cstddef>

namespace jitune::runtime {

namespace detail {
/// A number from 1 that no other living thread has; from kThreadSlots on threads share it. 0: none yet.
inline constexpr unsigned kThreadSlots = 64;
// Initial-exec: one read relative to the thread pointer also from the shared library.
[[gnu::tls_model("initial-exec")]] inline constinit thread_local unsigned thread_slot = 0;
/// Gives this thread a number of its own, until it ends, where one is free.
unsigned claim_thread_slot() noexcept;
}  // namespace detail

/// A count that many threads raise at once without meeting in one cache line, and without a locked instruction: each of
/// the first threads owns a stripe, the others share the last one. Reading sums up; it sees every add that happened
/// before.
template <size_t kStripes>
class StripedCounter {
 public:
  void add(long long amount) noexcept {
    unsigned slot = detail::thread_slot;
    if (slot == 0) [[unlikely]]
      slot = detail::claim_thread_slot();
    if (slot < kStripes) [[likely]] {
      auto& mine = stripes_[slot - 1].value;
      mine.store(mine.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
    } else {
      stripes_[kStripes - 1].value.fetch_add(amount, std::memory_order_relaxed);
    }
  }
  long long sum() const noexcept {
    long long total = 0;
    for (const Stripe& each : stripes_) total += each.value.load(std::memory_order_relaxed);
    return total;
  }

 private:
  static_assert(kStripes > 1 && kStripes <= detail::kThreadSlots);
  struct alignas(128) Stripe {  // two lines: processors fetch the neighbour of a line along with it
    std::atomic<long long> value{0};
  };
  std::array<Stripe, kStripes> stripes_;
};

}  // namespace jitune::runtime
