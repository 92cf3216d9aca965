#include "measure/samples.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

namespace jitune::measure {
namespace {

constexpr double kAgreement = 0.01;       // samples this close need no more of their kind
constexpr double kEnoughUs = 150'000.0;   // so long a series has averaged out what a short one could not
constexpr double kSpeedAgreement = 0.03;  // a GPU whose samples differ by less is up to speed
constexpr double kFalling = 0.08;         // more than the first launch of a config costs where nothing is wrong
constexpr double kFarBehind = 0.5;        // no clock is so low after a rest that this could be its doing
constexpr double kErrorFactor = 2.0;      // joint error = this x MAD / sqrt(rounds), about one error of the median

bool is_time(double us) {
  return std::isfinite(us) && us > 0;
}

std::vector<double> times(std::span<const double> samples_us) {
  std::vector<double> kept;
  std::copy_if(samples_us.begin(), samples_us.end(), std::back_inserter(kept), is_time);
  return kept;
}

/// The middle value, or the mean of the two middle ones. `values` must not be empty; its order changes.
double median(std::vector<double>& values) {
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(middle), values.end());
  const double upper = values[middle];
  if (values.size() % 2 == 1) return upper;
  return (*std::max_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(middle)) + upper) / 2;
}

/// log(a/b) of two series compared round by round.
struct Difference {
  double log_ratio = 0;
  double joint_error = 0;
};

std::optional<Difference> difference(std::span<const double> first_us, std::span<const double> second_us) {
  std::vector<double> logs;
  for (size_t round = 0; round < std::min(first_us.size(), second_us.size()); ++round)
    if (is_time(first_us[round]) && is_time(second_us[round]))
      logs.push_back(std::log(first_us[round] / second_us[round]));
  if (logs.empty()) return std::nullopt;
  Difference result;
  const double rounds = static_cast<double>(logs.size());
  result.log_ratio = median(logs);
  for (double& value : logs) value = std::abs(value - result.log_ratio);
  result.joint_error = kErrorFactor * median(logs) / std::sqrt(rounds);
  return result;
}

/// Negative: the first is faster by more than a tie; positive: the second is; 0: a tie.
int order(std::span<const double> first_us, std::span<const double> second_us, double tie) {
  const auto found = difference(first_us, second_us);
  if (!found) return 0;
  if (std::abs(found->log_ratio) <= std::max(std::log1p(tie), found->joint_error)) return 0;
  return found->log_ratio < 0 ? -1 : 1;
}

}  // namespace

Summary summarise(std::span<const double> samples_us) {
  std::vector<double> kept = times(samples_us);
  Summary summary;
  if (kept.empty()) return summary;
  summary.samples = static_cast<int>(kept.size());
  const auto [low, high] = std::minmax_element(kept.begin(), kept.end());
  summary.min_us = *low;
  summary.max_us = *high;
  double sum = 0;
  for (const double us : kept) sum += us;
  const double count = static_cast<double>(kept.size());
  summary.mean_us = sum / count;
  double squares = 0;
  for (const double us : kept) squares += (us - summary.mean_us) * (us - summary.mean_us);
  summary.stddev_us = kept.size() > 1 ? std::sqrt(squares / (count - 1)) : 0;
  summary.median_us = median(kept);
  return summary;
}

bool has_lost(std::span<const double> samples_us, double bound_us, std::span<const double> margins) {
  if (!is_time(bound_us) || margins.empty()) return false;
  const std::vector<double> kept = times(samples_us);
  if (kept.empty()) return false;
  const double margin = margins[std::min(kept.size(), margins.size()) - 1];
  return *std::min_element(kept.begin(), kept.end()) > bound_us * (1 + margin);
}

bool is_settled(std::span<const double> samples_us, int min_samples, int max_samples) {
  const std::vector<double> kept = times(samples_us);
  const int count = static_cast<int>(kept.size());
  if (count < std::max(1, min_samples)) return false;
  if (count >= max_samples) return true;
  double sum_us = 0;
  for (const double us : kept) sum_us += us;
  const auto [low, high] = std::minmax_element(kept.begin(), kept.end());
  return (*high - *low) / *low <= kAgreement || sum_us > kEnoughUs;
}

Series::Next Series::add(double us, double elapsed_ms) {
  if (!is_time(us)) return ++dropped_ > rules_.max_samples ? Next::unusable : Next::more;
  const bool falling = is_time(before_us_) && us < before_us_ * (1 - kFalling);
  if (!settled_ && !samples_us_.empty()) {
    settled_ = std::abs(us - before_us_) <= kSpeedAgreement * std::min(us, before_us_);
    if (!settled_) samples_us_.clear();
  }
  if (falling) samples_us_.clear();
  settled_ = settled_ || elapsed_ms > rules_.settle_limit_ms;
  before_us_ = us;
  samples_us_.push_back(us);
  if (falling) return Next::more;
  const std::span<const double> far_behind(&kFarBehind, 1);
  if (has_lost(samples_us_, rules_.bound_us, settled_ ? rules_.margins : far_behind)) return Next::lost;
  return settled_ && is_settled(samples_us_, rules_.min_samples, rules_.max_samples) ? Next::enough : Next::more;
}

double median_log_ratio(std::span<const double> first_us, std::span<const double> second_us) {
  const auto found = difference(first_us, second_us);
  return found ? found->log_ratio : 0;
}

Verdict compare_rounds(std::span<const double> first_us, std::span<const double> second_us, double tie) {
  const int sign = order(first_us, second_us, tie);
  return sign < 0 ? Verdict::first : sign > 0 ? Verdict::second : Verdict::tie;
}

int choose(const std::vector<std::vector<double>>& series_us, int default_index, double tie) {
  // The fastest by median first; who ties with it may take its place, the default before all, then the lowest index.
  int fastest = -1;
  double fastest_us = 0;
  for (size_t i = 0; i < series_us.size(); ++i) {
    const Summary summary = summarise(series_us[i]);
    if (summary.samples == 0) continue;
    if (fastest < 0 || summary.median_us < fastest_us) {
      fastest = static_cast<int>(i);
      fastest_us = summary.median_us;
    }
  }
  if (fastest < 0) return -1;
  const auto& best = series_us[static_cast<size_t>(fastest)];
  const auto ties = [&](size_t i) {
    return summarise(series_us[i]).samples > 0 && order(series_us[i], best, tie) <= 0;
  };
  if (default_index >= 0 && static_cast<size_t>(default_index) < series_us.size() &&
      ties(static_cast<size_t>(default_index)))
    return default_index;
  for (size_t i = 0; i < series_us.size(); ++i) {
    if (!ties(i)) continue;
    if (default_index < 0 || static_cast<size_t>(default_index) >= series_us.size() ||
        summarise(series_us[static_cast<size_t>(default_index)]).samples == 0)
      return static_cast<int>(i);
    // A tie with the fastest is not yet a win over the default.
    if (order(series_us[i], series_us[static_cast<size_t>(default_index)], tie) < 0) return static_cast<int>(i);
  }
  return fastest;
}

}  // namespace jitune::measure
