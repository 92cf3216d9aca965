#include <algorithm>
#include <exception>
#include <limits>
#include <utility>

#include "search/xgboost.hpp"
#include "tune/external_strategy.hpp"
#include "tune/history.hpp"
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

/// What the author's perf_model says. It is the application's code: what it throws is not to end the study.
double Study::modelled_time(const space::Config& config) const {
  std::string thrown;
  try {
    return instance_.perf_model(config);
  } catch (const std::exception& error) {
    thrown = error.what();
  } catch (...) {
    thrown = "something that is no std::exception";
  }
  services_.log().warning("perf_model", instance_.model().name(),
                          "the perf_model function throws (" + thrown + ") for " + space::short_text(config) +
                              ": such configs are tried as if nothing were known of them",
                          request_.key.sha256);
  return std::numeric_limits<double>::infinity();
}

/// The strategy. Trials of earlier studies of this key are not proposed again.
Result<void> Study::prepare_search() {
  search::StrategyOptions options;
  options.name = request_.search.strategy;
  options.seed = request_.seed;
  options.trials = request_.search.trials;
  options.bounded = request_.budget.count() > 0 || request_.search.window > 0;
  for (const auto& [text, row] : history_)
    if (auto config = space::parse_values(text)) options.known.push_back(std::move(*config));
  if (default_config_) options.known.push_back(*default_config_);
  if (instance_.has_perf_model()) {
    options.perf_model = [this](const space::Config& config) { return modelled_time(config); };
    options.top_k = static_cast<uint64_t>(instance_.perf_model_top_k());
  }
  options.numbers = {instance_.feature_names(),
                     [this](const space::Config& config) { return instance_.features(config); }};
  if (request_.search.surrogate == "xgboost") {
    if (const auto library = search::load_xgboost(request_.search.xgboost))
      options.xgboost = *library;
    else
      services_.log().warning("surrogate", instance_.model().name(),
                              library.error() + ". The search goes on with its own forests", request_.key.sha256);
  }
  options.records = records_near(services_.store(), request_.key);
  // What won with another NVRTC is likely to win again.
  if (const auto compatible = services_.store().find_compatible(request_.key); compatible && *compatible)
    if (auto config = space::parse_values((*compatible)->config)) options.first.push_back(std::move(*config));
  options.first.insert(options.first.end(), request_.first.begin(), request_.first.end());
  const auto complain = [this](const std::string& trouble) {
    services_.log().warning("strategy_program", instance_.model().name(), trouble, request_.key.sha256);
  };
  auto strategy =
      request_.search.command.empty()
          ? search::make_strategy(instance_.space(), options)
          : start_external(instance_.space(), options, {.command = request_.search.command, .on_trouble = complain});
  if (!strategy) return strategy.failure();
  strategy_ = std::move(*strategy);
  tell_history();
  meter_ = search::BudgetMeter({request_.search.trials, 0, request_.search.improvement, request_.search.window});
  return {};
}

/// The search learns from the trials of earlier studies at once, while the default config is not timed yet.
void Study::tell_history() {
  const History history = in_one_unit(history_);
  told_default_us_ = history.default_us;
  for (const auto& [config, told] : history.told) strategy_->tell(config, told);
}

/// How many more configs may be asked for; the default config is one of the trials.
size_t Study::trials_left() const {
  const uint64_t used = asked_ + (default_config_ ? 1 : 0);
  return static_cast<size_t>(request_.search.trials > used ? request_.search.trials - used : 0);
}

void Study::tell_search(const store::TrialRow& row, double scale) {
  search::Told told = told_of(row);
  told.time_us /= scale;
  if (told_default_us_ > 0 && default_us_ > 0) told.time_us *= told_default_us_ / default_us_;
  meter_.add(told);
  if (const auto config = space::parse_values(row.config)) strategy_->tell(*config, told);
}

}  // namespace jitune::tune
