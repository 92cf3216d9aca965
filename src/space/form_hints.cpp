// What an author says of the times of configs: a model of them, and numbers that a model can learn from.
#include <algorithm>

#include "space/form_builder.hpp"
#include "space/names.hpp"

namespace jitune::space {

void FormBuilder::read_perf_model() {
  if (!definition_.perf_model) return;
  const PerfModel& given = *definition_.perf_model;
  if (given.expression.empty() == !given.function)
    fail(given.function ? "perf_model has an expression and a function; keep one"
                        : "perf_model needs an expression or a function");
  if (given.top_k < 0) fail("perf_model: top_k is negative", std::to_string(given.top_k));
  form_->perf_function = given.function;
  form_->perf_top_k = given.top_k;
  if (given.function) return;
  Expression expression = parse("perf_model", given.expression, kAnyConfig);
  // One number for all configs says nothing. It is how a variant does without the kernel's model.
  if (!expression.slots().empty()) form_->perf_model = std::move(expression);
}

void FormBuilder::read_features() {
  for (const Feature& feature : definition_.features) {
    if (!is_identifier(feature.name)) fail("a feature's name must be letters, digits and underscores", feature.name, 1);
    form_->features.emplace_back(feature.name, parse("feature " + feature.name, feature.expression, kAnyConfig));
  }
  std::sort(form_->features.begin(), form_->features.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i + 1 < form_->features.size(); ++i)
    if (form_->features[i].first == form_->features[i + 1].first)
      fail("the feature '" + form_->features[i].first + "' is given twice", form_->features[i].first);
}

}  // namespace jitune::space
