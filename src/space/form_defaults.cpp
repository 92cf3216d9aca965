#include <algorithm>

#include "space/form_builder.hpp"
#include "space/names.hpp"

namespace jitune::space {

Expression FormBuilder::default_value(const ParamForm& param, const std::string& rule, const std::string& text) {
  const TypeInfo* type = find_type(text);
  const std::string word = type != nullptr ? type->word : text;
  if (param.values.front().is_word() &&
      std::find(param.values.begin(), param.values.end(), Value(word)) != param.values.end())
    return Expression::parse("'" + word + "'", symbols_);
  return parse(rule + ", " + param.name, text, kProblem | kDevice);
}

void FormBuilder::read_defaults() {
  std::vector<DefaultRule> rules = definition_.defaults;
  if (rules.empty() && form_->params.empty()) rules.push_back({});  // nothing to choose
  if (rules.empty()) fail("defaults are missing: the last default rule, without `when`, is obligatory");
  std::vector<std::string> names;
  for (const ParamForm& param : form_->params) names.push_back(param.name);
  for (size_t i = 0; i < rules.size(); ++i) {
    const DefaultRule& rule = rules[i];
    const bool is_last = i + 1 == rules.size();
    DefaultForm form;
    form.text = "default rule " + std::to_string(i + 1);
    if (is_last && !rule.when.empty())
      fail("the last default rule must have no `when`, so that there is always a default config", rule.when, 1);
    if (!is_last && rule.when.empty()) fail(form.text + " has no `when`, so the rules after it never apply");
    if (!rule.when.empty()) {
      form.when = parse(form.text + ", when", rule.when, kProblem | kDevice);
      form.text += " (when " + rule.when + ")";
    }
    for (const auto& [name, text] : rule.config)
      if (std::find(names.begin(), names.end(), name) == names.end())
        fail(form.text + " names '" + name + "', which is no param" + did_you_mean(name, names), name);
    for (const ParamForm& param : form_->params) {
      const auto is_it = [&](const auto& entry) { return entry.first == param.name; };
      const auto found = std::find_if(rule.config.begin(), rule.config.end(), is_it);
      if (found == rule.config.end()) fail(form.text + " leaves out '" + param.name + "'; it must give every param");
      if (std::count_if(rule.config.begin(), rule.config.end(), is_it) > 1)
        fail(form.text + " gives '" + param.name + "' twice");
      form.values.push_back(default_value(param, form.text, found->second));
    }
    check_constant_default(form);
    form_->defaults.push_back(std::move(form));
  }
}

void FormBuilder::check_constant_default(const DefaultForm& rule) {
  std::vector<Cell> cells(static_cast<size_t>(symbols_.size()));
  std::vector<int> indices;
  for (size_t i = 0; i < form_->params.size(); ++i) {
    const ParamForm& param = form_->params[i];
    if (!rule.values[i].slots().empty()) continue;
    const int index = find_value(param, rule.values[i].evaluate(cells));
    if (index < 0)
      fail(rule.text + " gives '" + param.name + "' a value that is not in its list: " + list_values(param),
           rule.values[i].text(), 1);
    cells[static_cast<size_t>(param.slot)] = param.cells[static_cast<size_t>(index)];
    indices.push_back(index);
  }
  if (form_->is_list && indices.size() == form_->params.size() &&
      std::find(form_->configs.begin(), form_->configs.end(), indices) == form_->configs.end())
    fail(rule.text + " gives a config that is not in the list of configs");
  for (const DerivedForm& derived : form_->derived) {
    const Evaluation value = derived.expression.evaluate(cells);
    if (value.status == EvalStatus::ok)
      cells[static_cast<size_t>(derived.slot)] = {value.is_word ? Cell::Kind::word : Cell::Kind::number, value.value};
  }
  // A constraint that needs the problem or the device stays unset here and is looked at when they are known.
  for (const Expression& require : form_->require) {
    const Evaluation value = require.evaluate(cells);
    if (value.status == EvalStatus::ok && value.value == 0)
      fail(rule.text + " gives a config that a constraint rejects", require.text(), 1);
  }
}

}  // namespace jitune::space
