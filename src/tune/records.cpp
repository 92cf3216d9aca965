#include "tune/records.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "space/config.hpp"

namespace jitune::tune {
namespace {

constexpr size_t kNearest = 8;
// In doublings of a problem's number: what else differs.
constexpr double kOtherWord = 4, kOtherArch = 3, kOtherDevice = 2, kOtherSource = 2, kOtherRest = .5;

double problem_distance(const std::string& a, const std::string& b) {
  const auto one = space::parse_values(a), other = space::parse_values(b);
  if (!one || !other) return kOtherWord;
  double sum = 0;
  for (const auto& [name, value] : *one) {
    const auto at = other->find(name);
    if (at == other->end() || at->second.is_word() != value.is_word())
      sum += kOtherWord;
    else if (value.is_word() || value.as_int() <= 0 || at->second.as_int() <= 0)
      sum += value == at->second ? 0 : kOtherWord;
    else
      sum += std::abs(std::log2(static_cast<double>(value.as_int()) / static_cast<double>(at->second.as_int())));
  }
  return sum;
}

}  // namespace

double distance_between(const key::TuningKey& a, const key::TuningKey& b) {
  double sum = problem_distance(a.problem, b.problem);
  if (a.arch != b.arch)
    sum += kOtherArch;
  else if (a.sm_count != b.sm_count || a.memory_gib != b.memory_gib || a.max_clock_mhz != b.max_clock_mhz)
    sum += kOtherDevice;
  if (a.source_sha256 != b.source_sha256 || a.launch_sha256 != b.launch_sha256) sum += kOtherSource;
  if (a.nvrtc != b.nvrtc || a.policy != b.policy) sum += kOtherRest;
  return sum;
}

std::vector<search::Record> records_near(store::Store& store, const key::TuningKey& key) {
  const auto rows = store.list(key.kernel);
  if (!rows) return {};
  std::vector<std::pair<double, const store::KeyRow*>> near;
  for (const store::KeyRow& row : *rows)
    if (row.key.sha256 != key.sha256 && row.key.variant == key.variant)
      near.emplace_back(distance_between(key, row.key), &row);
  std::stable_sort(near.begin(), near.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  if (near.size() > kNearest) near.resize(kNearest);

  std::vector<search::Record> records;
  for (const auto& [distance, row] : near) {
    search::Record record;
    record.distance = distance;
    if (const auto trials = store.trials_of(row->key.sha256))
      for (const store::TrialRow& trial : *trials)
        if (auto config = space::parse_values(trial.config);
            config && trial.median_us > 0 && (trial.status == "ok" || trial.status == "early_stopped"))
          record.times_us.emplace_back(std::move(*config), trial.median_us);
    if (record.times_us.empty() && row->winner)  // imported without its trials
      if (auto config = space::parse_values(row->winner->config))
        record.times_us.emplace_back(std::move(*config), row->winner->median_us > 0 ? row->winner->median_us : 1);
    if (!record.times_us.empty()) records.push_back(std::move(record));
  }
  return records;
}

}  // namespace jitune::tune
