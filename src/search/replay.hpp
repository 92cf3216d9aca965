#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "search/strategy.hpp"
#include "space/valid_set.hpp"

namespace jitune::search {

/// A space whose configs were all measured before: what a study would have seen of each. It counts the evaluations that
/// are asked of it, refuses what is not its own, and knows the optimum.
class RecordedSpace {
 public:
  struct Row {
    space::Config config;
    Told told;
  };
  RecordedSpace(std::string name, space::Space space, const std::vector<Row>& rows);

  const std::string& name() const { return name_; }
  const space::Space& space() const { return space_; }
  size_t rows() const { return told_.size(); }
  double optimum_us() const { return optimum_us_; }
  size_t count_within(double factor) const;  ///< configs at most `factor` x the optimum
  /// As a record for the transfer to other spaces.
  Record record() const;
  const Told* find(const space::Config& config) const;
  void visit(const std::function<void(const space::Config&, const Told&)>& visit) const {
    for (const auto& [config, told] : told_) visit(config, told);
  }

 private:
  std::string name_;
  space::Space space_;
  std::map<space::Config, Told> told_;
  double optimum_us_ = 0;
};

struct ReplayOptions {
  StrategyOptions strategy;
  bool until_within_5_percent = false;
  uint64_t budget = 200;
  size_t batch = 1;
  double noise = 0;  ///< standard deviation of a log-normal factor on every time that the strategy sees
};

/// One search on a recorded space.
struct ReplayRun {
  std::vector<float> f;  ///< after each evaluation: the optimum over the time of what would be chosen; 0 before any
  uint64_t within_5_percent = 0;  ///< evaluations until then, counted by the space; 0: not reached
  uint64_t wrong_proposals = 0;   ///< invalid ones, and such as were charged before
  double proposal_ms = 0;         ///< mean processor time that the strategy took for each evaluation
  uint64_t trace = 0;             ///< a hash of the proposals in their order
};

ReplayRun replay(const RecordedSpace& recorded, const ReplayOptions& options);

/// Many runs with the seeds `first_seed`, `first_seed` + 1, ... on `threads` threads; equal whatever their number.
std::vector<ReplayRun> replay_seeds(const RecordedSpace& recorded, const ReplayOptions& options, uint64_t first_seed,
                                    size_t seeds, size_t threads);

/// Means and medians over runs.
double mean_f(const std::vector<ReplayRun>& runs, size_t evaluations);
double share_within(const std::vector<ReplayRun>& runs, double f, size_t evaluations);
/// Median evaluations to 5 %; `missing` where half of the runs did not get there.
double median_to_5_percent(const std::vector<ReplayRun>& runs, double missing);

}  // namespace jitune::search
