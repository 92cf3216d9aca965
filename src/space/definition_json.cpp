#include "space/definition_json.hpp"

#include <algorithm>
#include <filesystem>
#include <type_traits>

#include "base/json.hpp"
#include "space/form.hpp"

namespace jitune::space {
namespace {

// One list of members for each aggregate, used for writing and for reading.
template <class Visit, class T>
void members(Visit& visit, T& it) {
  using Plain = std::remove_const_t<T>;
  if constexpr (std::is_same_v<Plain, Param>) {
    visit("name", it.name), visit("values", it.values);
  } else if constexpr (std::is_same_v<Plain, Derived>) {
    visit("name", it.name), visit("expression", it.expression);
  } else if constexpr (std::is_same_v<Plain, CompileOption>) {
    visit("option", it.option), visit("when", it.when);
  } else if constexpr (std::is_same_v<Plain, ProblemValue>) {
    visit("name", it.name), visit("bucket", it.bucket), visit("ignore", it.ignore);
  } else if constexpr (std::is_same_v<Plain, Fill>) {
    visit("kind", it.kind), visit("low", it.low), visit("high", it.high), visit("bound", it.bound);
    visit("path", it.path);
  } else if constexpr (std::is_same_v<Plain, Tolerance>) {
    visit("exact", it.exact), visit("rtol", it.rtol), visit("atol", it.atol), visit("mismatch", it.mismatch);
    visit("nan_equal", it.nan_equal);
  } else if constexpr (std::is_same_v<Plain, Arg>) {
    visit("kind", it.kind), visit("name", it.name), visit("type", it.type), visit("count", it.count);
    visit("value", it.value), visit("fill", it.fill), visit("tolerance", it.tolerance), visit("pass", it.pass);
    visit("over", it.over), visit("dims", it.dims), visit("strides_bytes", it.strides_bytes), visit("box", it.box);
    visit("element_strides", it.element_strides), visit("swizzle", it.swizzle), visit("interleave", it.interleave);
    visit("l2_promotion", it.l2_promotion), visit("oob_nan", it.oob_nan);
  } else if constexpr (std::is_same_v<Plain, LaunchGeometry>) {
    visit("grid", it.grid), visit("block", it.block), visit("shared_bytes", it.shared_bytes);
    visit("cluster", it.cluster), visit("cooperative", it.cooperative);
    visit("programmatic_dependent", it.programmatic_dependent);
  } else if constexpr (std::is_same_v<Plain, DefaultRule>) {
    visit("when", it.when), visit("config", it.config);
  } else if constexpr (std::is_same_v<Plain, Variant>) {
    visit("when", it.when), visit("name", it.name), visit("source_file", it.source_file);
    visit("source_text", it.source_text), visit("entry", it.entry), visit("arch", it.arch);
    visit("options", it.options), visit("params", it.params), visit("derived", it.derived);
    visit("require", it.require), visit("launch", it.launch), visit("args", it.args), visit("defaults", it.defaults);
    visit("perf_model", it.perf_model), visit("features", it.features);
  } else if constexpr (std::is_same_v<Plain, Feature>) {
    visit("name", it.name), visit("expression", it.expression);
  } else if constexpr (std::is_same_v<Plain, HeaderText>) {
    visit("name", it.name), visit("text", it.text);
  } else if constexpr (std::is_same_v<Plain, Reference>) {
    visit("entry", it.entry), visit("source_file", it.source_file), visit("source_text", it.source_text);
    visit("options", it.options), visit("grid", it.grid), visit("block", it.block);
    visit("shared_bytes", it.shared_bytes), visit("args", it.args);
  } else if constexpr (std::is_same_v<Plain, PerfModel>) {
    visit("expression", it.expression), visit("top_k", it.top_k);  // a function stays in its program
  } else if constexpr (std::is_same_v<Plain, TuneAt>) {
    visit("problem", it.problem), visit("weight", it.weight);
  } else if constexpr (std::is_same_v<Plain, HostReference>) {
    visit("version", it.version);  // the function stays in its program
  } else {
    static_assert(std::is_same_v<Plain, KernelDefinition>);
    visit("name", it.name), visit("source_file", it.source_file), visit("source_text", it.source_text);
    visit("entry", it.entry), visit("include", it.include), visit("options", it.options);
    visit("problem", it.problem), visit("derived", it.derived), visit("require", it.require);
    visit("params", it.params), visit("configs", it.configs), visit("launch", it.launch), visit("args", it.args);
    visit("defaults", it.defaults), visit("variants", it.variants), visit("macros", it.macros), visit("arch", it.arch);
    visit("base_directory", it.base_directory), visit("headers", it.headers), visit("reference", it.reference);
    visit("host_reference", it.host_reference), visit("perf_model", it.perf_model), visit("features", it.features);
    visit("tune_at", it.tune_at);
  }
}

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};
template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <class T>
struct IsPair : std::false_type {};
template <class A, class B>
struct IsPair<std::pair<A, B>> : std::true_type {};

struct Writer {
  Json& json;
  template <class T>
  void operator()(const char* name, const T& value) {
    Json written = write(value);
    if (!written.is_null()) json[name] = std::move(written);
  }
  template <class T>
  static Json write(const T& value) {
    if constexpr (std::is_same_v<T, std::string> || std::is_arithmetic_v<T>) {
      return value;
    } else if constexpr (std::is_enum_v<T>) {
      return static_cast<int>(value);
    } else if constexpr (std::is_same_v<T, Value>) {
      if (value.is_word()) return value.as_word();
      if (value.is_bool()) return value.as_int() != 0;
      return value.as_int();
    } else if constexpr (IsOptional<T>::value) {
      return value ? write(*value) : Json();
    } else if constexpr (IsVector<T>::value) {
      Json list = Json::array();
      for (const auto& each : value) list.push_back(write(each));
      return list;
    } else if constexpr (IsPair<T>::value) {
      return Json::array({write(value.first), write(value.second)});
    } else {
      Json object = Json::object();
      Writer visit{object};
      members(visit, value);
      return object;
    }
  }
};

/// Throws Json::exception where a type does not fit.
struct Reader {
  const Json& json;
  template <class T>
  void operator()(const char* name, T& value) {
    if (const auto found = json.find(name); found != json.end()) read(*found, value);
  }
  template <class T>
  static void read(const Json& from, T& value) {
    if constexpr (std::is_same_v<T, std::string> || std::is_arithmetic_v<T>) {
      from.get_to(value);
    } else if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(from.get<int>());
    } else if constexpr (std::is_same_v<T, Value>) {
      if (from.is_string())
        value = Value(from.get<std::string>());
      else if (from.is_boolean())
        value = Value(from.get<bool>());
      else
        value = Value(from.get<long long>());
    } else if constexpr (IsOptional<T>::value) {
      value.emplace();
      read(from, *value);
    } else if constexpr (IsVector<T>::value) {
      for (const Json& each : from) {
        if constexpr (std::is_same_v<typename T::value_type, ProblemValue>)
          value.emplace_back("");
        else if constexpr (std::is_same_v<typename T::value_type, Value>)
          value.emplace_back(0);
        else
          value.emplace_back();
        read(each, value.back());
      }
    } else if constexpr (IsPair<T>::value) {
      read(from.at(0), value.first);
      read(from.at(1), value.second);
    } else {
      Reader visit{from};
      members(visit, value);
    }
  }
};

}  // namespace

std::string definition_text(const KernelDefinition& definition) {
  return jitune::canonical(Writer::write(definition));
}

Result<KernelDefinition> parse_definition(std::string_view text) {
  try {
    const Json json = Json::parse(text);
    if (!json.is_object()) return Failure{"a stored definition is no JSON object"};
    KernelDefinition definition;
    Reader::read(json, definition);
    return definition;
  } catch (const Json::exception& error) {
    return Failure{std::string("a stored definition can't be read: ") + error.what()};
  }
}

KernelDefinition self_contained(const Model& model) {
  KernelDefinition definition = model.definition();
  const std::filesystem::path base = definition.base_directory.empty() ? "." : definition.base_directory;
  auto fix_fills = [&](std::vector<Arg>& args) {
    for (Arg& arg : args)
      if (arg.fill.kind == Fill::Kind::file)
        arg.fill.path = std::filesystem::absolute(base / arg.fill.path).lexically_normal().string();
  };
  fix_fills(definition.args);
  const auto& forms = model.forms();
  definition.source_text = forms.front()->source_text;
  definition.source_file.clear();
  definition.include = forms.front()->include_dirs;
  if (definition.reference && forms.front()->reference->own_source) {
    definition.reference->source_text = forms.front()->reference->source_text;
    if (!definition.reference->source_file.empty()) definition.include = forms.front()->reference->include_dirs;
    definition.reference->source_file.clear();
  }
  for (size_t i = 0; i < definition.variants.size() && i + 1 < forms.size(); ++i) {
    Variant& variant = definition.variants[i];
    if (variant.args) fix_fills(*variant.args);
    // Without its function it would get the kernel's model instead of none.
    if (variant.perf_model && variant.perf_model->function) variant.perf_model = PerfModel{.expression = "0"};
    if (!variant.source_file && !variant.source_text) continue;
    variant.source_text = forms[i + 1]->source_text;
    variant.source_file.reset();
    for (const std::string& directory : forms[i + 1]->include_dirs)
      if (std::find(definition.include.begin(), definition.include.end(), directory) == definition.include.end())
        definition.include.push_back(directory);
  }
  if (definition.perf_model && definition.perf_model->expression.empty()) definition.perf_model.reset();
  definition.base_directory.clear();
  return definition;
}

}  // namespace jitune::space
