#include <algorithm>
#include <array>

#include "base/json.hpp"
#include "space/form_builder.hpp"

namespace jitune::space {
namespace {

Json as_json(const Value& value) {
  if (value.is_int()) return value.as_int();
  if (value.is_bool()) return value.as_int() != 0;
  return value.as_word();
}

const char* word(ArgKind kind) {
  constexpr std::array<const char*, 8> kWords{"in",      "out",    "inout",      "zeroed",
                                              "scratch", "scalar", "tensor_map", "symbol"};
  return kWords[static_cast<size_t>(kind)];
}

Json as_json(const Fill& fill) {
  using Kind = Fill::Kind;
  switch (fill.kind) {
    case Kind::none:
      return nullptr;
    case Kind::normal:
      return {{"normal", {fill.low, fill.high}}};
    case Kind::uniform:
      return {{"uniform", {fill.low, fill.high}}};
    case Kind::integers:
      return {{"integers", {fill.low, fill.high}}};
    case Kind::indices:
      return {{"indices", fill.bound}};
    case Kind::zeros:
      return "zeros";
    case Kind::ones:
      return "ones";
    case Kind::constant:
      return {{"constant", fill.low}};
    case Kind::file:
      return {{"file", fill.path}};
  }
  return nullptr;
}

Json as_json(const Arg& arg) {
  Json json{{"kind", word(arg.kind)}, {"name", arg.name}, {"type", arg.type}, {"pass", arg.pass}};
  if (!arg.count.empty()) json["count"] = arg.count;
  if (!arg.value.empty()) json["value"] = arg.value;
  if (arg.fill.kind != Fill::Kind::none) json["fill"] = as_json(arg.fill);
  if (arg.tolerance) {
    const Tolerance& given = *arg.tolerance;
    json["tolerance"] = given.exact ? Json("exact")
                                    : Json{{"rtol", given.rtol},
                                           {"atol", given.atol},
                                           {"mismatch", given.mismatch},
                                           {"nan_equal", given.nan_equal}};
  }
  if (arg.kind != ArgKind::tensor_map) return json;
  json["over"] = arg.over;
  json["dims"] = arg.dims;
  json["strides_bytes"] = arg.strides_bytes;
  json["box"] = arg.box;
  json["element_strides"] = arg.element_strides;
  json["swizzle"] = arg.swizzle;
  json["interleave"] = arg.interleave;
  json["l2_promotion"] = arg.l2_promotion;
  json["oob_nan"] = arg.oob_nan;
  return json;
}

/// As the author wrote it, not as it is for one bucket: the winner of another bucket is of the same kernel and may
/// serve as the nearest one. Order carries no meaning.
Json tune_at_json(const KernelDefinition& definition) {
  std::vector<std::string> entries;
  for (const TuneAt& entry : definition.tune_at) {
    Json problem = Json::object();
    for (const auto& [name, text] : entry.problem) problem[name] = text;
    entries.push_back(jitune::canonical(Json::array({problem, entry.weight})));
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

}  // namespace

std::string launch_pattern_json(const KernelDefinition& definition) {
  Json args = Json::array();
  for (const Arg& arg : definition.args) args.push_back(as_json(arg));
  Json derived = Json::object();
  for (const Derived& value : definition.derived) derived[value.name] = value.expression;
  const LaunchGeometry& launch = definition.launch;
  Json json{{"args", args},
            {"derived", derived},
            {"launch",
             {{"grid", launch.grid},
              {"block", launch.block},
              {"shared_bytes", launch.shared_bytes},
              {"cluster", launch.cluster},
              {"cooperative", launch.cooperative},
              {"programmatic_dependent", launch.programmatic_dependent}}}};
  // Only where there are any: the keys of all other kernels stay what they are.
  if (!definition.tune_at.empty()) json["tune_at"] = tune_at_json(definition);
  return jitune::canonical(json);
}

std::string reference_pattern_json(const Reference& reference) {
  Json options = Json::array();
  for (const CompileOption& option : reference.options) options.push_back({option.option, option.when});
  return jitune::canonical(Json{{"entry", reference.entry},
                                {"options", options},
                                {"grid", reference.grid},
                                {"block", reference.block},
                                {"shared_bytes", reference.shared_bytes},
                                {"args", reference.args}});
}

std::string space_definition_json(const KernelDefinition& definition) {
  Json json{{"require", definition.require}};
  if (!definition.configs.empty()) {
    Json configs = Json::array();
    for (const auto& config : definition.configs) {
      Json entry = Json::object();
      for (const auto& [name, value] : config) entry[name] = as_json(value);
      configs.push_back(entry);
    }
    json["configs"] = configs;
    return jitune::canonical(json);
  }
  Json params = Json::object();
  for (const Param& param : definition.params) {
    Json values = Json::array();
    for (const Value& value : param.values) values.push_back(as_json(value));
    params[param.name] = values;
  }
  json["params"] = params;
  return jitune::canonical(json);
}

}  // namespace jitune::space
