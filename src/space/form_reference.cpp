// The trusted kernel of a definition: Reference.
#include <algorithm>
#include <filesystem>

#include "jitune/reference_data.hpp"
#include "space/form_builder.hpp"
#include "space/instance_state.hpp"
#include "space/names.hpp"

namespace jitune::space {
namespace {

bool is_passed_to_reference(const Arg& arg) {
  return arg.kind != ArgKind::scratch && arg.kind != ArgKind::tensor_map && arg.kind != ArgKind::symbol;
}

bool is_output(ArgKind kind) {
  return kind == ArgKind::out || kind == ArgKind::inout || kind == ArgKind::zeroed;
}

}  // namespace

std::vector<int> FormBuilder::reference_args(const Reference& reference) const {
  std::vector<int> indices;
  std::vector<std::string> possible;
  for (size_t i = 0; i < definition_.args.size(); ++i) {
    if (!is_passed_to_reference(definition_.args[i])) continue;
    possible.push_back(definition_.args[i].name);
    if (reference.args.empty()) indices.push_back(static_cast<int>(i));
  }
  for (const std::string& name : reference.args) {
    const auto at = std::find_if(definition_.args.begin(), definition_.args.end(),
                                 [&](const Arg& arg) { return arg.name == name; });
    if (at == definition_.args.end())
      fail("args: no arg of the kernel is called '" + name + "'" + did_you_mean(name, possible), name);
    if (!is_passed_to_reference(*at))
      fail("args: '" + name + "' is scratch, a tensor map or a symbol; a reference takes buffers and scalars only",
           name);
    indices.push_back(static_cast<int>(at - definition_.args.begin()));
  }
  for (const int index : indices) {
    const ArgForm& arg = form_->args[static_cast<size_t>(index)];
    const Expression& decides = arg.arg.kind == ArgKind::scalar ? arg.value : arg.count;
    for (const int slot : decides.slots())
      if (facts_[static_cast<size_t>(slot)].config)
        fail("args: '" + arg.arg.name + "' depends on the config; list those that the reference takes", decides.text());
  }
  for (size_t i = 0; i < definition_.args.size(); ++i)
    if (is_output(definition_.args[i].kind) &&
        std::find(indices.begin(), indices.end(), static_cast<int>(i)) == indices.end())
      fail("args: the output '" + definition_.args[i].name + "' is missing; it would be compared with nothing");
  if (indices.empty()) fail("the kernel has no buffer or scalar that a reference could take");
  return indices;
}

void FormBuilder::read_reference() {
  if (!definition_.reference) return;
  const Reference& given = *definition_.reference;
  constexpr unsigned kAllowed = kProblem | kParams | kNoConfig;
  try {
    ReferenceForm form;
    form.own_source = !given.source_file.empty() || !given.source_text.empty();
    if (form.own_source)
      form.source_text = load_source(given.source_file, given.source_text, form.source_name);
    else
      form.source_text = form_->source_text, form.source_name = form_->source_name;
    form.include_dirs = form_->include_dirs;
    if (!given.source_file.empty())  // what lies beside it is found first
      form.include_dirs.insert(form.include_dirs.begin(),
                               std::filesystem::path(form.source_name).parent_path().string());
    form.entry = parse_entry(given.entry, kAllowed | kNoCoarse, form.is_template);
    form.options = parse_options(given.options, kAllowed | kNoCoarse);
    LaunchGeometry launch;
    launch.grid = given.grid;
    launch.block = given.block;
    launch.shared_bytes = given.shared_bytes;
    form.launch = parse_launch(launch, kAllowed | kDevice);
    form.args = reference_args(given);
    form.pattern = reference_pattern_json(given);
    form_->reference = std::move(form);
  } catch (const Error& error) {
    throw Error(error.code(), "reference: " + error.message(), error.kernel(), error.text(), error.column());
  }
}

bool Instance::has_reference() const {
  return state_->form->reference.has_value();
}

Result<Instance::ReferenceSpec> Instance::reference(const Config& config) const {
  if (!has_reference()) return Failure{"kernel '" + model().name() + "' has no reference"};
  const ReferenceForm& form = *state_->form->reference;
  const auto failure = [&](const std::string& message) {
    return Failure{"kernel '" + model().name() + "', its reference: " + message};
  };
  Result<std::vector<Cell>> cells = state_->cells(config);
  if (!cells) return cells.failure();
  Result<BuildSpec> built = build(config);
  if (!built) return built.failure();
  ReferenceSpec spec;
  spec.build = std::move(*built);
  const auto text = [&](int slot) {
    const std::string& name = state_->symbols.name(slot);
    const TypeInfo* type = state_->problem.count(name) != 0 && state_->problem.at(name).is_word()
                               ? find_type(state_->problem.at(name).as_word())
                               : nullptr;
    if (type != nullptr && type->header[0] != '\0') spec.build.headers.emplace_back(type->header);
    return state_->source_text(slot, *cells, &config);
  };
  spec.build.entry = form.entry.fill(text);
  spec.build.is_template = form.is_template;
  spec.build.source_text = form.source_text;
  spec.build.source_name = form.source_name;
  if (form.own_source) spec.build.defines.clear();
  spec.build.options.clear();
  for (const OptionForm& option : form.options) {
    const Result<int64_t> holds =
        option.when.empty() ? Result<int64_t>(1) : number("when of an option", option.when, *cells);
    if (!holds) return failure(holds.error());
    if (*holds != 0) spec.build.options.push_back(option.option.fill(text));
  }
  auto& headers = spec.build.headers;
  std::sort(headers.begin(), headers.end());
  headers.erase(std::unique(headers.begin(), headers.end()), headers.end());
  Result<Geometry> geometry = geometry_of(form.launch, *cells, state_->device);
  if (!geometry) return failure(geometry.error());
  spec.geometry = *geometry;
  spec.build.include_dirs = form.include_dirs;
  spec.args = form.args;
  return spec;
}

Instance::ReferencePattern Instance::reference_pattern() const {
  if (!has_reference()) return {};
  const ReferenceForm& form = *state_->form->reference;
  return {form.source_text, form.include_dirs, form.pattern};
}

}  // namespace jitune::space

namespace jitune {

const ReferenceData::View& ReferenceData::find(std::string_view name, bool output, size_t element_bytes) const {
  const std::string quoted = "'" + std::string(name) + "'";
  for (const View& view : views_) {
    if (view.name != name) continue;
    if (space::is_output(view.kind) != output)
      throw Error(ErrorCode::bad_arguments, quoted + (output ? " is no output" : " is an output: use out()"));
    if (view.element_bytes != element_bytes)
      throw Error(ErrorCode::bad_arguments, "an element of " + quoted + " has " + std::to_string(view.element_bytes) +
                                                " bytes, the type asked for " + std::to_string(element_bytes));
    return view;
  }
  throw Error(ErrorCode::bad_arguments, "a reference function asked for " + quoted + ", which is no arg");
}

const Value& ReferenceData::problem(const std::string& name) const {
  const auto found = problem_.find(name);
  if (found == problem_.end())
    throw Error(ErrorCode::bad_arguments, "a reference function asked for the problem value '" + name + "'");
  return found->second;
}

}  // namespace jitune
