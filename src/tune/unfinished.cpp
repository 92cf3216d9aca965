#include "tune/unfinished.hpp"

#include <algorithm>

namespace jitune::tune {

bool is_unfinished(store::Store& store, const key::TuningKey& key, const space::Instance& instance) {
  const auto rows = store.find_keys(key.sha256);
  if (!rows || rows->size() != 1) return false;
  if (rows->front().last_outcome == "budget" || rows->front().last_outcome == "cancelled") return true;
  int64_t last = 0;
  if (const auto trials = store.trials_of(key.sha256))
    for (const store::TrialRow& trial : *trials) last = std::max(last, trial.study);
  const auto study = store.find_study(last);
  return study && *study && (*study)->row.space != instance.space_definition();
}

}  // namespace jitune::tune
