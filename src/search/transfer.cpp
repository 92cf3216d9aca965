#include "search/transfer.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <unordered_map>

namespace jitune::search {
namespace {

constexpr size_t kFewest = 3;          // timed configs that make a record worth a look
constexpr size_t kFewestForHint = 20;  // ... and a hint
constexpr size_t kCandidates = 300;    // of each record, its fastest
constexpr size_t kFitted = 1500;       // rows that a record's forest is fitted to
constexpr double kMeanShare = .05;     // of the mean regret in a choice, beside what the choice covers

}  // namespace

Transfer::Transfer(const space::ValidSet& valid, const std::vector<Record>& records) : valid_(valid) {
  for (const Record& record : records) {
    Source source;
    for (const auto& [config, time_us] : record.times_us)
      if (auto point = valid.point(config); point && time_us > 0)
        source.times.emplace_back(std::move(*point), std::log(time_us));
    if (source.times.size() < kFewest) {
      // A lone winner is still worth a try: a record of one config.
      if (source.times.empty()) continue;
    }
    std::stable_sort(source.times.begin(), source.times.end(),
                     [](const auto& a, const auto& b) { return a.second < b.second; });
    source.weight = 1 / (1 + record.distance);
    sources_.push_back(std::move(source));
  }
}

std::vector<space::Point> Transfer::portfolio(size_t count) const {
  std::unordered_map<space::Point, size_t, space::PointHash> index;
  std::vector<space::Point> candidates;
  for (const Source& source : sources_)
    for (size_t i = 0; i < std::min(kCandidates, source.times.size()); ++i)
      if (index.emplace(source.times[i].first, candidates.size()).second) candidates.push_back(source.times[i].first);

  // Where a record does not have a point it is taken for as slow as the record's median.
  std::vector<std::vector<double>> regrets;
  for (const Source& source : sources_) {
    const double best = source.times.front().second;
    regrets.emplace_back(candidates.size(), source.times[source.times.size() / 2].second - best);
    for (const auto& [point, time] : source.times)
      if (const auto at = index.find(point); at != index.end()) regrets.back()[at->second] = time - best;
  }
  std::vector<double> covered(sources_.size(), std::numeric_limits<double>::infinity());
  std::vector<bool> taken(candidates.size(), false);
  std::vector<space::Point> chosen;
  while (chosen.size() < std::min(count, candidates.size())) {
    size_t best = candidates.size();
    double least = std::numeric_limits<double>::infinity();
    for (size_t c = 0; c < candidates.size(); ++c) {
      if (taken[c]) continue;
      double cost = 0;
      for (size_t s = 0; s < sources_.size(); ++s)
        cost += sources_[s].weight * (std::min(covered[s], regrets[s][c]) + kMeanShare * regrets[s][c]);
      if (cost >= least) continue;
      least = cost;
      best = c;
    }
    if (best == candidates.size()) break;
    taken[best] = true;
    for (size_t s = 0; s < sources_.size(); ++s) covered[s] = std::min(covered[s], regrets[s][best]);
    chosen.push_back(candidates[best]);
  }
  return chosen;
}

namespace {

/// One record as a hint.
struct Learned {
  std::unordered_map<space::Point, double, space::PointHash> scores;
  Features features;
  Forest forest;

  double operator()(const space::Point& point) const {
    if (const auto known = scores.find(point); known != scores.end()) return known->second;
    FeatureRows row;
    features.append(point, row.codes);
    row.features = row.codes.size();
    std::vector<Estimate> estimate;
    forest.predict(row, estimate);
    return static_cast<double>(estimate.front().mean);
  }
};

}  // namespace

std::vector<std::pair<Hint, double>> Transfer::hints() const {
  std::vector<std::pair<Hint, double>> hints;
  Random random(1);
  for (const Source& source : sources_) {
    if (source.times.size() < kFewestForHint) continue;
    const auto count = static_cast<double>(source.times.size());
    double mean = 0, square = 0;
    for (const auto& [point, time] : source.times) mean += time / count;
    for (const auto& [point, time] : source.times) square += (time - mean) * (time - mean);
    const double deviation = std::max(1e-9, std::sqrt(square / count));
    auto learned = std::make_shared<Learned>(Learned{{}, Features(valid_), {}});
    FeatureRows rows;
    std::vector<float> targets;
    const size_t step = 1 + source.times.size() / kFitted;
    for (size_t i = 0; i < source.times.size(); ++i) {
      const auto& [point, time] = source.times[i];
      learned->scores.emplace(point, (time - mean) / deviation);
      if (i % step != 0) continue;
      const size_t before = rows.codes.size();
      learned->features.append(point, rows.codes);
      rows.features = rows.codes.size() - before;
      targets.push_back(static_cast<float>((time - mean) / deviation));
    }
    learned->forest.fit(rows, targets, {10, .6, 2}, random);
    hints.emplace_back([learned](const space::Point& point) { return (*learned)(point); }, source.weight);
  }
  return hints;
}

}  // namespace jitune::search
