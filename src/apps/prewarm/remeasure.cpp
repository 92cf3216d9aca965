#include "apps/prewarm/remeasure.hpp"

#include <algorithm>

#include "apps/prewarm/session.hpp"
#include "jitune/error.hpp"
#include "tune/tune.hpp"

namespace jitune::prewarm {
namespace {

using Configs = std::vector<space::Config>;

/// Leaves the values that one of `configs` has.
void keep_values(std::vector<Param>& params, const Configs& configs) {
  for (Param& param : params)
    std::erase_if(param.values, [&](const Value& value) {
      return std::none_of(configs.begin(), configs.end(), [&](const space::Config& config) {
        const auto at = config.find(param.name);
        return at != config.end() && at->second == value;
      });
    });
}

std::string literal(const Value& value) {
  return value.is_word() ? "'" + value.text() + "'" : value.text();
}

/// `(A == 1 && B == 2) || (A == 4 && B == 2)`
std::string one_of(const Configs& configs) {
  std::string text;
  for (const space::Config& config : configs) {
    text += text.empty() ? "(" : " || (";
    const char* between = "";
    for (const auto& [name, value] : config) {
      text += between + name + " == " + literal(value);
      between = " && ";
    }
    text += ")";
  }
  return text;
}

/// The kernel with a space of these two configs alone, `fallback` being the default one: its keys are the same, for the
/// space is no part of them. Default rules and variants that are for other problems may ask for any value, so they go.
KernelDefinition narrowed(KernelDefinition definition, const std::string& variant, const space::Config& winner,
                          const space::Config& fallback) {
  std::erase_if(definition.variants, [&](const Variant& each) { return each.name != variant; });
  Variant* form = definition.variants.empty() ? nullptr : &definition.variants[0];
  const Configs configs{winner, fallback};
  if (form != nullptr && form->params)
    keep_values(*form->params, configs);
  else if (form == nullptr)
    keep_values(definition.params, configs);
  std::vector<std::string>& require = form != nullptr && form->require ? *form->require : definition.require;
  require.push_back(one_of(configs));
  DefaultRule rule;
  for (const auto& [name, value] : fallback) rule.config.emplace_back(name, literal(value));
  if (form != nullptr)
    form->defaults = {std::move(rule)};
  else
    definition.defaults = {std::move(rule)};
  return definition;
}

double time_of(const std::vector<store::TrialRow>& trials, const std::string& config) {
  for (const store::TrialRow& trial : trials)
    if (trial.config == config && (trial.status == "ok" || trial.status == "early_stopped")) return trial.median_us;
  return 0;
}

std::string failure_of(const std::vector<store::TrialRow>& trials, const std::string& config) {
  for (const store::TrialRow& trial : trials)
    if (trial.config == config && trial.status != "ok" && trial.status != "early_stopped")
      return trial.status + (trial.error.empty() ? "" : ": " + trial.error);
  return "";
}

Remeasured measure(tune::Services& services, const space::Instance& instance, const std::string& winner,
                   const std::string& fallback) {
  Remeasured result;
  tune::Request request;
  request.instance = &instance;
  auto key = services.tuning_key(instance);
  if (!key) return {0, 0, key.error()};
  request.key = std::move(*key);
  request.force = true;
  request.search.strategy = "exhaustive";
  request.cancelled = interrupted;
  const tune::Outcome outcome = tune::tune(services, request);
  const auto trials = services.store().trials_of(request.key.sha256);
  if (!trials) return {0, 0, trials.error()};
  result.winner_us = time_of(*trials, winner);
  result.default_us = time_of(*trials, fallback);
  if (result.winner_us <= 0) result.trouble = failure_of(*trials, winner);
  if (result.winner_us <= 0 && result.trouble.empty()) result.trouble = outcome.outcome + " " + outcome.note;
  return result;
}

}  // namespace

Remeasured remeasure(tune::Services& services, const space::Instance& today, const store::WinnerRecord& record,
                     const space::DeviceInfo& device) {
  const auto config = space::parse_values(record.winner.config);
  const auto fallback = today.default_config();
  if (!config || !fallback) return {0, 0, config ? fallback.error() : config.error()};
  try {
    const auto model = space::Model::make(narrowed(today.model().definition(), today.variant(), *config, *fallback));
    const auto instance = space::Instance::bind(model, today.problem(), device);
    if (!instance) return {0, 0, instance.error()};
    return measure(services, *instance, space::canonical(*config), space::canonical(*fallback));
  } catch (const Error& error) {
    return {0, 0, error.what()};
  }
}

}  // namespace jitune::prewarm
