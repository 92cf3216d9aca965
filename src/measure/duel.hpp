#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace jitune::measure {

/// The median over rounds of log(first/second): negative when the first is faster. A round counts where both hold a
/// time; 0 when none does. Drift that both see in a round cancels.
double median_log_ratio(std::span<const double> first_us, std::span<const double> second_us);

/// How two interleaved series compare, by the median over rounds of log(a/b) and its median absolute deviation: a
/// difference below max(tie, 2 x deviation / sqrt(rounds)) is a tie.
enum class Verdict : uint8_t { first, second, tie };
Verdict compare_rounds(std::span<const double> first_us, std::span<const double> second_us, double tie);

/// Chooses among finalists measured interleaved. `default_index` (or -1) is preferred in a tie: the winner beats the
/// default by more than a tie or the default is chosen. Of the others the fastest wins; the lowest index, which callers
/// make the canonical order, where two differ by less than a quarter of a tie or than their own error.
/// Returns the chosen index, or -1 when no series holds a sample.
int choose(const std::vector<std::vector<double>>& series_us, int default_index, double tie);

/// Finalists are the best configs within kFinalistMargin of the fastest, kMostFinalists at most, and of the best
/// kFewFinalists also those within kWideMargin: some GPU's first launches make a config look faster than it will ever
/// be again, and by a margin alone the true best then does not compete (recorded launches of gemm on a 2080 Ti: 2 %
/// slower in the mean). In simulated studies with noise of 2 %, drift, or a kernel that takes one of two times (as on
/// an H200, 2.4 % apart), 3 % and 8 finalists kept a config that was more than 1 % behind in up to 7 % of the studies,
/// these in up to 4 %. Losers leave early, so that more cost little.
constexpr double kFinalistMargin = 1.05;
constexpr size_t kMostFinalists = 12;
constexpr double kWideMargin = 1.15;
constexpr size_t kFewFinalists = 6;

/// Of configs that were timed one after the other, which compete in a rematch: indices, the fastest first.
std::vector<size_t> choose_finalists(std::span<const double> times_us);

/// Finalists against each other, round by round: each round holds one sample of every finalist that is still in, taken
/// in random order, and a second one of the round's first. Says when to stop. Pure.
///
/// A round counts as a whole or not at all. It does not when an SM clock in it is below 90 % of the round's median
/// (throttling), or when its first finalist took another time at its end than at its beginning by more than 3 % and
/// three times what is usual (drift, another tenant): then the round is to be repeated. At most `most_discards` are.
/// A finalist leaves when it lost to the leader in 8 of 8 rounds and by more than a tie beyond doubt (2.5 standard
/// errors). It is over when more rounds would not change what choose() says, beyond doubt: the default config ties with
/// the leader or does not; each other finalist is slower than what choose() takes for alike, or is so little slower
/// (half a tie) that either may win. At `most_rounds` at the latest.
class Duel {
 public:
  struct Rules {
    int fewest_rounds = 8;
    int most_rounds = 15;
    int most_discards = 10;
    double tie = 0.01;
    int default_index = -1;  ///< the default config's; -1: none
  };
  Duel(size_t finalists, const Rules& rules);

  bool is_in(size_t finalist) const { return in_[finalist]; }
  bool is_over() const { return over_; }

  /// One round: a sample and an SM clock (0: unknown) of each finalist, those that left are not looked at; `first` is
  /// who was timed first and `first_again_us` its second time (0: not taken). False: the round does not count.
  bool add(std::span<const double> samples_us, std::span<const int> clocks_mhz, size_t first, double first_again_us);

  /// By finalist, by round; shorter for those that left.
  const std::vector<std::vector<double>>& samples_us() const { return samples_us_; }
  int rounds() const { return rounds_; }
  int discarded() const { return discarded_; }

 private:
  bool is_disturbed(std::span<const int> clocks_mhz, double first_us, double first_again_us);
  size_t leader() const;
  bool is_settled(size_t finalist, size_t leader, double low, double high) const;
  void decide();

  Rules rules_;
  std::vector<bool> in_;
  std::vector<std::vector<double>> samples_us_;
  std::vector<double> returns_;  // |log(second time / first time)| of rounds that count
  int rounds_ = 0;
  int discarded_ = 0;
  bool over_ = false;
};

}  // namespace jitune::measure
