#include "search/model.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace jitune::search {
namespace {

constexpr size_t kFewest = 4;           // timed points before a model says anything
constexpr size_t kWeighHintsAt = 8;     // timed points from which hints are weighed
constexpr size_t kSettleHintsAt = 20;   // ... and at which they must have proved themselves
constexpr double kLeastAgreement = .3;  // rank correlation that a hint needs to stay
constexpr double kSlowHalf = .2;        // how much of what is above the median counts

/// What lies above the median is drawn nearer to it: how slow a slow config is says little about where the best one is,
/// and a tree that has to explain it spends its cuts there.
void compress_slow_half(std::vector<float>& times) {
  constexpr size_t kEnough = 8;
  if (times.size() < kEnough) return;
  std::vector<float> sorted = times;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>((sorted.size() - 1) / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  for (float& time : times)
    if (time > *middle) time = *middle + static_cast<float>(kSlowHalf) * (time - *middle);
}

std::vector<double> ranks(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> result(values.size());
  for (size_t i = 0; i < order.size();) {
    size_t end = i + 1;
    while (end < order.size() && values[order[end]] == values[order[i]]) ++end;
    for (size_t j = i; j < end; ++j) result[order[j]] = static_cast<double>(i + end - 1) / 2;
    i = end;
  }
  return result;
}

}  // namespace

double rank_correlation(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() < 3) return 0;
  const std::vector<double> x = ranks(a), y = ranks(b);
  const double middle = static_cast<double>(a.size() - 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - middle) * (y[i] - middle);
    xx += (x[i] - middle) * (x[i] - middle);
    yy += (y[i] - middle) * (y[i] - middle);
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
}

void Model::add_hint(Hint hint, double weight) {
  hints_.push_back({std::move(hint), weight, weight});
}

double Model::hinted(const space::Point& point) const {
  double sum = 0, trust = 0;
  for (const Weighed& one : hints_) {
    if (one.trust <= 0) continue;
    sum += one.trust * one.hint(point);
    trust += one.trust;
  }
  return trust > 0 ? sum / trust : 0;
}

void Model::append_features(const space::Point& point, double hinted, FeatureRows& rows) const {
  const size_t before = rows.codes.size();
  features_.append(point, rows.codes);
  if (!hints_.empty()) rows.codes.push_back(static_cast<uint8_t>(std::clamp(128 + 40 * hinted, 0.0, 255.0)));
  rows.features = rows.codes.size() - before;
}

/// By rank correlation with the times of this search: first all are trusted by their weight alone, in the end those
/// that the first measurements contradict are dropped.
void Model::weigh_hints() {
  std::vector<double> seen;
  for (const size_t index : archive_.order_told())
    if (archive_[index].state == Sample::State::timed) seen.push_back(archive_[index].log_time);
  if (settled_ || hints_.empty() || seen.size() < kWeighHintsAt) return;
  settled_ = seen.size() >= kSettleHintsAt;
  for (Weighed& one : hints_) {
    std::vector<double> hinted;
    for (const size_t index : archive_.order_told())
      if (archive_[index].state == Sample::State::timed) hinted.push_back(one.hint(archive_[index].point));
    const double agreement = rank_correlation(hinted, seen);
    one.trust = agreement < (settled_ ? kLeastAgreement : 0) ? 0 : one.weight * agreement * agreement;
  }
  if (settled_) std::erase_if(hints_, [](const Weighed& one) { return one.trust <= 0; });
}

/// Least squares; a hint that points the wrong way is not turned round.
void Model::fit_slope(const std::vector<float>& times, const std::vector<double>& hinted) {
  slope_ = 0;
  if (hints_.empty()) return;
  const auto count = static_cast<double>(hinted.size());
  const double middle = std::accumulate(hinted.begin(), hinted.end(), 0.0) / count;
  const double mean = std::accumulate(times.begin(), times.end(), 0.0) / count;
  double both = 0, square = 0;
  for (size_t i = 0; i < hinted.size(); ++i) {
    both += (hinted[i] - middle) * (times[i] - mean);
    square += (hinted[i] - middle) * (hinted[i] - middle);
  }
  if (square > 0) slope_ = std::max(0.0, both / square);
}

bool Model::refresh() {
  const size_t told = archive_.told();
  if (told - archive_.failures() < kFewest) return false;
  if (fitted_at_ != 0 && told < fitted_at_ + 2 + told / 60) return true;
  fitted_at_ = told;
  ++version_;
  weigh_hints();
  features_.choose(random_);
  centre_ = archive_.best() ? archive_.best_log_time() : 0;
  std::vector<float> times;
  FeatureRows rows, all;
  std::vector<float> failed;
  std::vector<double> hints;
  for (const size_t index : archive_.order_told()) {
    const Sample& sample = archive_[index];
    const double hint = hinted(sample.point);
    const size_t before = all.codes.size();
    append_features(sample.point, hint, all);
    rows.features = all.features;
    failed.push_back(sample.state == Sample::State::failed ? 1.0F : 0.0F);
    if (sample.state != Sample::State::timed) continue;
    rows.codes.insert(rows.codes.end(), all.codes.begin() + static_cast<std::ptrdiff_t>(before), all.codes.end());
    times.push_back(static_cast<float>(sample.log_time - centre_));
    hints.push_back(hint);
  }
  compress_slow_half(times);
  fit_slope(times, hints);
  for (size_t i = 0; i < hints.size(); ++i) times[i] -= static_cast<float>(slope_ * hints[i]);
  times_.fit(rows, times, {20, .6, 1}, random_);
  if (boosted_ && !boosted_->fit(rows, times, random_)) boosted_.reset();
  if (archive_.failures() > 0) failures_.fit(all, failed, {8, .6, 1}, random_);
  return true;
}

void Model::predict(const std::vector<space::Point>& points, std::vector<Expectation>& out) {
  scratch_ = {};
  std::vector<double> hints;
  for (const space::Point& point : points) {
    hints.push_back(hinted(point));
    append_features(point, hints.back(), scratch_);
  }
  out.assign(points.size(), {});
  if (scratch_.features == 0) return;
  times_.predict(scratch_, time_estimates_, &leaves_);
  std::vector<Estimate> boosted;
  if (boosted_ && boosted_->predict(scratch_, boosted)) time_estimates_ = std::move(boosted);
  failures_.predict(scratch_, failure_estimates_);
  for (size_t i = 0; i < points.size(); ++i)
    out[i] = {centre_ + slope_ * hints[i] + time_estimates_[i].mean, time_estimates_[i].deviation,
              failure_estimates_[i].mean};
}

double Model::expected_improvement(const Expectation& expectation) const {
  const double gain = archive_.best_log_time() - expectation.mean;
  const double deviation = std::max(expectation.deviation, 1e-9);
  const double z = gain / deviation;
  const double density = std::exp(-z * z / 2) * .3989422804014327;
  const double below = .5 * std::erfc(-z * .7071067811865476);
  return (gain * below + deviation * density) * (1 - expectation.failure);
}

/// From 1 down: over the root of 1 + n for each param, n being the points proposed so far that differ from this one in
/// that param alone. The forest takes what scatters along a param for a chance to improve, but where many of its values
/// were tried, with all else the same, the best of them is seldom beaten by one more.
double Model::novelty(const space::Point& point) const {
  std::vector<unsigned> tried(point.size(), 0);
  for (size_t i = 0; i < archive_.size(); ++i) {
    const space::Point& other = archive_[i].point;
    const auto at = std::mismatch(point.begin(), point.end(), other.begin());
    if (at.first != point.end() && std::equal(at.first + 1, point.end(), at.second + 1))
      ++tried[static_cast<size_t>(at.first - point.begin())];
  }
  double product = 1;
  for (const unsigned count : tried) product *= 1 + count;
  return 1 / std::sqrt(product);
}

std::vector<space::Point> Model::order(std::vector<space::Point> points, size_t most) {
  std::vector<Expectation> expected;
  predict(points, expected);
  struct Scored {
    double score = 0;
    size_t at = 0;
  };
  std::vector<Scored> scored;
  for (size_t i = 0; i < points.size(); ++i) scored.push_back({expected_improvement(expected[i]), i});
  const auto better = [](const Scored& a, const Scored& b) {
    return a.score != b.score ? a.score > b.score : a.at < b.at;
  };
  const auto kept = scored.begin() + static_cast<std::ptrdiff_t>(std::min(4 * most, scored.size()));
  std::partial_sort(scored.begin(), kept, scored.end(), better);
  scored.erase(kept, scored.end());
  for (Scored& one : scored) one.score *= novelty(points[one.at]);
  const size_t trees = times_.trees();
  std::vector<space::Point> chosen;
  while (chosen.size() < most && !scored.empty()) {
    const auto best = std::min_element(scored.begin(), scored.end(), better);
    const Scored taken = *best;
    scored.erase(best);
    const uint32_t* leaves = leaves_.data() + taken.at * trees;
    for (Scored& other : scored) {
      const uint32_t* own = leaves_.data() + other.at * trees;
      size_t shared = 0;
      for (size_t tree = 0; tree < trees; ++tree) shared += own[tree] == leaves[tree];
      other.score *= 1 - static_cast<double>(shared) / static_cast<double>(trees);
    }
    chosen.push_back(std::move(points[taken.at]));
  }
  return chosen;
}

}  // namespace jitune::search
