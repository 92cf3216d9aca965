#include <array>

#include "space/names.hpp"
#include "space/toml_reader.hpp"

namespace jitune::space {
namespace {

struct KindKey {
  const char* key;
  ArgKind kind;
};
constexpr std::array<KindKey, 8> kKinds{{{"in", ArgKind::in},
                                         {"out", ArgKind::out},
                                         {"inout", ArgKind::inout},
                                         {"zeroed", ArgKind::zeroed},
                                         {"scratch", ArgKind::scratch},
                                         {"scalar", ArgKind::scalar},
                                         {"tensor_map", ArgKind::tensor_map},
                                         {"symbol", ArgKind::symbol}}};

std::vector<std::string> keys_of(ArgKind kind, const std::string& own) {
  std::vector<std::string> keys{own, "type"};
  const auto add = [&](std::initializer_list<const char*> more) { keys.insert(keys.end(), more.begin(), more.end()); };
  switch (kind) {
    case ArgKind::in:
      add({"count", "fill", "pass"});
      break;
    case ArgKind::inout:
      add({"count", "fill", "tolerance", "pass"});
      break;
    case ArgKind::out:
    case ArgKind::zeroed:
      add({"count", "tolerance", "pass"});
      break;
    case ArgKind::scratch:
      add({"count", "pass"});
      break;
    case ArgKind::scalar:
      add({"value"});
      break;
    case ArgKind::symbol:
      add({"count", "fill"});
      break;
    case ArgKind::tensor_map:
      add({"over", "dims", "strides_bytes", "box", "element_strides", "swizzle", "interleave", "l2_promotion",
           "oob_fill"});
  }
  return keys;
}

Fill read_fill(TomlReader& reader, const toml::node& node) {
  const std::vector<std::string> known{"normal", "uniform", "integers", "indices", "zeros", "ones", "constant", "file"};
  if (node.is_string()) {
    const std::string word = reader.text(node, "fill");
    if (word == "zeros") return Fill::zeros();
    if (word == "ones") return Fill::ones();
    reader.fail(node, "fill has no word '" + word + "'" + did_you_mean(word, {"zeros", "ones"}) +
                          "; there are \"zeros\" and \"ones\", and tables such as { normal = [0.0, 1.0] }");
  }
  const toml::table& table = reader.table(node, "fill");
  reader.check_keys(table, "fill", known);
  if (table.size() != 1) reader.fail(node, "fill must have one of " + join(known));
  for (const auto& [key, entry] : table) {
    const std::string name(key.str());
    if (name == "indices") return Fill::indices(reader.expression(entry, "fill.indices"));
    if (name == "constant") return Fill::constant(reader.real(entry, "fill.constant"));
    if (name == "file") return Fill::file(reader.text(entry, "fill.file"));
    if (name == "zeros" || name == "ones") reader.fail(entry, "write fill = \"" + name + "\"");
    const toml::array& pair = reader.array(entry, "fill." + name);
    if (pair.size() != 2) reader.fail(entry, "fill." + name + " needs two numbers");
    const double first = reader.real(pair[0], "fill." + name), second = reader.real(pair[1], "fill." + name);
    if (name == "normal") return Fill::normal(first, second);
    return name == "uniform" ? Fill::uniform(first, second) : Fill::integers(first, second);
  }
  return {};
}

Tolerance read_tolerance(TomlReader& reader, const toml::node& node) {
  if (node.is_string()) {
    if (reader.text(node, "tolerance") != "exact")
      reader.fail(node, "tolerance must be \"exact\" or { rtol = ..., atol = ... }");
    return {};
  }
  const toml::table& table = reader.table(node, "tolerance");
  reader.check_keys(table, "tolerance", {"rtol", "atol", "mismatch", "nan_equal"});
  Tolerance tolerance = Tolerance::within(0, 0);
  if (const auto* entry = table.get("rtol")) tolerance.rtol = reader.real(*entry, "tolerance.rtol");
  if (const auto* entry = table.get("atol")) tolerance.atol = reader.real(*entry, "tolerance.atol");
  if (const auto* entry = table.get("mismatch")) tolerance.mismatch = reader.real(*entry, "tolerance.mismatch");
  if (const auto* entry = table.get("nan_equal")) tolerance.nan_equal = reader.flag(*entry, "tolerance.nan_equal");
  return tolerance;
}

std::string read_scalar_value(TomlReader& reader, const toml::node& node) {
  if (!node.is_floating_point()) return reader.expression(node, "value");
  // The digits as TOML prints them read back as the same double.
  std::stringstream text;
  text << *node.as_floating_point();
  return text.str();
}

void read_tensor_map(TomlReader& reader, const toml::table& table, Arg& arg) {
  if (const auto* entry = table.get("over")) arg.over = reader.text(*entry, "over");
  if (const auto* entry = table.get("dims")) arg.dims = reader.expressions(*entry, "dims");
  if (const auto* entry = table.get("strides_bytes")) arg.strides_bytes = reader.expressions(*entry, "strides_bytes");
  if (const auto* entry = table.get("box")) arg.box = reader.expressions(*entry, "box");
  if (const auto* entry = table.get("element_strides"))
    arg.element_strides = reader.expressions(*entry, "element_strides");
  if (const auto* entry = table.get("swizzle")) arg.swizzle = reader.integer(*entry, "swizzle");
  if (const auto* entry = table.get("interleave")) arg.interleave = reader.integer(*entry, "interleave");
  if (const auto* entry = table.get("l2_promotion")) arg.l2_promotion = reader.integer(*entry, "l2_promotion");
  if (const auto* entry = table.get("oob_fill")) {
    const std::string word = reader.text(*entry, "oob_fill");
    if (word != "zeros" && word != "nan") reader.fail(*entry, "oob_fill must be \"zeros\" or \"nan\"");
    arg.oob_nan = word == "nan";
  }
}

Arg read_arg(TomlReader& reader, const toml::node& node) {
  const toml::table& table = reader.table(node, "an entry of args");
  const KindKey* found = nullptr;
  std::string list;
  for (const KindKey& kind : kKinds) {
    list += (list.empty() ? "" : ", ") + std::string(kind.key);
    if (!table.contains(kind.key)) continue;
    if (found != nullptr)
      reader.fail(node, std::string("an arg is `") + found->key + "` or `" + kind.key + "`, not both");
    found = &kind;
  }
  if (found == nullptr) reader.fail(node, "an arg's kind is the key of its name, one of " + list + ": in = \"x\"");
  reader.check_keys(table, std::string("an arg of kind `") + found->key + "`", keys_of(found->kind, found->key));
  Arg arg;
  arg.kind = found->kind;
  const toml::node& name = *table.get(found->key);
  const auto word = name.value_or<std::string>("");
  const auto part = reader.part({word.empty() ? "an arg's name" : "arg '" + word + "'"}, TomlReader::line(name));
  arg.name = reader.text(name, found->key);
  const bool is_read = arg.kind == ArgKind::in || arg.kind == ArgKind::inout || arg.kind == ArgKind::symbol;
  if (is_read) arg.fill = Fill::normal(0, 1);
  if (const auto* entry = table.get("type")) arg.type = reader.text(*entry, "type");
  if (const auto* entry = table.get("count")) arg.count = reader.expression(*entry, "count");
  if (const auto* entry = table.get("value")) arg.value = read_scalar_value(reader, *entry);
  if (const auto* entry = table.get("fill")) arg.fill = read_fill(reader, *entry);
  if (const auto* entry = table.get("tolerance")) arg.tolerance = read_tolerance(reader, *entry);
  if (const auto* entry = table.get("pass")) arg.pass = reader.flag(*entry, "pass");
  if (arg.kind == ArgKind::tensor_map) read_tensor_map(reader, table, arg);
  return arg;
}

}  // namespace

std::vector<Arg> read_args(TomlReader& reader, const toml::node& node) {
  std::vector<Arg> args;
  for (const toml::node& entry : reader.array(node, "args")) args.push_back(read_arg(reader, entry));
  return args;
}

}  // namespace jitune::space
