#include "measure/duel.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "measure/samples.hpp"

namespace jitune::measure {
namespace {

// Of a tie. Two configs that differ by about a tie would win in turn if all within a tie of the fastest could: the
// place where the choice flips must lie well inside of what counts as equally good.
constexpr double kAlikeShare = 0.25;
constexpr double kErrorFactor = 2.0;     // joint error = this x MAD / sqrt(rounds), about one error of the median
constexpr double kBeyondDoubt = 2.5;     // standard errors: it is looked at after each round
constexpr double kEitherShare = 0.5;     // of a tie: whichever of two so close wins, the other is as good
constexpr size_t kSignRounds = 8;        // all of them alike by chance: 2 x 2^-8
constexpr double kThrottled = 0.9;       // of the round's median clock
constexpr double kReturnAllowed = 0.03;  // between two times of one config within a round
constexpr double kReturnFactor = 3;      // of the usual difference, where the kernel itself is noisy

bool is_time(double us) {
  return std::isfinite(us) && us > 0;
}

double median(std::vector<double> values) {
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(middle), values.end());
  const double upper = values[middle];
  if (values.size() % 2 == 1) return upper;
  return (*std::max_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(middle)) + upper) / 2;
}

std::vector<double> log_ratios(std::span<const double> first_us, std::span<const double> second_us) {
  std::vector<double> logs;
  for (size_t round = 0; round < std::min(first_us.size(), second_us.size()); ++round)
    if (is_time(first_us[round]) && is_time(second_us[round]))
      logs.push_back(std::log(first_us[round] / second_us[round]));
  return logs;
}

/// log(a/b) of two series compared round by round.
struct Difference {
  double log_ratio = 0;
  double joint_error = 0;
  double low = 0, high = 0;  // the log ratio lies between them beyond doubt
};

std::optional<Difference> difference(std::span<const double> first_us, std::span<const double> second_us) {
  std::vector<double> logs = log_ratios(first_us, second_us);
  if (logs.empty()) return std::nullopt;
  Difference result;
  const double rounds = static_cast<double>(logs.size());
  result.log_ratio = median(logs);
  // By ranks, as in a sign test: it holds too where a kernel takes one of two times, whose deviation says little.
  std::sort(logs.begin(), logs.end());
  const auto rank = static_cast<size_t>(std::max(0.0, rounds / 2 - kBeyondDoubt * std::sqrt(rounds) / 2));
  result.low = logs[rank];
  result.high = logs[logs.size() - 1 - rank];
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

double median_log_ratio(std::span<const double> first_us, std::span<const double> second_us) {
  const auto found = difference(first_us, second_us);
  return found ? found->log_ratio : 0;
}

Verdict compare_rounds(std::span<const double> first_us, std::span<const double> second_us, double tie) {
  const int sign = order(first_us, second_us, tie);
  return sign < 0 ? Verdict::first : sign > 0 ? Verdict::second : Verdict::tie;
}

int choose(const std::vector<std::vector<double>>& series_us, int default_index, double tie) {
  // The fastest by median first. The default takes its place in a tie, others only where the two can't be told apart:
  // then the lowest index.
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
  const auto is_within = [&](size_t i, double margin) {
    return summarise(series_us[i]).samples > 0 && order(series_us[i], best, margin) <= 0;
  };
  const bool has_default = default_index >= 0 && static_cast<size_t>(default_index) < series_us.size() &&
                           summarise(series_us[static_cast<size_t>(default_index)]).samples > 0;
  if (has_default && is_within(static_cast<size_t>(default_index), tie)) return default_index;
  for (size_t i = 0; i < series_us.size(); ++i) {
    if (!is_within(i, tie * kAlikeShare)) continue;
    // To be like the fastest is not yet a win over the default.
    if (!has_default || order(series_us[i], series_us[static_cast<size_t>(default_index)], tie) < 0)
      return static_cast<int>(i);
  }
  return fastest;
}

std::vector<size_t> choose_finalists(std::span<const double> times_us) {
  std::vector<size_t> chosen(times_us.size());
  std::iota(chosen.begin(), chosen.end(), size_t{0});
  std::stable_sort(chosen.begin(), chosen.end(), [&](size_t a, size_t b) { return times_us[a] < times_us[b]; });
  if (chosen.size() > kMostFinalists) chosen.resize(kMostFinalists);
  const auto is_far = [&](size_t place) {
    const double margin = place < kFewFinalists ? kWideMargin : kFinalistMargin;
    return times_us[chosen[place]] > times_us[chosen.front()] * margin;
  };
  while (!chosen.empty() && is_far(chosen.size() - 1)) chosen.pop_back();
  return chosen;
}

Duel::Duel(size_t finalists, const Rules& rules)
    : rules_(rules), in_(finalists, true), samples_us_(finalists), over_(finalists == 0) {}

bool Duel::is_disturbed(std::span<const int> clocks_mhz, double first_us, double first_again_us) {
  std::vector<double> clocks;
  for (size_t i = 0; i < std::min(clocks_mhz.size(), in_.size()); ++i)
    if (in_[i] && clocks_mhz[i] > 0) clocks.push_back(clocks_mhz[i]);
  if (clocks.size() > 1 && *std::min_element(clocks.begin(), clocks.end()) < kThrottled * median(clocks)) return true;
  if (!is_time(first_us) || !is_time(first_again_us)) return false;
  const double change = std::abs(std::log(first_again_us / first_us));
  const double usual = returns_.size() < 3 ? 0 : median(returns_);
  if (change > std::max(kReturnAllowed, kReturnFactor * usual)) return true;
  returns_.push_back(change);
  return false;
}

bool Duel::add(std::span<const double> samples_us, std::span<const int> clocks_mhz, size_t first,
               double first_again_us) {
  const double first_us = first < samples_us.size() ? samples_us[first] : 0;
  if (discarded_ < rules_.most_discards && is_disturbed(clocks_mhz, first_us, first_again_us)) {
    // What keeps happening is usual here: its size is learned from the rounds that it spoils too.
    if (is_time(first_us) && is_time(first_again_us)) returns_.push_back(std::abs(std::log(first_again_us / first_us)));
    ++discarded_;
    return false;
  }
  for (size_t i = 0; i < in_.size(); ++i)
    if (in_[i]) samples_us_[i].push_back(i < samples_us.size() ? samples_us[i] : 0);
  ++rounds_;
  decide();
  return true;
}

size_t Duel::leader() const {
  size_t best = 0;
  double best_us = 0;
  for (size_t i = 0; i < in_.size(); ++i) {
    const double us = in_[i] ? summarise(samples_us_[i]).median_us : 0;
    if (us > 0 && (best_us <= 0 || us < best_us)) {
      best = i;
      best_us = us;
    }
  }
  return best;
}

void Duel::decide() {
  if (rounds_ >= rules_.most_rounds) over_ = true;
  if (over_ || rounds_ < rules_.fewest_rounds) return;
  const size_t best = leader();
  const double tie = std::log1p(rules_.tie);
  bool settled = true;
  for (size_t i = 0; i < in_.size(); ++i) {
    if (i == best || !in_[i]) continue;
    const auto found = difference(samples_us_[i], samples_us_[best]);
    if (!found) continue;
    const std::vector<double> logs = log_ratios(samples_us_[i], samples_us_[best]);
    const bool always =
        logs.size() >= kSignRounds && std::all_of(logs.end() - static_cast<std::ptrdiff_t>(kSignRounds), logs.end(),
                                                  [](double log_ratio) { return log_ratio > 0; });
    if (always && found->low > tie)
      in_[i] = false;
    else
      settled &= is_settled(i, best, found->low, found->high);
  }
  over_ = settled;
}

/// Whether more rounds could not change what becomes of a finalist whose log ratio to the leader lies in [low, high].
bool Duel::is_settled(size_t finalist, size_t leader, double low, double high) const {
  const double tie = std::log1p(rules_.tie);
  const auto is_default = [&](size_t i) { return static_cast<int>(i) == rules_.default_index; };
  if (is_default(leader)) return low > -tie;
  if (is_default(finalist)) return low > tie || high < tie;
  return low > tie * kAlikeShare || high < tie * kEitherShare;
}

}  // namespace jitune::measure
