#include "runtime/plan_table.hpp"

#include <utility>

namespace jitune::runtime {

/// False when it replaced a plan.
bool PlanTable::place(Table& table, Plan* plan) {
  for (size_t at = plan->key().hash() & table.mask;; at = (at + 1) & table.mask) {
    Slot& slot = table.slots[at];
    const Plan* known = slot.plan.load(std::memory_order_relaxed);
    if (known != nullptr && !(known->key() == plan->key())) continue;
    if (known == nullptr) slot.tag = plan->key().tag();
    slot.plan.store(plan, std::memory_order_release);
    return known == nullptr;
  }
}

PlanTable::PlanTable() {
  tables_.push_back(std::make_unique<Table>(8));
  table_.store(tables_.back().get(), std::memory_order_release);
}

PlanTable::~PlanTable() = default;

Plan* PlanTable::insert(std::unique_ptr<Plan> plan) {
  const std::lock_guard lock(mutex_);
  Table* table = table_.load(std::memory_order_relaxed);
  if ((used_ + 1) * 2 > table->mask + 1) {
    auto larger = std::make_unique<Table>((table->mask + 1) * 2);
    for (size_t at = 0; at <= table->mask; ++at)
      if (Plan* each = table->slots[at].plan.load(std::memory_order_relaxed); each != nullptr) place(*larger, each);
    table = larger.get();
    tables_.push_back(std::move(larger));
    table_.store(table, std::memory_order_release);
  }
  Plan* added = plan.get();
  plans_.push_back(std::move(plan));
  if (place(*table, added)) ++used_;
  return added;
}

std::vector<Plan*> PlanTable::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<Plan*> plans;
  const Table& table = *table_.load(std::memory_order_relaxed);
  for (size_t at = 0; at <= table.mask; ++at)
    if (Plan* each = table.slots[at].plan.load(std::memory_order_relaxed); each != nullptr) plans.push_back(each);
  return plans;
}

}  // namespace jitune::runtime
