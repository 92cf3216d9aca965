#include "measure/early_stop.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace jitune::measure {
namespace {

constexpr double kMadToDeviation = 1.4826;  // of a normal distribution
constexpr double kOtherTenant = 2;          // no clock or heat slows a GPU by more from one moment to the next
constexpr double kMaybeNoise = 0.03;        // of the log of a median of a few samples
constexpr double kPromising = 1.05;         // of the best
constexpr size_t kAlike = 3;                // trials that a prediction is made of
constexpr int kNearest = 2;                 // params in which they may differ
constexpr int kFewSamples = 2;

bool is_time(double us) {
  return std::isfinite(us) && us > 0;
}

int distance(const std::vector<int>& a, const std::vector<int>& b) {
  int differing = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) differing += a[i] != b[i];
  return differing;
}

/// What the timed configs most like this one take, or 0 when none is alike. The best of them: a good neighbour is
/// reason enough.
double predicted_us(std::span<const SeenTrial> trials, const SeenTrial& asked) {
  std::vector<std::pair<int, double>> alike;
  for (const SeenTrial& trial : trials) {
    if (trial.stopped || !is_time(trial.time_us)) continue;
    const int apart = distance(trial.values, asked.values);
    if (apart <= kNearest) alike.emplace_back(apart, trial.time_us);
  }
  if (alike.empty()) return 0;
  std::sort(alike.begin(), alike.end());
  if (alike.size() > kAlike) alike.resize(kAlike);
  double best_us = alike.front().second;
  for (const auto& [apart, us] : alike) best_us = std::min(best_us, us);
  return best_us;
}

}  // namespace

double normal_quantile(double tail) {
  double low = 0, high = 40;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(middle / std::sqrt(2.0)) > tail ? low : high) = middle;
  }
  return high;
}

EarlyStop::EarlyStop(Rules rules)
    : rules_(std::move(rules)),
      z_(normal_quantile(rules_.lost_best / (std::max(1.0, rules_.configs) * std::max(1, rules_.looks)))) {}

void EarlyStop::note(std::span<const double> samples_us) {
  std::vector<double> logs;
  for (const double us : samples_us)
    if (is_time(us)) logs.push_back(std::log(us));
  if (logs.empty()) return;
  ++candidates_;
  if (logs.size() < 2) return;
  const auto count = static_cast<double>(logs.size());
  double mean = 0;
  for (const double value : logs) mean += value / count;
  // A deviation from the mean of few has (n-1)/n of the variance of a sample.
  const double scale = std::sqrt(count / (count - 1));
  for (const double value : logs) residuals_.push_back(scale * std::abs(value - mean));
}

double EarlyStop::noise() const {
  if (residuals_.empty()) return kNoiseFloor;
  const auto middle = residuals_.begin() + static_cast<std::ptrdiff_t>(residuals_.size() / 2);
  std::nth_element(residuals_.begin(), middle, residuals_.end());
  return std::max(kNoiseFloor, kMadToDeviation * *middle);
}

std::vector<double> EarlyStop::margins(int best_samples) const {
  if (rules_.fixed.empty() || candidates_ < kCandidatesForNoise) return rules_.fixed;
  const double deviation = noise();
  std::vector<double> margins;
  for (int j = 1; j <= std::max(1, rules_.looks); ++j)
    margins.push_back(std::expm1(z_ * deviation * std::sqrt(1.0 / j + 1.0 / std::max(1, best_samples)) + rules_.drift));
  return margins;
}

void DriftMonitor::set_anchor(double us) {
  if (is_time(us)) anchor_us_ = us / factor_;
}

void DriftMonitor::note(double us) {
  if (!is_time(us) || !has_anchor()) return;
  const double factor = us / anchor_us_;
  if (factor > factor_ * kOtherTenant || factor < factor_ / kOtherTenant) return;
  const double change = std::log(factor / factor_);
  factor_ *= std::exp(std::abs(change) < kMaybeNoise ? change / 2 : change);
  worst_ = std::max(worst_, std::abs(std::log(factor)));
}

std::vector<size_t> second_chances(std::span<const SeenTrial> trials, double best_us, size_t limit) {
  std::vector<std::pair<double, size_t>> promising;
  for (size_t i = 0; i < trials.size(); ++i) {
    if (!trials[i].stopped || trials[i].samples > kFewSamples) continue;
    const double us = predicted_us(trials, trials[i]);
    if (us > 0 && us < kPromising * best_us) promising.emplace_back(us, i);
  }
  std::stable_sort(promising.begin(), promising.end());
  std::vector<size_t> chosen;
  for (const auto& [us, index] : promising)
    if (chosen.size() < limit) chosen.push_back(index);
  return chosen;
}

}  // namespace jitune::measure
