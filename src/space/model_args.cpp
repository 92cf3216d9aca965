#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "space/form_builder.hpp"
#include "space/names.hpp"

namespace jitune::space {
namespace {

bool is_output(ArgKind kind) {
  return kind == ArgKind::out || kind == ArgKind::inout || kind == ArgKind::zeroed;
}
bool is_buffer(ArgKind kind) {
  return is_output(kind) || kind == ArgKind::in || kind == ArgKind::scratch;
}
bool is_floating(Type type) {
  return type == Type::half || type == Type::bfloat16 || type == Type::float32 || type == Type::float64 ||
         type == Type::fp8_e4m3 || type == Type::fp8_e5m2;
}

/// Reads all of `text` as a decimal number, `inf` and `nan` included.
bool read_decimal(const std::string& text, double& out) {
  const char* begin = text.data();
  const char* end = begin + text.size();
  if (begin != end && *begin == '+') ++begin;
  const auto [stop, error] = std::from_chars(begin, end, out);
  return error == std::errc() && stop == end && begin != end;
}

class ArgBuilder {
 public:
  ArgBuilder(FormBuilder& builder, const Arg& arg) : builder_(builder), arg_(arg), where_("arg '" + arg.name + "'") {
    form_.arg = arg;
  }

  ArgForm build(const std::vector<Arg>& all) {
    check_name();
    if (arg_.kind == ArgKind::tensor_map)
      read_tensor_map(all);
    else if (!arg_.over.empty() || !arg_.dims.empty() || !arg_.box.empty() || !arg_.strides_bytes.empty())
      fail("over, dims, strides_bytes and box belong to a tensor_map");
    read_type(arg_.kind == ArgKind::tensor_map && arg_.type.empty() ? all[static_cast<size_t>(form_.over)].type
                                                                    : arg_.type);
    if (arg_.kind == ArgKind::scalar)
      read_scalar();
    else if (!arg_.value.empty())
      fail("only a scalar has a value");
    if (is_buffer(arg_.kind) || arg_.kind == ArgKind::symbol) {
      read_count();
      read_fill();
    }
    read_tolerance();
    return std::move(form_);
  }

 private:
  [[noreturn]] void fail(const std::string& message, const std::string& text = {}) const {
    FormBuilder::fail(where_ + ": " + message, text, text.empty() ? 0 : 1);
  }

  void check_name() {
    std::string rest = arg_.name;
    if (arg_.kind == ArgKind::symbol)  // may lie in a namespace
      for (size_t at = rest.find("::"); at != std::string::npos; at = rest.find("::")) rest = rest.substr(at + 2);
    if (!is_identifier(rest)) FormBuilder::fail("an arg's name must be letters, digits and underscores", arg_.name);
    if (!arg_.pass && !is_buffer(arg_.kind)) fail("pass = false is for buffers that a tensor_map describes");
  }

  void read_type(const std::string& word) {
    if (word.empty()) fail("the type is missing: a type word, a problem value that holds one, or `bytes`");
    if (word == "bytes") {
      form_.is_bytes = true;
      if (arg_.kind == ArgKind::scalar || arg_.kind == ArgKind::tensor_map)
        fail("bytes can't be the type here; name an element type", word);
      return;
    }
    if (const TypeInfo* type = find_type(word); type != nullptr) {
      form_.type = type->type;
      return;
    }
    form_.type_slot = builder_.problem_slot(word);
    if (form_.type_slot >= 0) return builder_.need_type(form_.type_slot, "the type of " + where_);
    std::vector<std::string> known{"bytes"};
    for (int i = 0; i <= static_cast<int>(Type::boolean); ++i) known.emplace_back(type_info(static_cast<Type>(i)).word);
    for (const ProblemValue& value : builder_.definition().problem) known.push_back(value.name);
    if (word.find('*') != std::string::npos) fail("a buffer's type is its element's: write the type without *", word);
    fail("'" + word + "' is no type word and no problem value" + did_you_mean(word, known) +
             ". Structs can't be arguments: pointers inside them could be neither copied nor checked; pass their parts "
             "as "
             "scalars and buffers",
         word);
  }

  void read_scalar() {
    if (!arg_.count.empty()) fail("a scalar has no count");
    if (arg_.value.empty()) fail("a scalar needs a value: jit-prewarm and tuning without a caller pass it");
    if (form_.type == Type::fp8_e4m3 || form_.type == Type::fp8_e5m2)
      fail("scalars of fp8 types are not possible; pass a float and convert it in the kernel", arg_.type);
    if (read_decimal(arg_.value, form_.decimal) && arg_.value.find_first_not_of("+-0123456789") != std::string::npos) {
      form_.is_decimal = true;
      if (form_.type && !is_floating(*form_.type))
        fail("the value is no integer, but the type is " + std::string(type_info(*form_.type).word), arg_.value);
      return;
    }
    form_.value = builder_.parse(where_ + ", value", arg_.value, kAnyConfig);
  }

  void read_count() {
    if (arg_.count.empty()) fail("count is missing: the number of elements, an expression");
    unsigned allowed = kAnyConfig;
    if (arg_.kind == ArgKind::scratch) allowed |= kKernel;
    if (is_output(arg_.kind)) allowed |= kNoConfig;
    form_.count = builder_.parse(where_ + ", count", arg_.count, allowed);
  }

  void read_fill() {
    const Fill& fill = arg_.fill;
    using Kind = Fill::Kind;
    if (arg_.kind == ArgKind::out || arg_.kind == ArgKind::zeroed || arg_.kind == ArgKind::scratch) {
      if (fill.kind != Kind::none)
        fail("a fill is for what the kernel reads (in, inout, symbol); this is poisoned or zeroed before every run");
      return;
    }
    if (fill.kind == Kind::none) form_.arg.fill = form_.is_bytes ? Fill::zeros() : Fill::normal(0, 1);
    if (fill.kind == Kind::normal && form_.is_bytes) form_.arg.fill = Fill::zeros();
    if (!std::isfinite(fill.low) || !std::isfinite(fill.high)) fail("the numbers of fill must be finite");
    if (fill.kind == Kind::normal && fill.high < 0) fail("fill: the standard deviation is negative");
    if ((fill.kind == Kind::uniform || fill.kind == Kind::integers) && fill.low > fill.high)
      fail("fill: the lower bound is above the upper one");
    if (fill.kind == Kind::integers && (fill.low != std::floor(fill.low) || fill.high != std::floor(fill.high)))
      fail("fill: the bounds of integers must be integers");
    if (fill.kind == Kind::file && fill.path.empty()) fail("fill: the file's path is empty");
    if (fill.kind != Kind::indices) return;
    if (form_.is_bytes || (form_.type && (is_floating(*form_.type) || *form_.type == Type::boolean)))
      fail("fill = indices needs an integer type", arg_.type);
    form_.bound = builder_.parse(where_ + ", fill indices", fill.bound, kAnyConfig);
  }

  void read_tolerance() {
    if (!arg_.tolerance) return;
    if (!is_output(arg_.kind)) fail("a tolerance is for outputs (out, inout, zeroed)");
    const Tolerance& given = *arg_.tolerance;
    if (given.exact) return;
    if (form_.is_bytes) fail("bytes can only be compared exactly");
    const auto bad = [](double number) { return !(number >= 0) || !std::isfinite(number); };
    if (bad(given.rtol) || bad(given.atol)) fail("rtol and atol must be 0 or more");
    if (!(given.mismatch >= 0 && given.mismatch <= 1)) fail("mismatch is a share of the elements, from 0 to 1");
  }

  std::vector<Expression> parse_list(const char* what, const std::vector<std::string>& texts) {
    std::vector<Expression> list;
    for (const std::string& text : texts) list.push_back(builder_.parse(where_ + ", " + what, text, kAnyConfig));
    return list;
  }

  void read_tensor_map(const std::vector<Arg>& all) {
    const auto over = std::find_if(all.begin(), all.end(), [&](const Arg& other) { return other.name == arg_.over; });
    if (arg_.over.empty()) fail("a tensor_map needs `over`: the buffer arg that it describes");
    if (over == all.end()) fail("no arg is called '" + arg_.over + "'", arg_.over);
    if (!is_buffer(over->kind)) fail("'" + arg_.over + "' is no buffer; a tensor_map describes one", arg_.over);
    form_.over = static_cast<int>(over - all.begin());
    const size_t rank = arg_.dims.size();
    if (rank < 1 || rank > 5) fail("dims must have one to five entries, innermost first");
    if (arg_.box.size() != rank) fail("box must have as many entries as dims");
    if (arg_.strides_bytes.size() != rank - 1)
      fail("strides_bytes must have one entry less than dims: none for the innermost");
    if (!arg_.element_strides.empty() && arg_.element_strides.size() != rank)
      fail("element_strides must have as many entries as dims, or none");
    const auto one_of = [](int value, std::initializer_list<int> list) {
      return std::find(list.begin(), list.end(), value) != list.end();
    };
    if (!one_of(arg_.swizzle, {0, 32, 64, 128})) fail("swizzle must be 0, 32, 64 or 128 bytes");
    if (!one_of(arg_.interleave, {0, 16, 32})) fail("interleave must be 0, 16 or 32 bytes");
    if (!one_of(arg_.l2_promotion, {0, 64, 128, 256})) fail("l2_promotion must be 0, 64, 128 or 256 bytes");
    if (!arg_.count.empty()) fail("a tensor_map has no count; its extent is dims");
    form_.dims = parse_list("dims", arg_.dims);
    form_.strides_bytes = parse_list("strides_bytes", arg_.strides_bytes);
    form_.box = parse_list("box", arg_.box);
    form_.element_strides = parse_list("element_strides", arg_.element_strides);
  }

  FormBuilder& builder_;
  const Arg& arg_;
  std::string where_;
  ArgForm form_;
};

}  // namespace

std::vector<ArgForm> build_args(FormBuilder& builder) {
  const std::vector<Arg>& all = builder.definition().args;
  std::set<std::string> names;
  std::vector<ArgForm> forms;
  for (const Arg& arg : all) {
    if (!names.insert(arg.name).second) FormBuilder::fail("two args are called '" + arg.name + "'");
    forms.push_back(ArgBuilder(builder, arg).build(all));
  }
  for (const Arg& arg : all) {
    const bool is_seen = std::any_of(all.begin(), all.end(), [&](const Arg& other) { return other.over == arg.name; });
    if (!arg.pass && !is_seen)
      FormBuilder::fail("arg '" + arg.name +
                        "' has pass = false, but no tensor_map is over it, so the kernel can't see it");
  }
  return forms;
}

}  // namespace jitune::space
