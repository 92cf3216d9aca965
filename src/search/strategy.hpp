#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "space/space.hpp"

namespace jitune::search {

/// What became of a config, as far as a search cares.
enum class Fate : uint8_t {
  ok,              ///< it ran and was right
  early_stopped,   ///< it ran and was given up as too slow
  skipped,         ///< its resources say that it cannot win: compiled, never run
  compile_failed,  ///< error, timeout or crash of the compiler
  run_failed,      ///< launch error, timeout, crash
  wrong,           ///< wrong result, out of bounds
};

struct Told {
  Fate fate = Fate::ok;
  double time_us = 0;  ///< ok: median; early_stopped: what was seen of it; else not looked at
  double noise = 0;    ///< standard deviation of one sample as a share of the time; 0: not known
};

/// Chooses which configs to try. Pure: no clock, no threads, no CUDA; equal seeds and equal answers in equal order give
/// equal questions. Not thread-safe: one study owns one strategy.
class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual std::string name() const = 0;

  /// At most `count` valid configs that were not proposed before and are not in the `known` ones. Fewer, and in the end
  /// none, when the space is used up. Those not yet told are taken for what is expected of them.
  virtual std::vector<space::Config> ask(size_t count) = 0;

  /// The outcome of a config: one that was asked for, or any other valid one that became known otherwise. Others are
  /// passed over.
  virtual void tell(const space::Config& config, const Told& told) = 0;

  /// How many configs it can propose at most; 0 when not known.
  virtual uint64_t total() const = 0;

  /// Whether it learns from what it is told: then asking far ahead of the answers makes it worse.
  virtual bool adaptive() const = 0;
};

/// What is known of a space from elsewhere: another problem, another device, an earlier source. Never trusted: it
/// orders and informs, each config is measured again.
struct Record {
  std::vector<std::pair<space::Config, double>> times_us;  ///< of configs that ran
  double distance = 0;                                     ///< how far its problem and device are; nearer counts more
};

/// Numbers of a config that are known before it is tried, beside its params: of its launch, of the author's.
struct ConfigNumbers {
  std::vector<std::string> names = {};
  /// Of a valid config, as many as there are names, in their order; NaN where one is not known.
  std::function<std::vector<double>(const space::Config&)> values = {};
};

class XgboostLibrary;

struct StrategyOptions {
  std::string name = "auto";
  uint64_t seed = 1;
  uint64_t trials = 0;                    ///< the budget, where it is known = {}; 0: not
  bool bounded = false;                   ///< by time or by lack of improvement
  std::vector<space::Config> known = {};  ///< never proposed
  std::vector<space::Config> first = {};  ///< proposed first, in this order, whatever the strategy
  std::vector<Record> records = {};       ///< from elsewhere
  /// The author's estimate of a config's time, in any unit; smaller is better. Orders, never excludes.
  std::function<double(const space::Config&)> perf_model = {};
  uint64_t top_k = 0;                       ///< propose the best so many of perf_model before any other
  ConfigNumbers numbers = {};               ///< what models may learn from
  const XgboostLibrary* xgboost = nullptr;  ///< its boosted trees model times instead of forests (xgboost.hpp)
};

/// The names that make_strategy knows: auto, exhaustive, random, hls, annealing, genetic, bayes, coordinate.
const std::vector<std::string>& strategy_names();

/// Fails for an unknown name, and lists the known ones. Building takes up to a second for a large space.
Result<std::unique_ptr<Strategy>> make_strategy(const space::Space& space, const StrategyOptions& options);

/// When a search ends. All zeros: when the space is used up.
struct Budget {
  uint64_t trials = 0;
  double seconds = 0;
  double improvement = 0;  ///< ends when the best improved by less than this share ...
  uint64_t window = 0;     ///< ... within so many trials
};

/// Keeps count of one search against its budget.
class BudgetMeter {
 public:
  explicit BudgetMeter(const Budget& budget) : budget_(budget) {}
  void add(const Told& told);
  /// Why the search is to end now, or "".
  std::string used_up(double elapsed_s) const;
  uint64_t trials() const { return best_after_.size(); }

 private:
  Budget budget_;
  std::vector<double> best_after_;  // the best time after each trial; 0 before any
};

}  // namespace jitune::search
