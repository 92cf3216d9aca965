#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "search/replay.hpp"

/// Recorded spaces, and searches replayed on them with seeds 1, 2, ...; those that several rows need are made once.
class AcceptanceRuns {
 public:
  using Space = jitune::search::RecordedSpace;
  using Run = jitune::search::ReplayRun;
  using Options = jitune::search::ReplayOptions;

  /// Reads all replay-csv-1 files of a directory and prints their hashes. Ends the program where one is no recording.
  AcceptanceRuns(const std::string& directory, size_t seeds, size_t threads);

  const std::vector<Space>& spaces() const { return spaces_; }
  std::vector<const Space*> large() const;  ///< those with a share in the means
  /// The first whose name begins like this; nothing where there is none.
  const Space* find(const std::string& start) const;

  std::vector<Run> make(const Space& space, const Options& options);
  const std::vector<Run>& standard(const Space& space);  ///< the default strategy, 400 evaluations
  const std::vector<Run>& random(const Space& space);    ///< random draws, 400 evaluations

  double mean_over_large(const std::function<double(const Space&)>& value) const;
  /// The geometric mean over the large spaces of evaluations to 5 %, against those of `standard`.
  double evaluations_against_standard(const std::function<Options(const Space&)>& options);

  size_t made() const { return made_; }
  size_t wrong_proposals() const { return wrong_; }

 private:
  size_t seeds_, threads_;
  std::vector<Space> spaces_;
  std::map<std::string, std::vector<Run>> standard_, random_;
  size_t made_ = 0, wrong_ = 0;
};

AcceptanceRuns::Options replay_with(const char* strategy, uint64_t budget, size_t batch = 1, double noise = 0);

/// Mean evaluations to 5 %, runs that did not get there counted with the budget.
double mean_to_5_percent(const std::vector<AcceptanceRuns::Run>& runs, double budget);
