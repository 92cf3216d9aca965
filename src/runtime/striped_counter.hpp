#pragma once

#include <array>
#include <atomic>
#include <cstddef>

namespace jitune::runtime {

/// A number from 0 for this thread, handed out in turn.
inline unsigned thread_number() noexcept {
  static std::atomic<unsigned> next{0};
  // Initial-exec: one read relative to the thread pointer also from the shared library.
  [[gnu::tls_model("initial-exec")]] static thread_local unsigned number = 0;  // 0: none yet
  if (number == 0) number = next.fetch_add(1, std::memory_order_relaxed) + 1;
  return number - 1;
}

/// A count that many threads raise at once without meeting in one cache line. Reading sums up; it sees every add that
/// happened before.
template <size_t kStripes>
class StripedCounter {
  static_assert((kStripes & (kStripes - 1)) == 0);

 public:
  void add(long long amount) noexcept {
    stripes_[thread_number() & (kStripes - 1)].value.fetch_add(amount, std::memory_order_relaxed);
  }
  long long sum() const noexcept {
    long long total = 0;
    for (const Stripe& each : stripes_) total += each.value.load(std::memory_order_relaxed);
    return total;
  }

 private:
  struct alignas(64) Stripe {
    std::atomic<long long> value{0};
  };
  std::array<Stripe, kStripes> stripes_;
};

}  // namespace jitune::runtime
