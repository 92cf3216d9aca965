#include "search/transfer.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <unordered_map>

namespace jitune::search {
namespace {

constexpr size_t kFewest = 3;           // timed configs that make a record worth a look
constexpr size_t kFewestForPrior = 20;  // ... and a prior
constexpr size_t kCandidates = 300;     // of each record, its fastest
constexpr size_t kFitted = 1500;        // rows that a record's forest is fitted to
constexpr double kMeanShare = .05;      // of the mean regret in a choice, beside what the choice covers

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

std::optional<Hint> Transfer::prior() const {
  struct Learned {
    std::unordered_map<space::Point, double, space::PointHash> scores;
    Forest forest;
    double weight = 1;
  };
  auto learned = std::make_shared<std::vector<Learned>>();
  const auto encode = [&valid = valid_](const space::Point& point, FeatureRows& rows) {
    for (size_t i = 0; i < point.size(); ++i)
      rows.codes.push_back(
          static_cast<uint8_t>(valid.width(i) <= 256 ? point[i] : point[i] * 255 / (valid.width(i) - 1)));
    rows.features = point.size();
  };
  Random random(1);
  for (const Source& source : sources_) {
    if (source.times.size() < kFewestForPrior) continue;
    double mean = 0, square = 0;
    for (const auto& [point, time] : source.times) mean += time;
    mean /= static_cast<double>(source.times.size());
    for (const auto& [point, time] : source.times) square += (time - mean) * (time - mean);
    const double deviation = std::max(1e-9, std::sqrt(square / static_cast<double>(source.times.size())));
    Learned one;
    one.weight = source.weight;
    FeatureRows rows;
    std::vector<float> targets;
    const size_t step = 1 + source.times.size() / kFitted;
    for (size_t i = 0; i < source.times.size(); ++i) {
      const double score = (source.times[i].second - mean) / deviation;
      one.scores.emplace(source.times[i].first, score);
      if (i % step != 0) continue;
      encode(source.times[i].first, rows);
      targets.push_back(static_cast<float>(score));
    }
    one.forest.fit(rows, targets, {10, .8, 2}, random);
    learned->push_back(std::move(one));
  }
  if (learned->empty()) return std::nullopt;
  return [learned, encode](const space::Point& point) {
    double sum = 0, weights = 0;
    for (const Learned& one : *learned) {
      double score = 0;
      if (const auto known = one.scores.find(point); known != one.scores.end()) {
        score = known->second;
      } else {
        FeatureRows row;
        encode(point, row);
        std::vector<Estimate> estimate;
        one.forest.predict(row, estimate);
        score = estimate.front().mean;
      }
      sum += one.weight * score;
      weights += one.weight;
    }
    return sum / weights;
  };
}

}  // namespace jitune::search
