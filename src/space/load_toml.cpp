#include <filesystem>

#include "space/model.hpp"
#include "space/names.hpp"
#include "space/toml_reader.hpp"

namespace jitune {
namespace space {
namespace {

// What a file with several kernels may say once for all of them.
const std::vector<std::string> kShared{"source", "source_text", "include", "headers", "options", "macros", "arch"};
// What a kernel and a variant have in common.
const std::vector<std::string> kCommon{"source",   "source_text", "entry",      "arch",    "options",
                                       "params",   "derived",     "require",    "launch",  "args",
                                       "defaults", "name",        "perf_model", "features"};

std::vector<std::string> with(std::vector<std::string> keys, const std::vector<std::string>& more) {
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

std::vector<CompileOption> read_options(TomlReader& reader, const toml::node& node) {
  const auto part = reader.part({"options"}, TomlReader::line(node));
  std::vector<CompileOption> options;
  for (const toml::node& entry : reader.array(node, "options")) {
    if (entry.is_string()) {
      options.push_back({reader.text(entry, "an option"), {}});
      continue;
    }
    const toml::table& table = reader.table(entry, "an option that is no string");
    reader.check_keys(table, "an option", {"option", "when"});
    if (!table.contains("option")) reader.fail(entry, "an option's table needs `option`");
    CompileOption option{reader.text(*table.get("option"), "option"), {}};
    if (const auto* when = table.get("when")) option.when = reader.expression(*when, "when");
    options.push_back(std::move(option));
  }
  return options;
}

std::vector<HeaderText> read_headers(TomlReader& reader, const toml::node& node) {
  std::vector<HeaderText> headers;
  for (const auto& [key, entry] : reader.table(node, "headers")) {
    reader.note(key);
    const std::string name(key.str());
    headers.push_back({name, reader.text(entry, "the text of header " + name)});
  }
  return headers;
}

std::vector<ProblemValue> read_problem(TomlReader& reader, const toml::node& node) {
  const auto part = reader.part({"a problem value", "the problem value"}, TomlReader::line(node));
  std::vector<ProblemValue> problem;
  for (const toml::node& entry : reader.array(node, "problem")) {
    if (entry.is_string()) {
      problem.emplace_back(reader.text(entry, "a problem value"));
      continue;
    }
    const toml::table& table = reader.table(entry, "a problem value that is no string");
    reader.check_keys(table, "a problem value", {"name", "bucket", "by", "ignore"});
    const bool has_bucket = table.contains("bucket");
    if (has_bucket == table.contains("name"))
      reader.fail(entry,
                  "a problem value is \"N\", { bucket = \"N\", by = \"...\" } or { name = \"N\", ignore = true }");
    if (has_bucket != table.contains("by"))
      reader.fail(entry, "`bucket` names a problem value and needs `by`, the expression of its bucket");
    const std::string name = reader.text(*table.get(has_bucket ? "bucket" : "name"), "the name of a problem value");
    const std::string by = has_bucket ? reader.expression(*table.get("by"), "by") : "";
    const bool ignore = table.contains("ignore") && reader.flag(*table.get("ignore"), "ignore");
    problem.emplace_back(name, by, ignore);
  }
  return problem;
}

std::vector<Param> read_params(TomlReader& reader, const toml::node& node) {
  const auto part = reader.part({"a param", "the param"}, TomlReader::line(node));
  std::vector<Param> params;
  for (const auto& [key, entry] : reader.table(node, "params")) {
    reader.note(key);
    Param param{std::string(key.str()), {}};
    for (const toml::node& value : reader.array(entry, "params." + param.name))
      param.values.push_back(reader.value(value, "a value of " + param.name));
    params.push_back(std::move(param));
  }
  return params;
}

std::vector<std::vector<std::pair<std::string, Value>>> read_configs(TomlReader& reader, const toml::node& node) {
  std::vector<std::vector<std::pair<std::string, Value>>> configs;
  for (const toml::node& entry : reader.array(node, "configs")) {
    configs.emplace_back();
    for (const auto& [key, value] : reader.table(entry, "an entry of configs"))
      configs.back().emplace_back(std::string(key.str()), reader.value(value, std::string(key.str())));
  }
  if (configs.empty()) reader.fail(node, "configs is empty; leave it out or list at least one");
  return configs;
}

std::vector<Derived> read_derived(TomlReader& reader, const toml::node& node) {
  const auto part = reader.part({"a derived value", "the derived value"}, TomlReader::line(node));
  std::vector<Derived> derived;
  for (const auto& [key, entry] : reader.table(node, "derived")) {
    reader.note(key);
    derived.push_back({std::string(key.str()), reader.expression(entry, "derived." + std::string(key.str()))});
  }
  return derived;
}

std::vector<std::string> read_require(TomlReader& reader, const toml::node& node) {
  const auto part = reader.part({"require"}, TomlReader::line(node));
  return reader.expressions(node, "require");
}

LaunchGeometry read_launch(TomlReader& reader, const toml::node& node) {
  const auto part = reader.part({"launch"}, TomlReader::line(node));
  const toml::table& table = reader.table(node, "launch");
  reader.check_keys(table, "launch",
                    {"grid", "block", "shared_bytes", "cluster", "cooperative", "programmatic_dependent"});
  LaunchGeometry launch;
  if (const auto* entry = table.get("grid")) launch.grid = reader.expressions(*entry, "launch.grid");
  if (const auto* entry = table.get("block")) launch.block = reader.expressions(*entry, "launch.block");
  if (const auto* entry = table.get("cluster")) launch.cluster = reader.expressions(*entry, "launch.cluster");
  if (const auto* entry = table.get("shared_bytes"))
    launch.shared_bytes = reader.expression(*entry, "launch.shared_bytes");
  if (const auto* entry = table.get("cooperative")) launch.cooperative = reader.flag(*entry, "launch.cooperative");
  if (const auto* entry = table.get("programmatic_dependent"))
    launch.programmatic_dependent = reader.flag(*entry, "launch.programmatic_dependent");
  return launch;
}

std::vector<DefaultRule> read_defaults(TomlReader& reader, const toml::node& node) {
  std::vector<DefaultRule> rules;
  for (const toml::node& entry : reader.array(node, "defaults")) {
    const toml::table& table = reader.table(entry, "an entry of defaults");
    reader.check_keys(table, "a default rule", {"when", "config"});
    const auto part = reader.part({"default rule " + std::to_string(rules.size() + 1)}, TomlReader::line(entry));
    DefaultRule rule;
    if (const auto* when = table.get("when")) rule.when = reader.expression(*when, "when");
    const auto* config = table.get("config");
    if (config == nullptr)
      reader.fail(entry, "a default rule needs `config`: a value or an expression for every param");
    for (const auto& [key, value] : reader.table(*config, "config")) {
      reader.note(key);
      rule.config.emplace_back(std::string(key.str()), reader.expression(value, "config." + std::string(key.str())));
    }
    rules.push_back(std::move(rule));
  }
  return rules;
}

PerfModel read_perf_model(TomlReader& reader, const toml::node& node) {
  const auto part = reader.part({"perf_model"}, TomlReader::line(node));
  PerfModel out;
  if (!node.is_table()) {
    out.expression = reader.expression(node, "perf_model");
    return out;
  }
  const toml::table& table = reader.table(node, "perf_model");
  reader.check_keys(table, "a perf_model", {"expression", "top_k"});
  if (const auto* at = table.get("expression")) out.expression = reader.expression(*at, "perf_model.expression");
  if (const auto* at = table.get("top_k")) {
    if (!at->is_integer() || at->as_integer()->get() < 1 || at->as_integer()->get() > 1'000'000)
      reader.fail(*at, "perf_model.top_k must be a number of configs, 1 or more");
    out.top_k = static_cast<int>(at->as_integer()->get());
  }
  return out;
}

std::vector<Feature> read_features(TomlReader& reader, const toml::node& node) {
  std::vector<Feature> features;
  for (const auto& [name, expression] : reader.table(node, "features")) {
    reader.note(name);
    features.push_back({std::string(name.str()), reader.expression(expression, "features." + std::string(name.str()))});
  }
  return features;
}

std::vector<Variant> read_variants(TomlReader& reader, const toml::node& node) {
  std::vector<Variant> variants;
  for (const toml::node& entry : reader.array(node, "variants")) {
    const toml::table& table = reader.table(entry, "an entry of variants");
    reader.check_keys(table, "a variant", with(kCommon, {"when"}));
    const auto part =
        reader.part({"variant '" + table["name"].value_or<std::string>("") + "'"}, TomlReader::line(entry));
    Variant variant;
    if (const auto* at = table.get("when")) variant.when = reader.expression(*at, "when");
    if (const auto* at = table.get("name")) variant.name = reader.text(*at, "name");
    if (const auto* at = table.get("source")) variant.source_file = reader.text(*at, "source");
    if (const auto* at = table.get("source_text")) variant.source_text = reader.text(*at, "source_text");
    if (const auto* at = table.get("entry")) variant.entry = reader.text(*at, "entry");
    if (const auto* at = table.get("arch")) variant.arch = reader.text(*at, "arch");
    if (const auto* at = table.get("options")) variant.options = read_options(reader, *at);
    if (const auto* at = table.get("params")) variant.params = read_params(reader, *at);
    if (const auto* at = table.get("derived")) variant.derived = read_derived(reader, *at);
    if (const auto* at = table.get("require")) variant.require = read_require(reader, *at);
    if (const auto* at = table.get("launch")) variant.launch = read_launch(reader, *at);
    if (const auto* at = table.get("args")) variant.args = read_args(reader, *at);
    if (const auto* at = table.get("defaults")) variant.defaults = read_defaults(reader, *at);
    if (const auto* at = table.get("perf_model")) variant.perf_model = read_perf_model(reader, *at);
    if (const auto* at = table.get("features")) variant.features = read_features(reader, *at);
    variants.push_back(std::move(variant));
  }
  return variants;
}

Reference read_reference(TomlReader& reader, const toml::node& node) {
  const auto part = reader.part({"reference"}, TomlReader::line(node));
  const toml::table& table = reader.table(node, "reference");
  reader.check_keys(table, "a reference",
                    {"entry", "source", "source_text", "options", "grid", "block", "shared_bytes", "args"});
  Reference out;
  if (const auto* at = table.get("entry")) out.entry = reader.text(*at, "reference.entry");
  if (const auto* at = table.get("source")) out.source_file = reader.text(*at, "reference.source");
  if (const auto* at = table.get("source_text")) out.source_text = reader.text(*at, "reference.source_text");
  if (const auto* at = table.get("options")) out.options = read_options(reader, *at);
  if (const auto* at = table.get("grid")) out.grid = reader.expressions(*at, "reference.grid");
  if (const auto* at = table.get("block")) out.block = reader.expressions(*at, "reference.block");
  if (const auto* at = table.get("shared_bytes")) out.shared_bytes = reader.expression(*at, "reference.shared_bytes");
  if (const auto* at = table.get("args")) out.args = reader.texts(*at, "reference.args");
  return out;
}

std::vector<TuneAt> read_tune_at(TomlReader& reader, const toml::node& node) {
  std::vector<TuneAt> entries;
  for (const toml::node& each : reader.array(node, "tune_at")) {
    const toml::table& table = reader.table(each, "an entry of tune_at");
    reader.check_keys(table, "an entry of tune_at", {"problem", "weight"});
    TuneAt entry;
    const auto* problem = table.get("problem");
    if (problem == nullptr) reader.fail(each, "an entry of tune_at needs a problem: `problem = { rows = 4096 }`");
    for (const auto& [key, value] : reader.table(*problem, "tune_at.problem")) {
      reader.note(key);
      entry.problem.emplace_back(std::string(key.str()), reader.expression(value, "tune_at.problem"));
    }
    if (const auto* at = table.get("weight")) {
      entry.weight = reader.real(*at, "tune_at.weight");
      if (!(entry.weight > 0)) reader.fail(*at, "tune_at.weight must be more than 0: leave the entry out instead");
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

/// Sets what a kernel's table or the top level of a file says of the things that may be shared.
void read_shared(TomlReader& reader, const toml::table& table, KernelDefinition& out) {
  if (const auto* at = table.get("source")) {
    out.source_file = reader.text(*at, "source");
    out.source_text.clear();
  }
  if (const auto* at = table.get("source_text")) {
    if (table.contains("source")) reader.fail(*at, "source and source_text are both given; keep one");
    out.source_text = reader.text(*at, "source_text");
    out.source_file.clear();
  }
  if (const auto* at = table.get("include")) out.include = reader.texts(*at, "include");
  if (const auto* at = table.get("headers")) out.headers = read_headers(reader, *at);
  if (const auto* at = table.get("options")) out.options = read_options(reader, *at);
  if (const auto* at = table.get("arch")) out.arch = reader.text(*at, "arch");
  if (const auto* at = table.get("macros")) {
    const std::string word = reader.text(*at, "macros");
    if (word != "after_includes" && word != "before_includes")
      reader.fail(*at, "macros must be \"after_includes\" or \"before_includes\"");
    out.macros = word == "before_includes" ? Macros::before_includes : Macros::after_includes;
  }
}

KernelDefinition read_kernel(TomlReader& reader, const toml::table& table, KernelDefinition out) {
  read_shared(reader, table, out);
  if (const auto* at = table.get("name")) out.name = reader.text(*at, "name");
  if (const auto* at = table.get("entry")) out.entry = reader.text(*at, "entry");
  if (const auto* at = table.get("problem")) out.problem = read_problem(reader, *at);
  if (const auto* at = table.get("params")) out.params = read_params(reader, *at);
  if (const auto* at = table.get("configs")) out.configs = read_configs(reader, *at);
  if (const auto* at = table.get("derived")) out.derived = read_derived(reader, *at);
  if (const auto* at = table.get("require")) out.require = read_require(reader, *at);
  if (const auto* at = table.get("launch")) out.launch = read_launch(reader, *at);
  if (const auto* at = table.get("args")) out.args = read_args(reader, *at);
  if (const auto* at = table.get("defaults")) out.defaults = read_defaults(reader, *at);
  if (const auto* at = table.get("variants")) out.variants = read_variants(reader, *at);
  if (const auto* at = table.get("reference")) out.reference = read_reference(reader, *at);
  if (const auto* at = table.get("perf_model")) out.perf_model = read_perf_model(reader, *at);
  if (const auto* at = table.get("features")) out.features = read_features(reader, *at);
  if (const auto* at = table.get("tune_at")) out.tune_at = read_tune_at(reader, *at);
  return out;
}

/// Everything that can be checked is checked here, while the lines are known.
void check(const TomlReader& reader, const KernelDefinition& definition) {
  try {
    Model::make(definition);
  } catch (const Error& error) {
    const std::string place = reader.path() + ":" + std::to_string(reader.line_of(error));
    throw Error(error.code(), place + ": " + error.message(), error.kernel(), error.text(), error.column());
  }
}

std::vector<KernelDefinition> read_file(TomlReader& reader, const toml::table& root) {
  const auto* format = root.get("format");
  if (format == nullptr) reader.fail(1, "`format = 1` is missing: it says how the file is to be read");
  if (!format->is_integer() || format->as_integer()->get() != 1)
    reader.fail(*format, "this jitune reads format = 1; a newer one may be needed");
  KernelDefinition shared;
  shared.base_directory = std::filesystem::absolute(reader.path()).parent_path().string();
  const std::vector<std::string> kernel_keys =
      with(kCommon, {"include", "headers", "macros", "problem", "configs", "variants", "reference", "tune_at"});
  std::vector<KernelDefinition> definitions;
  const auto* kernels = root.get("kernel");
  if (kernels == nullptr) {
    reader.check_keys(root, "a kernel", with({"format"}, with(kernel_keys, {"kernel"})));
    definitions.push_back(read_kernel(reader, root, shared));
    check(reader, definitions.back());
    return definitions;
  }
  reader.check_keys(root, "the top level of a file with several kernels", with({"format", "kernel"}, kShared));
  read_shared(reader, root, shared);
  for (const toml::node& entry : reader.array(*kernels, "kernel")) {
    const toml::table& table = reader.table(entry, "an entry of kernel");
    reader.check_keys(table, "a kernel", kernel_keys);
    const auto part = reader.part({}, TomlReader::line(entry));
    definitions.push_back(read_kernel(reader, table, shared));
    for (size_t i = 0; i + 1 < definitions.size(); ++i)
      if (definitions[i].name == definitions.back().name)
        reader.fail(entry, "two kernels are called '" + definitions[i].name + "'");
    check(reader, definitions.back());
  }
  if (definitions.empty()) reader.fail(*kernels, "there is no kernel in the file");
  return definitions;
}

}  // namespace
}  // namespace space

std::vector<KernelDefinition> load_all(const std::string& path) {
  space::TomlReader reader(path);
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) reader.fail(0, "there is no such file, or it can't be read");
  try {
    return space::read_file(reader, toml::parse_file(path));
  } catch (const toml::parse_error& error) {
    reader.fail(static_cast<int>(error.source().begin.line), "not TOML: " + std::string(error.description()));
  }
}

KernelDefinition load(const std::string& path, const std::string& kernel) {
  std::vector<KernelDefinition> all = load_all(path);
  std::vector<std::string> names;
  for (KernelDefinition& definition : all) {
    if (all.size() == 1 && kernel.empty()) return std::move(definition);
    if (definition.name == kernel) return std::move(definition);
    names.push_back(definition.name);
  }
  const std::string list = space::join(names);
  throw Error(ErrorCode::bad_definition, kernel.empty()
                                             ? path + " holds several kernels; say which one: " + list
                                             : path + ": no kernel is called '" + kernel + "'" +
                                                   space::did_you_mean(kernel, names) + "; there are " + list);
}

}  // namespace jitune
