#include "runtime/plan_table.hpp"

#include <utility>

namespace jitune::runtime {
namespace {

void place(std::vector<Plan*>& slots, Plan* plan) {
  size_t at = plan->key().hash() & (slots.size() - 1);
  while (slots[at] != nullptr && !(slots[at]->key() == plan->key())) at = (at + 1) & (slots.size() - 1);
  slots[at] = plan;
}

}  // namespace

PlanTable::PlanTable() {
  tables_.push_back(std::make_unique<const Slots>(8, nullptr));
  slots_.store(tables_.back().get(), std::memory_order_release);
}

PlanTable::~PlanTable() = default;

Plan* PlanTable::find(const PlanKey& key) const noexcept {
  const Slots& slots = *slots_.load(std::memory_order_acquire);
  for (size_t at = key.hash() & (slots.size() - 1); slots[at] != nullptr; at = (at + 1) & (slots.size() - 1))
    if (slots[at]->key() == key) return slots[at];
  return nullptr;
}

Plan* PlanTable::insert(std::unique_ptr<Plan> plan) {
  const std::lock_guard lock(mutex_);
  const Slots& old = *slots_.load(std::memory_order_relaxed);
  size_t used = 1;
  for (Plan* each : old) used += each != nullptr ? 1 : 0;
  auto fresh = std::make_unique<Slots>(used * 2 > old.size() ? old.size() * 2 : old.size(), nullptr);
  for (Plan* each : old)
    if (each != nullptr) place(*fresh, each);
  Plan* added = plan.get();
  place(*fresh, added);
  plans_.push_back(std::move(plan));
  tables_.push_back(std::move(fresh));
  slots_.store(tables_.back().get(), std::memory_order_release);
  return added;
}

std::vector<Plan*> PlanTable::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<Plan*> plans;
  for (Plan* each : *slots_.load(std::memory_order_relaxed))
    if (each != nullptr) plans.push_back(each);
  return plans;
}

}  // namespace jitune::runtime
