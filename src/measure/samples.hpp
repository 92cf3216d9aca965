#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace jitune::measure {

/// Summary of samples in microseconds.
struct Summary {
  int samples = 0;
  double min_us = 0, median_us = 0, mean_us = 0, stddev_us = 0, max_us = 0;
};

/// Drops what is not a time (zero, negative, NaN, infinite) and sums up the rest; samples = 0 when nothing is left.
Summary summarise(std::span<const double> samples_us);

/// Whether a config has clearly lost after these samples: even its best one is above the bound by the margin of that
/// many samples (SEARCH.md's rule B: 15, 8, 5, 4 %). Pure; never true without a finite bound.
bool has_lost(std::span<const double> samples_us, double bound_us, std::span<const double> margins);

/// Whether enough samples were taken: at least `min_samples`, and either they agree within 1 % or there are
/// `max_samples`, or they took 150 ms together.
bool is_settled(std::span<const double> samples_us, int min_samples, int max_samples);

/// Takes samples of one config as they come and says when to stop. Pure: the caller tells how much time has passed.
///
/// A GPU that rested has to come up to speed: until two samples in a row agree within 3 %, or 20 ms are spent, the
/// older one is dropped and only a config that is 50 % behind is given up.
class Series {
 public:
  struct Rules {
    int min_samples = 3;
    int max_samples = 7;
    std::span<const double> margins;
    double bound_us = 0;  ///< no bound unless it is a finite time
    double first_us = 0;  ///< the launch before the first sample, if it is known
    bool rested = true;   ///< the GPU idled before
    double settle_limit_ms = 20;
  };
  enum class Next : uint8_t { more, enough, lost, unusable };

  explicit Series(const Rules& rules) : rules_(rules), settled_(!rules.rested), before_us_(rules.first_us) {}

  /// `elapsed_ms` since the first sample began. What is not a time is dropped; more of them than max_samples: unusable.
  Next add(double us, double elapsed_ms);

  const std::vector<double>& samples_us() const { return samples_us_; }

 private:
  Rules rules_;
  bool settled_;
  double before_us_;
  int dropped_ = 0;
  std::vector<double> samples_us_;
};

/// The median over rounds of log(first/second): negative when the first is faster. A round counts where both hold a
/// time; 0 when none does. Drift that both see in a round cancels.
double median_log_ratio(std::span<const double> first_us, std::span<const double> second_us);

/// How two interleaved series compare, by the median over rounds of log(a/b) and its median absolute deviation: a
/// difference below max(tie, 2 x deviation / sqrt(rounds)) is a tie.
enum class Verdict : uint8_t { first, second, tie };
Verdict compare_rounds(std::span<const double> first_us, std::span<const double> second_us, double tie);

/// Chooses among finalists measured interleaved. `default_index` (or -1) is preferred in a tie; then the lowest index,
/// which callers make the canonical order. The winner beats the default by more than a tie or the default is chosen.
/// Returns the chosen index, or -1 when no series holds a sample.
int choose(const std::vector<std::vector<double>>& series_us, int default_index, double tie);

}  // namespace jitune::measure
