// What the author says of a config's time.
#include <cmath>
#include <limits>

#include "space/form_builder.hpp"
#include "space/instance.hpp"
#include "space/instance_state.hpp"

namespace jitune::space {

bool Instance::has_perf_model() const {
  return state_->form->perf_function || !state_->form->perf_model.empty();
}

int Instance::perf_model_top_k() const {
  return state_->form->perf_top_k;
}

double Instance::perf_model(const Config& config) const {
  constexpr double kUnknown = std::numeric_limits<double>::infinity();
  const auto cells = state_->cells(config);
  if (!cells) return kUnknown;
  if (const auto& function = state_->form->perf_function) {
    std::map<std::string, Value> values = state_->problem;
    values.insert(config.begin(), config.end());
    for (const DerivedForm& derived : state_->form->derived) {
      const Cell& cell = (*cells)[static_cast<size_t>(derived.slot)];
      if (cell.kind == Cell::Kind::number) values.emplace(derived.name, static_cast<long long>(cell.value));
      if (cell.kind == Cell::Kind::word) values.emplace(derived.name, state_->symbols.word_text(cell.value));
    }
    const double time = function(values);
    return std::isnan(time) ? kUnknown : time;
  }
  const auto value = number("perf_model", state_->form->perf_model, *cells);
  return value ? static_cast<double>(*value) : kUnknown;
}

std::vector<std::string> Instance::feature_names() const {
  std::vector<std::string> names;
  for (const auto& [name, expression] : state_->form->features) names.push_back(name);
  return names;
}

std::vector<double> Instance::features(const Config& config) const {
  std::vector<double> values(state_->form->features.size(), std::numeric_limits<double>::quiet_NaN());
  const auto cells = state_->cells(config);
  if (!cells) return values;
  for (size_t i = 0; i < values.size(); ++i)
    if (const auto value = number("feature", state_->form->features[i].second, *cells))
      values[i] = static_cast<double>(*value);
  return values;
}

}  // namespace jitune::space
