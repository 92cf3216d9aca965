#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/plan.hpp"

namespace jitune::runtime {

/// The plans of a kernel. Finding one takes no lock and writes nothing: slots are filled in place and tables only grow.
/// Outgrown tables and replaced plans are kept until the kernel ends, since a reader may still hold them and a captured
/// graph the function; tables double, so that all outgrown ones together are no larger than the one in use.
class PlanTable {
 public:
  PlanTable();
  ~PlanTable();

  /// The plan with this hash and tag for which `fits(const Plan&)` holds, or null.
  template <class Fits>
  Plan* find(uint64_t hash, uint64_t tag, Fits fits) const noexcept {
    const Table& table = *table_.load(std::memory_order_acquire);
    const Slot* slot = &table.slots[hash & table.mask];
    for (;;) {
      Plan* plan = slot->plan.load(std::memory_order_acquire);
      if (plan == nullptr) return nullptr;
      if (slot->tag == tag && fits(*plan)) [[likely]]
        return plan;
      if (++slot == table.end) slot = table.slots.get();
    }
  }
  Plan* find(const PlanKey& key) const noexcept {
    return find(key.hash(), key.tag(), [&](const Plan& other) { return other.key() == key; });
  }

  /// Adds a plan, or replaces the one with its key. Returns the plan.
  Plan* insert(std::unique_ptr<Plan> plan);

  /// Every plan in use.
  std::vector<Plan*> all() const;

 private:
  struct Slot {
    uint64_t tag = 0;  // written before the plan is, and never again
    std::atomic<Plan*> plan{nullptr};
  };
  struct Table {
    explicit Table(size_t size) : mask(size - 1), slots(std::make_unique<Slot[]>(size)), end(slots.get() + size) {}
    size_t mask;
    std::unique_ptr<Slot[]> slots;  // open addressing, a power of two, at most half full
    const Slot* end;
  };
  static bool place(Table& table, Plan* plan);

  std::atomic<Table*> table_;
  mutable std::mutex mutex_;
  size_t used_ = 0;
  std::vector<std::unique_ptr<Table>> tables_;
  std::vector<std::unique_ptr<Plan>> plans_;
};

}  // namespace jitune::runtime
