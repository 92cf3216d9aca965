#include "space/form_builder.hpp"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/files.hpp"
#include "space/names.hpp"
#include "space/space.hpp"

namespace jitune::space {
namespace {

constexpr size_t kMaxParams = 64;

std::string absolute(const std::string& base, const std::string& path) {
  const std::filesystem::path full = std::filesystem::path(base) / path;
  return std::filesystem::absolute(full).lexically_normal().string();
}

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

void FormBuilder::fail(const std::string& message, const std::string& text, int column) {
  throw Error(ErrorCode::bad_definition, message, "", text, column);
}

FormBuilder::FormBuilder(const KernelDefinition& definition, Symbols& symbols)
    : definition_(definition), symbols_(symbols), form_(std::make_shared<Model::Form>()) {
  name_slots();
}

void FormBuilder::check_new_name(const std::string& name, const char* what, SlotFacts facts) {
  if (!is_identifier(name)) fail(std::string(what) + "'s name must be letters, digits and underscores", name, 1);
  if (const std::string why = why_reserved(name); !why.empty())
    fail(std::string(what) + " can't be called '" + name + "': " + why);
  const size_t slot = static_cast<size_t>(symbols_.slot(name));
  if (facts_.size() <= slot) facts_.resize(slot + 1);
  if (facts_[slot].known) {
    const char* other = facts_[slot].problem ? "a problem value" : facts_[slot].param ? "a param" : "a derived value";
    fail(std::string(what) + " has the name '" + name + "', which " + other + " has already");
  }
  facts.known = true;
  facts_[slot] = facts;
}

void FormBuilder::name_slots() {
  const auto mark = [&](const std::string& name) -> SlotFacts& {
    const size_t slot = static_cast<size_t>(symbols_.slot(name));
    if (facts_.size() <= slot) facts_.resize(slot + 1);
    facts_[slot].known = true;
    return facts_[slot];
  };
  for (const std::string& name : device_names()) mark(name).device = true;
  for (const std::string& name : kernel_names()) mark(name).kernel = true;
  for (const ProblemValue& value : definition_.problem) {
    SlotFacts& facts = mark(value.name);
    facts.problem = true;
    facts.coarse = value.ignore || !value.bucket.empty();
  }
}

int FormBuilder::problem_slot(const std::string& name) const {
  const int slot = symbols_.find(name);
  return slot >= 0 && static_cast<size_t>(slot) < facts_.size() && facts_[static_cast<size_t>(slot)].problem ? slot
                                                                                                             : -1;
}

std::string FormBuilder::refuse(int slot, unsigned allowed) const {
  if (static_cast<size_t>(slot) >= facts_.size() || !facts_[static_cast<size_t>(slot)].known) return "unknown";
  const SlotFacts& facts = facts_[static_cast<size_t>(slot)];
  if (facts.kernel && (allowed & kKernel) == 0)
    return "is known only after compiling; it may be used in launch geometry and in counts of scratch";
  if (facts.device && (allowed & kDevice) == 0) return "can't be used here: only problem values can";
  if ((facts.param || facts.derived) && (allowed & kParams) == 0)
    return std::string("is ") + (facts.param ? "a param" : "a derived value") + "; only problem values" +
           ((allowed & kDevice) != 0 ? " and device.* " : " ") + "can be used here";
  if ((allowed & kNoConfig) != 0 && facts.config)
    return "depends on the config; what callers give and check is one for all configs";
  if ((allowed & kNoCoarse) != 0 && facts.coarse)
    return std::string(facts.derived ? "is derived from a problem value that has" : "has") +
           " a bucket or `ignore`, so one build must serve many of its values; pass it as a scalar argument";
  return "";
}

Expression FormBuilder::parse(const std::string& context, const std::string& text, unsigned allowed) {
  try {
    Expression expression = Expression::parse(text, symbols_, [&](int slot) { return refuse(slot, allowed); });
    check_kinds(expression);
    return expression;
  } catch (const Error& error) {
    throw Error(error.code(), context + ": " + error.message(), "", error.text(), error.column());
  }
}

void FormBuilder::check_kinds(const Expression& expression) {
  const auto column = [&](int slot) { return static_cast<int>(expression.text().find(symbols_.name(slot))) + 1; };
  const auto refuse_kind = [&](int slot, const std::string& message) {
    throw Error(ErrorCode::bad_expression, message, "", expression.text(), column(slot));
  };
  for (const int slot : expression.number_slots()) {
    const SlotFacts& facts = facts_[static_cast<size_t>(slot)];
    const std::string& name = symbols_.name(slot);
    if (facts.kind_known && facts.is_word)
      refuse_kind(slot, "'" + name + "' holds words, which can only be compared, chosen and measured by sizeof");
    if (!facts.problem) continue;
    form_->needs_number.emplace(slot, expression.text());
    if (const auto other = form_->needs_type.find(slot); other != form_->needs_type.end())
      refuse_kind(slot, "'" + name + "' is a number here, but " + other->second + " needs a type word");
  }
  for (const int slot : expression.type_slots()) {
    const SlotFacts& facts = facts_[static_cast<size_t>(slot)];
    const std::string& name = symbols_.name(slot);
    if (facts.device || facts.kernel || (facts.kind_known && !facts.is_type))
      refuse_kind(slot, "sizeof measures type words, which '" + name + "' does not hold");
    if (!facts.problem) continue;
    form_->needs_type.emplace(slot, expression.text());
    if (const auto other = form_->needs_number.find(slot); other != form_->needs_number.end())
      refuse_kind(slot, "'" + name + "' is a type word here, but a number in " + other->second);
  }
}

void FormBuilder::need_type(int slot, const std::string& what) {
  form_->needs_type.emplace(slot, what);
  if (const auto other = form_->needs_number.find(slot); other != form_->needs_number.end())
    fail("'" + symbols_.name(slot) + "' is " + what + ", which needs a type word, but it is computed with as a number",
         other->second);
}

std::shared_ptr<Model::Form> FormBuilder::build() {
  read_params();
  read_configs();
  read_derived();
  for (size_t i = 0; i < definition_.require.size(); ++i)
    form_->require.push_back(parse("require", definition_.require[i], kAnyConfig));
  read_entry_and_options();
  read_macros();
  read_launch();
  form_->args = build_args(*this);
  read_defaults();
  read_source();
  read_reference();
  read_perf_model();
  read_features();
  form_->launch_pattern = launch_pattern_json(definition_);
  form_->space_definition = space_definition_json(definition_);
  return form_;
}

/// The text of a source; `name` becomes its path, or `NAME.cu` for one that is given as text.
std::string FormBuilder::load_source(const std::string& file, const std::string& text, std::string& name) const {
  if (file.empty() == text.empty())
    fail(text.empty() ? "the source is missing: give a file or a text"
                      : "source_file and source_text are both given; keep one");
  name = definition_.name + ".cu";
  if (file.empty()) return text;
  name = absolute(definition_.base_directory, file);
  Result<std::string> read = read_file(name);
  if (!read) fail("the source can't be read: " + read.error(), file);
  if (read->empty()) fail("the source file is empty", file);
  return std::move(*read);
}

void FormBuilder::read_source() {
  form_->source_text = load_source(definition_.source_file, definition_.source_text, form_->source_name);
  // What lies beside the source is found as a C++ compiler would find it.
  if (!definition_.source_file.empty())
    form_->include_dirs.push_back(std::filesystem::path(form_->source_name).parent_path().string());
  read_header_texts();
  for (const std::string& directory : definition_.include) {
    const std::string path = without_slash(absolute(definition_.base_directory, directory));
    std::error_code ignored;
    if (!std::filesystem::is_directory(path, ignored)) fail("include: there is no directory '" + path + "'", directory);
    if (std::find(form_->include_dirs.begin(), form_->include_dirs.end(), path) == form_->include_dirs.end())
      form_->include_dirs.push_back(path);
  }
}

void FormBuilder::read_header_texts() {
  std::set<std::string> names;
  for (const HeaderText& header : definition_.headers) {
    if (header.name.empty() || header.name.find_first_of(std::string_view("\n\"<>\0", 5)) != std::string::npos)
      fail("headers: a name is empty or can't stand in an #include", header.name);
    if (header.text.find('\0') != std::string::npos) fail("headers: a text holds a zero byte", header.name);
    if (!names.insert(header.name).second) fail("headers: two texts have the same name", header.name);
  }
  form_->header_texts = definition_.headers;
}

void FormBuilder::read_params() {
  std::vector<Param> params = definition_.params;
  if (!definition_.configs.empty()) {
    if (!params.empty()) fail("params and configs are both given; a space is a grid of params or a list of configs");
    for (const auto& config : definition_.configs) {
      for (const auto& [name, value] : config) {
        const std::string& wanted = name;
        auto at = std::find_if(params.begin(), params.end(), [&](const Param& param) { return param.name == wanted; });
        if (at == params.end()) at = params.insert(at, Param{name, {}});
        if (std::find(at->values.begin(), at->values.end(), value) == at->values.end()) at->values.push_back(value);
      }
    }
  }
  if (params.size() > kMaxParams)
    fail("there are " + std::to_string(params.size()) + " params; at most " + std::to_string(kMaxParams) +
         " are possible");
  std::sort(params.begin(), params.end(), [](const Param& a, const Param& b) { return a.name < b.name; });
  Count product = 1;
  for (const Param& param : params) {
    if (param.values.empty()) fail("the param '" + param.name + "' has no values; give at least one");
    const Value& first = param.values.front();
    SlotFacts facts;
    facts.param = facts.config = facts.kind_known = true;
    facts.is_word = first.is_word();
    facts.is_type = true;
    ParamForm form{param.name, -1, param.values, {}};
    for (const Value& value : param.values) {
      if (value.is_int() != first.is_int() || value.is_word() != first.is_word())
        fail("the param '" + param.name + "' mixes kinds of values; they must be all integers, all bools or all words");
      if (value.is_word() && (value.as_word().empty() || !Value::parse(value.as_word()).is_word() ||
                              value.as_word().find_first_of("\n\r\"'{}") != std::string::npos))
        fail("the param '" + param.name +
                 "' has a word that can't be one: write numbers and bools without quotes, and no "
                 "quotes, braces or line ends inside a word",
             value.as_word());
      if (std::count(param.values.begin(), param.values.end(), value) > 1)
        fail("the param '" + param.name + "' has the value " + value.text() + " twice");
      facts.is_type &= value.is_word() && find_type(value.as_word()) != nullptr;
      form.cells.push_back(to_cell(value, symbols_));
    }
    check_new_name(param.name, "a param", facts);
    form.slot = symbols_.slot(param.name);
    if (product > static_cast<Count>(-1) / param.values.size())
      fail("the space has 2^128 points or more; fewer params or values are needed");
    product *= param.values.size();
    form_->params.push_back(std::move(form));
  }
}

void FormBuilder::read_configs() {
  form_->is_list = !definition_.configs.empty();
  std::set<std::vector<int>> seen;
  for (size_t i = 0; i < definition_.configs.size(); ++i) {
    const auto& config = definition_.configs[i];
    const std::string where = "config " + std::to_string(i + 1);
    std::vector<int> indices;
    for (const ParamForm& param : form_->params) {
      const Value* found = nullptr;
      for (const auto& [name, value] : config) {
        if (name != param.name) continue;
        if (found != nullptr) fail(where + " gives '" + name + "' twice");
        found = &value;
      }
      if (found == nullptr) fail(where + " has no value for '" + param.name + "'; every config needs all params");
      const auto at = std::find(param.values.begin(), param.values.end(), *found);
      indices.push_back(static_cast<int>(at - param.values.begin()));
    }
    if (!seen.insert(indices).second) fail(where + " is in the list twice");
    form_->configs.push_back(std::move(indices));
  }
}

void FormBuilder::read_derived() {
  for (const Derived& derived : definition_.derived) {
    SlotFacts facts;
    facts.derived = true;
    check_new_name(derived.name, "a derived value", facts);
  }
  std::vector<DerivedForm> parsed;
  for (const Derived& derived : definition_.derived)
    parsed.push_back({derived.name, symbols_.slot(derived.name),
                      parse("derived " + derived.name, derived.expression, kAnyConfig), false});

  std::vector<int> state(parsed.size(), 0);  // 1: being placed, 2: placed
  const std::function<void(size_t)> place = [&](size_t i) {
    if (state[i] == 2) return;
    if (state[i] == 1)
      fail("the derived value '" + parsed[i].name + "' is computed from itself", parsed[i].expression.text());
    state[i] = 1;
    SlotFacts& facts = facts_[static_cast<size_t>(parsed[i].slot)];
    for (const int slot : parsed[i].expression.slots()) {
      for (size_t j = 0; j < parsed.size(); ++j)
        if (parsed[j].slot == slot) place(j);
      facts.coarse |= facts_[static_cast<size_t>(slot)].coarse;
      facts.config |= facts_[static_cast<size_t>(slot)].config;
    }
    state[i] = 2;
    form_->derived.push_back(parsed[i]);
  };
  for (size_t i = 0; i < parsed.size(); ++i) place(i);
}

int FormBuilder::brace(const std::string& name, int column, const std::string& text, const char* where,
                       unsigned allowed) {
  const int slot = symbols_.find(name);
  std::string reason = slot < 0 ? "unknown" : refuse(slot, allowed);
  if (reason.empty()) return slot;
  if (reason == "unknown") {
    std::vector<std::string> known;
    for (int i = 0; i < symbols_.size(); ++i)
      if (refuse(i, allowed).empty()) known.push_back(symbols_.name(i));
    fail(std::string(where) + ": '" + name + "' is no param, derived or problem value" + did_you_mean(name, known),
         text, column);
  }
  if (facts_[static_cast<size_t>(slot)].device) reason = "can't stand in braces; make a derived value of it";
  fail(std::string(where) + ": '" + name + "' " + reason, text, column);
}

TextTemplate FormBuilder::parse_entry(const std::string& entry, unsigned allowed, bool& is_template) {
  if (entry.empty()) fail("the entry is missing: `k` for an extern \"C\" kernel, `k<{BLOCK}>` for a template");
  if (entry.find_first_of("\n\r;\"") != std::string::npos) fail("the entry must be one name expression", entry, 1);
  const size_t colons = entry.rfind("::", 0) == 0 ? 2 : 0;
  if (!is_identifier(entry.substr(colons, 1))) fail("the entry must begin with the kernel's name", entry, 1);
  TextTemplate parsed = TextTemplate::parse(
      entry, [&](const std::string& name, int column) { return brace(name, column, entry, "entry", allowed); });
  is_template = entry.find('<') != std::string::npos || entry.find("::") != std::string::npos;
  if (!is_template && !is_identifier(entry))
    fail("a plain entry is the name of an extern \"C\" kernel; a template needs < >", entry, 1);
  return parsed;
}

std::vector<OptionForm> FormBuilder::parse_options(const std::vector<CompileOption>& list, unsigned allowed) {
  std::vector<OptionForm> options;
  for (const CompileOption& given : list) {
    const std::string& text = given.option;
    if (const std::string why = why_refused(text); !why.empty()) fail("options: " + why, text, 1);
    OptionForm option;
    option.option = TextTemplate::parse(
        text, [&](const std::string& name, int column) { return brace(name, column, text, "options", allowed); });
    if (!given.when.empty()) option.when = parse("when of an option", given.when, allowed | kDevice);
    options.push_back(std::move(option));
  }
  return options;
}

void FormBuilder::read_entry_and_options() {
  constexpr unsigned kAllowed = kProblem | kParams | kNoCoarse;
  form_->entry = parse_entry(definition_.entry, kAllowed, form_->is_template);
  form_->options = parse_options(definition_.options, kAllowed);
  form_->arch = definition_.arch;
  if (!form_->arch.empty()) {
    const std::string digits = form_->arch.rfind("sm_", 0) == 0 ? form_->arch.substr(3) : "";
    const size_t end = digits.find_first_not_of("0123456789");
    const std::string suffix = end == std::string::npos ? "" : digits.substr(end);
    if (digits.size() - suffix.size() < 2 || digits.size() - suffix.size() > 3 ||
        !(suffix.empty() || suffix == "a" || suffix == "f"))
      fail("arch must look like sm_90 or sm_90a", form_->arch, 1);
  }
}

void FormBuilder::read_macros() {
  form_->defines_before_includes = definition_.macros == Macros::before_includes;
  const auto add = [&](const std::string& name, int slot) {
    if (const std::string why = why_not_macro(name, form_->defines_before_includes); !why.empty())
      fail("'" + name + "' would become a macro, but " + why + "; use it in the braces of entry, or call it otherwise");
    form_->macros.emplace_back(name, slot);
  };
  for (const ParamForm& param : form_->params)
    if (!form_->entry.uses(param.slot)) add(param.name, param.slot);
  for (DerivedForm& derived : form_->derived) {
    // What comes from a coarse problem value is for launch arithmetic only: one build serves many of its values.
    if (form_->entry.uses(derived.slot) || facts_[static_cast<size_t>(derived.slot)].coarse) continue;
    derived.is_macro = true;
    add(derived.name, derived.slot);
  }
  std::sort(form_->macros.begin(), form_->macros.end());
}

LaunchExpressions FormBuilder::parse_launch(const LaunchGeometry& launch, unsigned allowed) {
  const auto list = [&](const std::vector<std::string>& texts, const char* what) {
    if (texts.size() > 3) fail(std::string("launch.") + what + " has more than three dimensions");
    std::vector<Expression> parsed;
    for (const std::string& text : texts) parsed.push_back(parse(std::string("launch.") + what, text, allowed));
    return parsed;
  };
  if (launch.grid.empty() || launch.block.empty()) fail("launch needs grid and block, each of one to three dimensions");
  LaunchExpressions parsed;
  parsed.grid = list(launch.grid, "grid");
  parsed.block = list(launch.block, "block");
  parsed.cluster = list(launch.cluster, "cluster");
  parsed.shared_bytes = parse("launch.shared_bytes", launch.shared_bytes.empty() ? "0" : launch.shared_bytes,
                              allowed & ~static_cast<unsigned>(kKernel));
  parsed.cooperative = launch.cooperative;
  parsed.programmatic_dependent = launch.programmatic_dependent;
  return parsed;
}

void FormBuilder::read_launch() {
  form_->launch = parse_launch(definition_.launch, kAnyConfig | kKernel);
  for (const auto* part : {&form_->launch.block, &form_->launch.cluster})
    for (const Expression& expression : *part)
      for (const int slot : expression.slots())
        if (facts_[static_cast<size_t>(slot)].kernel)
          fail("launch: only the grid can depend on kernel.*, since that depends on the block", expression.text(), 1);
}

}  // namespace jitune::space
