#include "measure/samples.hpp"

#include <algorithm>
#include <cmath>

namespace jitune::measure {
namespace {

constexpr double kAgreement = 0.01;       // samples this close need no more of their kind
constexpr double kEnoughUs = 150'000.0;   // so long a series has averaged out what a short one could not
constexpr double kSpeedAgreement = 0.03;  // a GPU whose samples differ by less is up to speed
constexpr double kUpToSpeed = 0.9;        // of the busy clock
constexpr double kWarmUpMs = 20;
constexpr double kFalling = 0.08;      // more than the first launch of a config costs where nothing is wrong
constexpr double kForeignSlice = 1.3;  // x the shortest sample
constexpr size_t kFewest = 2;          // samples that stay
constexpr double kFarBehind = 0.5;     // no clock is so low after a rest that this could be its doing

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

}  // namespace

void drop_foreign_slices(std::vector<double>& samples_us) {
  std::vector<double> sorted = times(samples_us);
  if (sorted.size() <= kFewest) return;
  std::sort(sorted.begin(), sorted.end());
  const double most = std::max(sorted.front() * kForeignSlice, sorted[kFewest - 1]);
  std::erase_if(samples_us, [&](double us) { return us > most; });
}

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

void ClockGate::note_busy(int mhz) {
  busy_mhz_ = std::max(busy_mhz_, mhz);
}

bool ClockGate::open(int mhz, double waited_ms) {
  if (mhz <= 0 || busy_mhz_ <= 0 || mhz >= kUpToSpeed * busy_mhz_) return true;
  if (waited_ms < kWarmUpMs) return false;
  busy_mhz_ = mhz;
  return true;
}

Series::Next Series::add(double us, double elapsed_ms) {
  if (!is_time(us)) {
    if (++dropped_ <= rules_.max_samples) return Next::more;
    stop_ = "unusable";
    return Next::unusable;
  }
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
  if (has_lost(samples_us_, rules_.bound_us, settled_ ? rules_.margins : far_behind)) {
    stop_ = "lost";
    return Next::lost;
  }
  const bool late = elapsed_ms > rules_.wall_limit_ms;
  if (!late && !(settled_ && is_settled(samples_us_, rules_.min_samples, rules_.max_samples))) return Next::more;
  const auto [low, high] = std::minmax_element(samples_us_.begin(), samples_us_.end());
  const bool agree = static_cast<int>(samples_us_.size()) >= rules_.min_samples && (*high - *low) / *low <= kAgreement;
  stop_ = agree ? "agreed" : static_cast<int>(samples_us_.size()) >= rules_.max_samples ? "count" : "time";
  return Next::enough;
}

}  // namespace jitune::measure
