#pragma once

#include <optional>
#include <string>
#include <vector>

namespace jitune::measure::test {

/// The GPUs whose launches are recorded one by one (`*.times.csv.gz`): the usual ones, and the one whose first launches
/// are several times slower for some configs.
const std::vector<std::string>& raced_spaces();
inline constexpr const char* kHardSpace = "conv15m_W6600";

/// What racing cost against seven fixed runs, and how far its choice is from the best of the configs.
struct RaceOutcome {
  size_t rows = 0;        ///< of the recording
  double time_share = 0;  ///< kernel time, as a share of seven runs of each
  double runs = 0;        ///< of a config
  double regret = 0;      ///< as a share of the best time
};

/// The mean of `orders` studies of 400 random configs of one recording (`directory`/`space`.times.csv.gz). Nothing
/// where it cannot be read. Needs gzip.
std::optional<RaceOutcome> race_recorded(const std::string& directory, const std::string& space, int orders = 20);

/// Duels of two configs that truly differ by 1 %, on a GPU that drifts by 5 % while they last, with 1 % noise.
struct DuelOutcome {
  int duels = 0;
  int right = 0;          ///< the faster one is ahead
  int wrong = 0;          ///< the slower one is taken for faster beyond a tie
  int wrong_in_turn = 0;  ///< it would have won if the two had been timed one after the other
  int rounds = 0;         ///< of the longest
};
DuelOutcome drifting_duels(int seeds);

}  // namespace jitune::measure::test
