#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/plan.hpp"

namespace jitune::runtime {

/// The plans of a kernel. Finding one takes no lock: readers see an immutable table; adding copies it. Replaced tables
/// and plans are kept until the kernel ends, since a reader may still hold them and a captured graph the function.
class PlanTable {
 public:
  PlanTable();
  ~PlanTable();

  Plan* find(const PlanKey& key) const noexcept;

  /// Adds a plan, or replaces the one with its key. Returns the plan.
  Plan* insert(std::unique_ptr<Plan> plan);

  /// Every plan in use.
  std::vector<Plan*> all() const;

 private:
  using Slots = std::vector<Plan*>;  // open addressing, a power of two, at most half full
  std::atomic<const Slots*> slots_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<const Slots>> tables_;
  std::vector<std::unique_ptr<Plan>> plans_;
};

}  // namespace jitune::runtime
