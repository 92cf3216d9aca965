#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "search/archive.hpp"
#include "search/forest.hpp"

namespace jitune::search {

/// What is expected of a point.
struct Expectation {
  double mean = 0;       ///< of the log of its time
  double deviation = 0;  ///< how unsure that is
  double failure = 0;    ///< probability that it fails
};

/// A number that is known of any point before it is tried: what records of elsewhere or the author's model say.
using Hint = std::function<double(const space::Point&)>;

/// The surrogate: forests on the log of the time and on failure, over the points' indices and hints. Fitted again every
/// few new points. Failures never enter the regression.
class Model {
 public:
  Model(const Archive& archive, uint64_t seed) : archive_(archive), random_(seed) {}

  /// A further feature. `guarded`: dropped when it does not agree with the times of this search (kill switch).
  void add_hint(Hint hint, bool guarded);
  bool hint_dropped() const { return dropped_; }

  /// Fits again when enough is new. False while there is too little to fit.
  bool refresh();
  void predict(const std::vector<space::Point>& points, std::vector<Expectation>& out);
  double expected_improvement(const Expectation& expectation) const;

  /// Raised by each fit: scores made before are stale.
  uint64_t version() const { return version_; }

 private:
  struct HintFeature {
    Hint hint;
    bool guarded = false;
    std::vector<double> cuts;  // of its values into codes, ascending
  };
  void encode(const space::Point& point, FeatureRows& rows) const;
  void check_hints();
  void set_cuts(HintFeature& feature);

  const Archive& archive_;
  Random random_;
  std::vector<HintFeature> hints_;
  Forest times_, failures_;
  double centre_ = 0;
  size_t fitted_at_ = 0;
  uint64_t version_ = 0;
  bool dropped_ = false, checked_ = false;
  FeatureRows scratch_;
  std::vector<Estimate> time_estimates_, failure_estimates_;
};

/// Spearman's rank correlation of two series of equal length; 0 for fewer than three.
double rank_correlation(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace jitune::search
