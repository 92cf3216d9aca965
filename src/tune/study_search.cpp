#include <algorithm>
#include <utility>

#include "tune/external_strategy.hpp"
#include "tune/records.hpp"
#include "tune/study.hpp"

namespace jitune::tune {

search::Told told_of(const store::TrialRow& row) {
  using search::Fate;
  search::Told told;
  told.time_us = row.median_us;
  told.noise = row.mean_us > 0 ? row.stddev_us / row.mean_us : 0;
  const std::string& word = row.status;
  if (word == "ok")
    told.fate = Fate::ok;
  else if (word == "early_stopped")
    told.fate = Fate::early_stopped;
  else if (word == "skipped")
    told.fate = Fate::skipped;
  else if (word.starts_with("compile"))
    told.fate = Fate::compile_failed;
  else if (word == "wrong_result" || word == "out_of_bounds")
    told.fate = Fate::wrong;
  else
    told.fate = Fate::run_failed;
  return told;
}

/// The strategy, with what is known already: trials of earlier studies of this key are not proposed again, but the
/// search learns from them, by their times as they were (the default config has not been timed yet to scale them by).
Result<void> Study::prepare_search() {
  search::StrategyOptions options;
  options.name = request_.search.strategy;
  options.seed = request_.seed;
  options.trials = request_.search.trials;
  options.bounded = request_.budget.count() > 0 || request_.search.window > 0;
  std::vector<std::pair<space::Config, search::Told>> known;
  for (const auto& [text, row] : history_)
    if (auto config = space::parse_values(text)) known.emplace_back(std::move(*config), told_of(row));
  for (const auto& [config, told] : known) options.known.push_back(config);
  if (default_config_) options.known.push_back(*default_config_);
  options.records = records_near(services_.store(), request_.key);
  const auto complain = [this](const std::string& trouble) {
    services_.log().warning("strategy_program", instance_.model().name(), trouble, request_.key.sha256);
  };
  auto strategy =
      request_.search.command.empty()
          ? search::make_strategy(instance_.space(), options)
          : start_external(instance_.space(), options, {.command = request_.search.command, .on_trouble = complain});
  if (!strategy) return strategy.failure();
  strategy_ = std::move(*strategy);
  for (const auto& [config, told] : known) strategy_->tell(config, told);
  meter_ = search::BudgetMeter({request_.search.trials, 0, request_.search.improvement, request_.search.window});
  return {};
}

/// How many more configs may be asked for; the default config is one of the trials.
size_t Study::trials_left() const {
  const uint64_t used = asked_ + (default_config_ ? 1 : 0);
  return static_cast<size_t>(request_.search.trials > used ? request_.search.trials - used : 0);
}

void Study::tell_search(const store::TrialRow& row, double scale) {
  search::Told told = told_of(row);
  told.time_us /= scale;
  meter_.add(told);
  if (const auto config = space::parse_values(row.config)) strategy_->tell(*config, told);
}

}  // namespace jitune::tune
