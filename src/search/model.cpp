#include "search/model.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace jitune::search {
namespace {

constexpr size_t kFewest = 4;           // timed points before a model says anything
constexpr size_t kCheckHintsAt = 20;    // timed points at which a hint must have proved itself
constexpr double kLeastAgreement = .3;  // rank correlation that a hint needs to stay
constexpr size_t kHintLevels = 48;

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

void Model::add_hint(Hint hint, bool guarded) {
  hints_.push_back({std::move(hint), guarded, {}});
  set_cuts(hints_.back());
}

/// Cuts at equal shares of what some random points give.
void Model::set_cuts(HintFeature& feature) {
  constexpr int kDraws = 400;
  std::vector<double> values;
  Random random(1);
  for (int i = 0; i < kDraws; ++i)
    if (const auto point = archive_.valid().sample(random)) values.push_back(feature.hint(*point));
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  for (size_t i = 1; i < kHintLevels && values.size() > 1; ++i) {
    const double cut = values[i * (values.size() - 1) / kHintLevels];
    if (feature.cuts.empty() || cut > feature.cuts.back()) feature.cuts.push_back(cut);
  }
}

void Model::encode(const space::Point& point, FeatureRows& rows) const {
  for (size_t i = 0; i < point.size(); ++i) {
    const int width = archive_.valid().width(i);
    if (width <= 1) continue;
    rows.codes.push_back(static_cast<uint8_t>(width <= 256 ? point[i] : point[i] * 255 / (width - 1)));
  }
  for (const HintFeature& feature : hints_) {
    const auto at = std::upper_bound(feature.cuts.begin(), feature.cuts.end(), feature.hint(point));
    rows.codes.push_back(static_cast<uint8_t>(at - feature.cuts.begin()));
  }
}

/// Drops guarded hints that the first measurements contradict.
void Model::check_hints() {
  checked_ = true;
  for (size_t i = 0; i < hints_.size();) {
    std::vector<double> hinted, seen;
    for (const size_t index : archive_.order_told()) {
      if (archive_[index].state != Sample::State::timed) continue;
      hinted.push_back(hints_[i].hint(archive_[index].point));
      seen.push_back(archive_[index].log_time);
    }
    if (hints_[i].guarded && rank_correlation(hinted, seen) < kLeastAgreement) {
      hints_.erase(hints_.begin() + static_cast<std::ptrdiff_t>(i));
      dropped_ = true;
    } else {
      ++i;
    }
  }
}

bool Model::refresh() {
  const size_t told = archive_.told();
  const size_t timed = told - archive_.failures();
  if (timed < kFewest) return false;
  if (!checked_ && timed >= kCheckHintsAt && !hints_.empty()) {
    check_hints();
    if (dropped_) fitted_at_ = 0;
  }
  if (fitted_at_ != 0 && told < fitted_at_ + 2 + told / 60) return true;
  fitted_at_ = told;
  ++version_;
  FeatureRows rows, all;
  std::vector<float> times, failed;
  centre_ = archive_.best() ? archive_.best_log_time() : 0;
  for (const size_t index : archive_.order_told()) {
    const Sample& sample = archive_[index];
    const size_t before = all.codes.size();
    encode(sample.point, all);
    all.features = rows.features = all.codes.size() - before;
    failed.push_back(sample.state == Sample::State::failed ? 1.0F : 0.0F);
    if (sample.state != Sample::State::timed) continue;
    rows.codes.insert(rows.codes.end(), all.codes.begin() + static_cast<std::ptrdiff_t>(before), all.codes.end());
    times.push_back(static_cast<float>(sample.log_time - centre_));
  }
  times_.fit(rows, times, {20, .8, 1}, random_);
  if (archive_.failures() > 0) failures_.fit(all, failed, {8, .8, 1}, random_);
  return true;
}

void Model::predict(const std::vector<space::Point>& points, std::vector<Expectation>& out) {
  scratch_.codes.clear();
  scratch_.features = 0;
  for (const space::Point& point : points) {
    encode(point, scratch_);
    if (scratch_.features == 0) scratch_.features = scratch_.codes.size();
  }
  out.assign(points.size(), {});
  if (scratch_.features == 0) return;
  times_.predict(scratch_, time_estimates_);
  failures_.predict(scratch_, failure_estimates_);
  for (size_t i = 0; i < points.size(); ++i)
    out[i] = {centre_ + time_estimates_[i].mean, time_estimates_[i].deviation, failure_estimates_[i].mean};
}

double Model::expected_improvement(const Expectation& expectation) const {
  const double gain = archive_.best_log_time() - expectation.mean;
  const double deviation = std::max(expectation.deviation, 1e-9);
  const double z = gain / deviation;
  const double density = std::exp(-z * z / 2) * .3989422804014327;
  const double below = .5 * std::erfc(-z * .7071067811865476);
  return (gain * below + deviation * density) * (1 - expectation.failure);
}

}  // namespace jitune::search
