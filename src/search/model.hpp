#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "search/archive.hpp"
#include "search/features.hpp"
#include "search/forest.hpp"
#include "search/xgboost.hpp"

namespace jitune::search {

/// What is expected of a point.
struct Expectation {
  double mean = 0;       ///< of the log of its time
  double deviation = 0;  ///< how unsure that is
  double failure = 0;    ///< probability that it fails
};

/// A guess at any point's time before it is tried, as a standard score: what a record of elsewhere or the author's
/// model says.
using Hint = std::function<double(const space::Point&)>;

/// The surrogate: forests on the log of the time and on failure. Fitted again every few new points. Failures never
/// enter the regression. Hints are weighed by how well they agree with this search's own times; the forest learns what
/// they leave unexplained, and those that do not agree are dropped.
class Model {
 public:
  Model(const Archive& archive, uint64_t seed, const ConfigNumbers& numbers = {})
      : archive_(archive), features_(archive.valid(), numbers), random_(seed) {}

  /// From now on times are modelled by boosted trees, failures by forests as before.
  void use(const XgboostLibrary& xgboost) { boosted_ = std::make_unique<BoostedTrees>(xgboost); }

  /// `weight` is relative to that of other hints.
  void add_hint(Hint hint, double weight = 1);
  bool has_hints() const { return !hints_.empty(); }

  /// The hints together; lower is faster. Only where has_hints().
  double hinted(const space::Point& point) const;

  /// Fits again when enough is new. False while there is too little to fit.
  bool refresh();
  void predict(const std::vector<space::Point>& points, std::vector<Expectation>& out);
  double expected_improvement(const Expectation& expectation) const;

  /// The points of a list in the order in which they are worth trying, best first, at most `most`: by expected
  /// improvement times novelty(), each lowered by how much those before it are going to say of it (the share of trees
  /// that put both in one leaf). So neither are params that hardly matter tried value by value, nor the same thing over
  /// and over before answers come.
  std::vector<space::Point> order(std::vector<space::Point> points, size_t most);

  /// Raised by each fit: scores made before are stale.
  uint64_t version() const { return version_; }

 private:
  struct Weighed {
    Hint hint;
    double weight = 1;
    double trust = 1;  // the weight, by how well it agreed
  };
  double novelty(const space::Point& point) const;
  void append_features(const space::Point& point, double hinted, FeatureRows& rows) const;
  void weigh_hints();
  void fit_slope(const std::vector<float>& times, const std::vector<double>& hinted);

  const Archive& archive_;
  Features features_;
  Random random_;
  std::vector<Weighed> hints_;
  Forest times_, failures_;
  std::unique_ptr<BoostedTrees> boosted_;  // null: forests alone
  double centre_ = 0;
  double slope_ = 0;  // of the log of the time over what is hinted
  size_t fitted_at_ = 0;
  uint64_t version_ = 0;
  bool settled_ = false;  // the hints' trust is final
  FeatureRows scratch_;
  std::vector<uint32_t> leaves_;
  std::vector<Estimate> time_estimates_, failure_estimates_;
};

/// Spearman's rank correlation of two series of equal length; 0 for fewer than three.
double rank_correlation(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace jitune::search
