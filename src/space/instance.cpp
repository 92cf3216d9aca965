#include "space/instance.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "space/form_builder.hpp"
#include "space/instance_state.hpp"
#include "space/names.hpp"

namespace jitune::space {
namespace {

std::string list_problem(const Model& model) {
  std::vector<std::string> names;
  for (const ProblemValue& value : model.problem()) names.push_back(value.name);
  return names.empty() ? "it knows none" : "it knows " + join(names);
}

Failure problem_failure(const Model& model, const std::string& message) {
  return {"kernel '" + model.name() + "': " + message};
}

/// Checks `problem` against the definition and writes its cells.
Result<void> set_problem(const Model& model, const Model::Form& form, Instance::State& state,
                         std::vector<Cell>& cells) {
  for (const auto& [name, value] : state.problem) {
    const int slot = model.symbols().find(name);
    if (const auto need = form.needs_number.find(slot); need != form.needs_number.end() && value.is_word())
      return problem_failure(model, "the problem value '" + name + "' must be a number, not the word '" +
                                        value.as_word() + "': it is computed with in `" + need->second + "`");
    if (const auto need = form.needs_type.find(slot);
        need != form.needs_type.end() && (!value.is_word() || find_type(value.as_word()) == nullptr))
      return problem_failure(model, "the problem value '" + name +
                                        "' must be a type word (half, float, int32 ...), not '" + value.text() +
                                        "': " + need->second + " needs one");
    cells[static_cast<size_t>(slot)] = to_cell(value, state.symbols);
  }
  return {};
}

Result<ProblemValues> normalise(const Model& model, const ProblemValues& problem) {
  ProblemValues result;
  std::vector<std::string> known;
  for (const ProblemValue& value : model.problem()) {
    known.push_back(value.name);
    const auto given = problem.find(value.name);
    if (given == problem.end())
      return problem_failure(model, "the problem value '" + value.name + "' is missing; " + list_problem(model));
    const TypeInfo* type = given->second.is_word() ? find_type(given->second.as_word()) : nullptr;
    if (given->second.is_word() && given->second.as_word().find_first_of("\n\r\"'{}") != std::string::npos)
      return problem_failure(model,
                             "the problem value '" + value.name + "' holds a word with quotes, braces or line ends");
    if (given->second.is_word() && given->second.as_word().empty())
      return problem_failure(model, "the problem value '" + value.name + "' is an empty word");
    result.emplace(value.name, type != nullptr ? Value(type->type) : given->second);
  }
  for (const auto& [name, value] : problem)
    if (result.count(name) == 0)
      return problem_failure(
          model, "it has no problem value '" + name + "'" + did_you_mean(name, known) + "; " + list_problem(model));
  return result;
}

/// A cubin of `arch` must run on the device.
Result<void> check_arch(const Model& model, const std::string& arch, const DeviceInfo& device) {
  if (arch.empty()) return {};
  const int wanted = std::stoi(arch.substr(3));
  const char suffix = arch.back() == 'a' || arch.back() == 'f' ? arch.back() : '\0';
  const bool same_major = wanted / 10 == device.cc_major;
  const bool fits = suffix == 'a' ? wanted == device.cc() : same_major && wanted % 10 <= device.cc_minor;
  if (fits) return {};
  return problem_failure(model, "arch " + arch + " does not run on a device of compute capability " +
                                    std::to_string(device.cc_major) + "." + std::to_string(device.cc_minor) +
                                    "; leave it out, or put it into a variant with a `when`");
}

}  // namespace

Result<int64_t> number(const std::string& what, const Expression& expression, const std::vector<Cell>& cells) {
  const Evaluation value = expression.evaluate(cells);
  if (value.status != EvalStatus::ok)
    return Failure{what + ": " + to_string(value.status) + " in `" + expression.text() + "`"};
  if (value.is_word) return Failure{what + ": `" + expression.text() + "` is a word, a number is needed"};
  return value.value;
}

Result<Instance> Instance::bind(std::shared_ptr<const Model> model, const ProblemValues& problem,
                                const DeviceInfo& device) {
  auto state = std::make_shared<State>();
  state->model = model;
  state->device = device;
  state->symbols = model->symbols();
  Result<ProblemValues> values = normalise(*model, problem);
  if (!values) return values.failure();
  state->problem = std::move(*values);

  std::vector<Cell> base(static_cast<size_t>(model->symbols().size()));
  set_device_cells(device, state->symbols, base);
  // `when` of a variant is looked at before it is known which form's needs count.
  for (const auto& [name, value] : state->problem)
    base[static_cast<size_t>(model->symbols().find(name))] = to_cell(value, state->symbols);
  state->form = model->forms().front();
  for (size_t i = 1; i < model->forms().size(); ++i) {
    const Result<int64_t> holds =
        number("`when` of variant '" + model->forms()[i]->name + "'", model->forms()[i]->when, base);
    if (!holds) return problem_failure(*model, holds.error());
    if (*holds == 0) continue;
    state->form = model->forms()[i];
    break;
  }
  if (Result<void> set = set_problem(*model, *state->form, *state, base); !set) return set.failure();
  if (Result<void> fits = check_arch(*model, state->form->arch, device); !fits) return fits.failure();

  for (size_t i = 0; i < model->problem().size(); ++i) {
    const ProblemValue& value = model->problem()[i];
    if (value.ignore) continue;
    const Expression& bucket = model->buckets()[i];
    if (bucket.empty()) {
      state->bucketed.emplace(value.name, state->problem.at(value.name));
      continue;
    }
    const Evaluation coarse = bucket.evaluate(base);
    if (coarse.status != EvalStatus::ok)
      return problem_failure(*model, "the bucket of '" + value.name + "': " + to_string(coarse.status) + " in `" +
                                         bucket.text() + "` for " + short_text(state->problem));
    state->bucketed.emplace(value.name, coarse.is_word ? Value(state->symbols.word_text(coarse.value))
                                                       : Value(static_cast<long>(coarse.value)));
  }

  for (const ArgForm& arg : state->form->args) {
    if (arg.arg.kind == ArgKind::tensor_map) continue;
    const Expression& decides = arg.arg.kind == ArgKind::scalar ? arg.value : arg.count;
    if (!decides.empty() && decides.evaluate(base).status == EvalStatus::unset) continue;  // depends on the config
    if (!arg.bound.empty() && arg.bound.evaluate(base).status == EvalStatus::unset) continue;
    const Result<ArgSpec> spec = make_arg(arg, base, model->definition().base_directory);
    if (!spec) return problem_failure(*model, spec.error());
  }

  auto space = std::make_shared<Space::State>();
  space->model = model;
  space->form = state->form;
  space->base = std::move(base);
  space->prepare(device, state->symbols);
  state->space_state = space;
  state->space.emplace(space);
  return Instance(std::move(state));
}

Instance::Instance(std::shared_ptr<const State> state) : state_(std::move(state)) {}

const Model& Instance::model() const {
  return *state_->model;
}
const ProblemValues& Instance::problem() const {
  return state_->problem;
}
const DeviceInfo& Instance::device() const {
  return state_->device;
}
const std::string& Instance::variant() const {
  return state_->form->name;
}
const ProblemValues& Instance::bucketed_problem() const {
  return state_->bucketed;
}
const Space& Instance::space() const {
  return *state_->space;
}
std::string Instance::launch_pattern() const {
  return state_->form->launch_pattern;
}

bool Instance::needs_kernel_facts() const {
  std::vector<int> slots;
  for (const std::string& name : kernel_names()) slots.push_back(state_->symbols.find(name));
  const auto reads = [&](const Expression& expression) {
    return std::any_of(slots.begin(), slots.end(), [&](int slot) {
      return std::binary_search(expression.slots().begin(), expression.slots().end(), slot);
    });
  };
  const auto any = [&](const std::vector<Expression>& list) { return std::any_of(list.begin(), list.end(), reads); };
  const Model::Form& form = *state_->form;
  return any(form.launch.grid) || any(form.launch.block) || any(form.launch.cluster) ||
         reads(form.launch.shared_bytes) ||
         std::any_of(form.args.begin(), form.args.end(), [&](const ArgForm& arg) { return reads(arg.count); });
}
std::string Instance::space_definition() const {
  return state_->form->space_definition;
}

std::optional<std::string> Instance::reject(const Config& config) const {
  const Model::Form& form = *state_->form;
  for (const ParamForm& param : form.params) {
    const auto given = config.find(param.name);
    if (given == config.end()) return "the param '" + param.name + "' is missing";
    if (std::find(param.values.begin(), param.values.end(), given->second) == param.values.end())
      return param.name + " = " + given->second.text() + " is not among its values: " + list_values(param);
  }
  if (config.size() > form.params.size()) {
    for (const auto& [name, value] : config)
      if (std::none_of(form.params.begin(), form.params.end(),
                       [&](const ParamForm& param) { return param.name == name; }))
        return "'" + name + "' is no param";
  }
  const std::optional<std::vector<int>> indices = state_->space_state->indices(config);
  if (!indices) return "the config is not in the list of configs";
  std::vector<Cell> cells = state_->space_state->base;
  int failed = -1;
  const Verdict verdict = state_->space_state->run_all(*indices, cells, failed);
  if (failed < 0) return std::nullopt;
  return describe(state_->space_state->checks[static_cast<size_t>(failed)], verdict);
}

Result<Config> Instance::default_config() const {
  const Model::Form& form = *state_->form;
  const std::vector<Cell>& base = state_->space_state->base;
  const auto failure = [&](const DefaultForm& rule, const std::string& message) {
    return problem_failure(*state_->model, rule.text + " " + message + ", for " + short_text(state_->problem));
  };
  for (const DefaultForm& rule : form.defaults) {
    if (!rule.when.empty()) {
      const Result<int64_t> holds = number("when", rule.when, base);
      if (!holds) return failure(rule, "can't be decided: " + holds.error());
      if (*holds == 0) continue;
    }
    Config config;
    for (size_t i = 0; i < form.params.size(); ++i) {
      const ParamForm& param = form.params[i];
      const Evaluation value = rule.values[i].evaluate(base);
      if (value.status != EvalStatus::ok)
        return failure(rule, std::string("gives '") + param.name + "' no value: " + to_string(value.status) + " in `" +
                                 rule.values[i].text() + "`");
      const int index = find_value(param, value);
      if (index < 0)
        return failure(rule,
                       "gives " + param.name + " = " +
                           (value.is_word ? state_->symbols.word_text(value.value) : std::to_string(value.value)) +
                           ", which is not among its values: " + list_values(param));
      config.emplace(param.name, param.values[static_cast<size_t>(index)]);
    }
    if (const std::optional<std::string> why = reject(config))
      return failure(rule, "gives " + short_text(config) + ", which is rejected: " + *why);
    return config;
  }
  return problem_failure(*state_->model, "no default rule applies");
}

Result<std::vector<Cell>> Instance::State::cells(const Config& config) const {
  std::vector<Cell> cells = space_state->base;
  for (const ParamForm& param : form->params) {
    const auto given = config.find(param.name);
    if (given == config.end())
      return problem_failure(*model, "the config has no value for the param '" + param.name + "'");
    const auto at = std::find(param.values.begin(), param.values.end(), given->second);
    if (at == param.values.end())
      return problem_failure(
          *model, param.name + " = " + given->second.text() + " is not among its values: " + list_values(param));
    cells[static_cast<size_t>(param.slot)] = param.cells[static_cast<size_t>(at - param.values.begin())];
  }
  for (const DerivedForm& derived : form->derived) {
    const Evaluation value = derived.expression.evaluate(cells);
    if (value.status != EvalStatus::ok)
      return problem_failure(*model, std::string(to_string(value.status)) + " in " + derived.name + " = " +
                                         derived.expression.text() + " for " + short_text(config));
    cells[static_cast<size_t>(derived.slot)] = {value.is_word ? Cell::Kind::word : Cell::Kind::number, value.value};
  }
  return cells;
}

std::string Instance::State::source_text(int slot, const std::vector<Cell>& cells, const Config* config) const {
  const std::string& name = symbols.name(slot);
  if (config != nullptr)
    if (const auto given = config->find(name); given != config->end()) return cpp_text(given->second);
  if (const auto given = problem.find(name); given != problem.end()) return cpp_text(given->second);
  const Cell& cell = cells[static_cast<size_t>(slot)];
  if (cell.kind == Cell::Kind::word) return cpp_text(Value(symbols.word_text(cell.value)));
  return std::to_string(cell.value);
}

}  // namespace jitune::space
