#include "apps/prewarm/kernels.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "apps/prewarm/text.hpp"
#include "base/files.hpp"
#include "jitune/definition.hpp"
#include "space/names.hpp"

namespace jitune::prewarm {
namespace {

constexpr uint64_t kQuickNodes = 2'000'000;  // of the walk through a space: some tenths of a second
constexpr uint64_t kVast = 100'000;

using Models = std::vector<std::shared_ptr<const space::Model>>;

std::vector<std::string> problem_names(const space::Model& model) {
  std::vector<std::string> names;
  for (const ProblemValue& value : model.problem()) names.push_back(value.name);
  return names;
}

/// `T=...,rows=...`: how a problem of this kernel is written.
std::string pattern(const space::Model& model) {
  std::string text;
  for (const std::string& name : problem_names(model)) text += (text.empty() ? "" : ",") + name + "=...";
  return text;
}

Models load_models(const Options& options) {
  Models models;
  std::vector<std::string> names;
  for (const std::string& file : options.files)
    for (KernelDefinition& definition : load_all(file)) {
      names.push_back(definition.name);
      if (options.kernel.empty() || options.kernel == definition.name)
        models.push_back(space::Model::make(std::move(definition)));
    }
  if (models.empty() && !options.kernel.empty())
    throw Stop(Exit::usage, "--kernel " + options.kernel + ": " + join_words(options.files) + " has no such kernel" +
                                space::did_you_mean(options.kernel, names) + "; it has " + join_words(names));
  return models;
}

std::vector<ProblemSpec> read_problems(const Options& options) {
  std::vector<ProblemSpec> specs;
  for (const std::string& text : options.problems) {
    Result<ProblemSpec> spec = parse_problem(text);
    if (!spec) throw Stop(Exit::usage, spec.error());
    specs.push_back(std::move(spec).value());
  }
  if (!options.problem_table.empty()) {
    const Result<std::string> text = read_file(options.problem_table);
    if (!text) throw Stop(Exit::usage, "--problems: " + text.error());
    Result<std::vector<ProblemSpec>> table = parse_problem_table(*text, options.problem_table);
    if (!table) throw Stop(Exit::usage, table.error());
    specs.insert(specs.end(), table->begin(), table->end());
  }
  return specs;
}

bool fits(const space::Model& model, const ProblemSpec& spec) {
  const std::vector<std::string> names = problem_names(model);
  return names.size() == spec.values.size() &&
         std::all_of(names.begin(), names.end(), [&](const std::string& name) { return spec.values.count(name) > 0; });
}

/// What keeps `spec` from being a problem of this kernel.
std::string misfit(const space::Model& model, const ProblemSpec& spec) {
  const std::vector<std::string> names = problem_names(model);
  std::vector<std::string> unknown, missing;
  std::string hint;
  for (const auto& [name, value] : spec.values)
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      unknown.push_back("'" + name + "'");
      if (hint.empty() && name.size() > 1) hint = space::did_you_mean(name, names);  // one letter is near to any other
    }
  for (const std::string& name : names)
    if (spec.values.count(name) == 0) missing.push_back("'" + name + "'");
  std::string text = "kernel '" + model.name() + "'";
  if (!unknown.empty()) text += " knows no problem value " + join_words(unknown) + hint;
  if (!missing.empty()) text += std::string(unknown.empty() ? "" : " and") + " needs " + join_words(missing);
  return text + (names.empty() ? "; it has no problem values at all" : "; its problem values are " + join_words(names));
}

[[noreturn]] void refuse(const ProblemSpec& spec, const Models& models) {
  if (models.size() == 1) throw Stop(Exit::usage, spec.place + ": " + misfit(*models[0], spec));
  std::string text = spec.place + ": these are the problem values of none of the kernels:";
  for (const auto& model : models) text += "\n  " + misfit(*model, spec);
  throw Stop(Exit::usage, text);
}

[[noreturn]] void refuse_no_problem(const Models& models) {
  std::string text = "no problem is given; say for which sizes and types, with --problem or --problems:";
  for (const auto& model : models) text += "\n  " + model->name() + ": --problem " + pattern(*model);
  throw Stop(Exit::usage, text);
}

}  // namespace

std::vector<Work> load_work(const Options& options, const std::function<void(const std::string&)>& warn) {
  const Models models = load_models(options);
  const std::vector<ProblemSpec> specs = read_problems(options);
  for (const ProblemSpec& spec : specs)
    if (std::none_of(models.begin(), models.end(), [&](const auto& model) { return fits(*model, spec); }))
      refuse(spec, models);

  std::vector<Work> work;
  Models idle;
  for (const auto& model : models) {
    std::set<std::string> seen;  // the same problem from two places is one problem
    const size_t before = work.size();
    for (const ProblemSpec& spec : specs)
      if (fits(*model, spec) && seen.insert(space::canonical(spec.values)).second) work.push_back({model, spec});
    if (model->problem().empty() && seen.empty()) work.push_back({model, {}});
    if (work.size() == before) idle.push_back(model);
  }
  if (work.empty()) refuse_no_problem(models);
  for (const auto& model : idle)
    warn("kernel '" + model->name() + "' is left out: no problem is given for it (--problem " + pattern(*model) + ")");
  return work;
}

std::string Task::label() const {
  const std::string problem = space::short_text(instance.problem());
  return instance.model().name() + (problem.empty() ? "" : " " + problem);
}

std::vector<Task> bind_work(const std::vector<Work>& work, const space::DeviceInfo& device) {
  std::vector<Task> tasks;
  for (const Work& item : work) {
    Result<space::Instance> instance = space::Instance::bind(item.model, item.problem.values, device);
    if (!instance)
      throw Stop(Exit::usage, (item.problem.place.empty() ? "" : item.problem.place + ": ") + instance.error());
    tasks.push_back({std::move(instance).value(), item.problem, item.data});
  }
  return tasks;
}

std::string explain_empty(const space::SpaceCount& count) {
  std::string text = "no config is valid: of " + space::to_string(count.product) + " points";
  const char* between = ", ";
  for (const space::Rejections& rejection : count.rejections) {
    if (rejection.points == 0) continue;
    text += between + space::to_string(rejection.points) + " fail `" + rejection.constraint + "`";
  }
  return text + "; change the problem, or the kernel's params or `require`";
}

std::string values_text(const std::string& canonical) {
  const auto values = space::parse_values(canonical);
  return values ? space::short_text(*values) : canonical;
}

bool is_vast(const space::Instance& instance) {
  if (instance.space().product() <= kVast) return false;
  const space::SpaceCount count = instance.space().count(kQuickNodes);
  return !count.complete || count.valid > kVast;
}

void check_not_empty(const std::vector<Task>& tasks) {
  for (const Task& task : tasks) {
    if (task.instance.default_config()) continue;
    const space::SpaceCount count = task.instance.space().count(kQuickNodes);
    if (count.complete && count.valid == 0)
      throw Stop(Exit::no_valid_config, task.label() + ": " + explain_empty(count));
  }
}

}  // namespace jitune::prewarm
