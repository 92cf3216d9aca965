#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

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

/// One of PackedCounters; as StripedCounter otherwise. A value: copies count together.
class PackedCounter {
 public:
  static constexpr unsigned kStripes = 32;
  static constexpr unsigned kAside = 32;  ///< counters whose counts lie side by side: two pairs of cache lines

  PackedCounter() = default;
  explicit operator bool() const noexcept { return first_ != nullptr; }
  void add(long long amount) const noexcept {
    unsigned slot = detail::thread_slot;
    if (slot == 0) [[unlikely]]
      slot = detail::claim_thread_slot();
    if (slot < kStripes) [[likely]] {
      auto& mine = first_[size_t{slot - 1} * kAside];
      mine.store(mine.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
    } else {
      first_[size_t{kStripes - 1} * kAside].fetch_add(amount, std::memory_order_relaxed);
    }
  }
  long long sum() const noexcept {
    long long total = 0;
    for (size_t i = 0; i < kStripes; ++i) total += first_[i * kAside].load(std::memory_order_relaxed);
    return total;
  }

 private:
  friend class PackedCounters;
  explicit PackedCounter(std::atomic<long long>* first) : first_(first) {}
  std::atomic<long long>* first_ = nullptr;
};

/// Many counters of which a thread raises now this one, now that: what one thread counts lies side by side, so that a
/// thousand counters take it 8 KiB instead of a cache line each. Safe from any thread.
class PackedCounters {
 public:
  /// A counter at zero, valid as long as this object. Takes a lock, and allocates now and then.
  PackedCounter make();

 private:
  struct alignas(128) Page {
    std::array<std::atomic<long long>, size_t{PackedCounter::kStripes} * PackedCounter::kAside> counts{};
  };
  std::mutex mutex_;
  std::vector<std::unique_ptr<Page>> pages_;
  unsigned used_ = PackedCounter::kAside;  // of the last page
};

}  // namespace jitune::runtime
