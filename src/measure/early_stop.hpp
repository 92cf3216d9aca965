#pragma once

#include <span>
#include <vector>

namespace jitune::measure {

/// z with P(standard normal > z) = tail, for 0 < tail <= 0.5.
double normal_quantile(double tail);

/// How far behind the best a config may be, after each sample, before it is given up. Pure; one for each study.
///
/// While fewer than 20 candidates are known, fixed margins (SEARCH.md's rule B: 15, 8, 5, 4 %). Then, for the best of j
/// samples against a best median of n samples, z * s * sqrt(1/j + 1/n) + d: s is the robust deviation of this study's
/// own log samples (floor 0.5 %), d an allowance for drift and for noise that does not average out, z such that over
/// all looks at all configs the true best is given up with less than the stated probability. The minimum of a series
/// eliminates (a config goes only if even its best sample is far off), the median ranks.
class EarlyStop {
 public:
  struct Rules {
    std::vector<double> fixed{0.15, 0.08, 0.05, 0.04};  ///< after sample 1, 2, ...; the last one holds on; empty: never
    double lost_best = 0.05;                            ///< stated probability that the true best is given up
    double drift = 0.02;                                ///< d, as a log ratio; DriftMonitor keeps the rest away
    int looks = 7;                                      ///< most samples of a config
    double configs = 400;                               ///< candidates that the probability is shared among
  };
  static constexpr int kCandidatesForNoise = 20;
  static constexpr double kNoiseFloor = 0.005;

  explicit EarlyStop(Rules rules);

  /// Takes a config's ranking samples into the noise. Those of one sample say nothing of it.
  void note(std::span<const double> samples_us);

  /// s: robust standard deviation of log samples, kNoiseFloor at least.
  double noise() const;
  int candidates() const { return candidates_; }
  double z() const { return z_; }

  /// Margins after sample 1, 2, ..., looks, against a best median of `best_samples` samples.
  std::vector<double> margins(int best_samples) const;

 private:
  Rules rules_;
  double z_;
  int candidates_ = 0;
  mutable std::vector<double> residuals_;  // |log residual|, each with the variance of one sample
};

/// Follows the GPU's speed through a study by timing one config, the anchor, again and again. Times divided by
/// factor() are comparable over the study. Pure.
class DriftMonitor {
 public:
  static constexpr double kEveryMs = 1000;  ///< of measuring
  static constexpr int kEveryTrials = 25;

  /// Whether the anchor should be timed again, after so much measuring and so many trials since it was last.
  static bool due(double measured_ms, int trials) { return measured_ms >= kEveryMs || trials >= kEveryTrials; }

  /// `us` at speed factor() now becomes what later times of the anchor are compared with.
  void set_anchor(double us);
  bool has_anchor() const { return anchor_us_ > 0; }

  /// The anchor's time now. Ratios beyond 2 are another tenant's work rather than the GPU's speed and are left out; of
  /// a change below 3 % half is believed at once, as a median of a few samples may be off by as much.
  void note(double us);

  double factor() const { return factor_; }  ///< now / at the study's start; above 1: the GPU became slower
  double worst() const { return worst_; }    ///< largest |log factor| seen

 private:
  double anchor_us_ = 0;  // at factor 1
  double factor_ = 1;
  double worst_ = 0;
};

/// A config that was given up, or one that was timed, as the second chance sees it.
struct SeenTrial {
  std::vector<int> values;  ///< one place for each param: which value it has
  int samples = 0;
  double time_us = 0;  ///< median; for a given-up one, its best sample
  bool stopped = false;
};

/// Which trials deserve to be measured once more: given up after at most two samples, though the configs most like them
/// are within 5 % of the best (first launches can be several times slower where nothing is wrong with the config). At
/// most `limit` indices, the most promising first. Pure.
std::vector<size_t> second_chances(std::span<const SeenTrial> trials, double best_us, size_t limit);

}  // namespace jitune::measure
