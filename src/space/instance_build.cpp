#include <algorithm>
#include <set>

#include "space/instance_state.hpp"

namespace jitune::space {
namespace {

void add_header(const std::string& word, std::set<std::string>& headers) {
  const TypeInfo* type = find_type(word);
  if (type != nullptr && type->header[0] != '\0') headers.insert(type->header);
}

Result<std::array<int64_t, 3>> dimensions(const char* what, const std::vector<Expression>& expressions,
                                          const std::vector<Cell>& cells, int64_t missing) {
  std::array<int64_t, 3> out{missing, missing, missing};
  for (size_t i = 0; i < expressions.size(); ++i) {
    const Result<int64_t> value = number(what, expressions[i], cells);
    if (!value) return value.failure();
    out[i] = *value;
  }
  return out;
}

std::array<uint32_t, 3> narrow(const std::array<int64_t, 3>& numbers) {
  return {static_cast<uint32_t>(numbers[0]), static_cast<uint32_t>(numbers[1]), static_cast<uint32_t>(numbers[2])};
}

}  // namespace

void set_kernel_cells(const KernelFacts& facts, const Symbols& symbols, std::vector<Cell>& cells) {
  const bool is_known = facts.regs > 0;  // no kernel does without registers
  const auto set = [&](const char* name, bool known, int64_t value) {
    if (known) cells[static_cast<size_t>(symbols.find(name))] = {Cell::Kind::number, value};
  };
  set("kernel.regs", is_known, facts.regs);
  set("kernel.static_smem_bytes", is_known || facts.static_smem_bytes > 0, facts.static_smem_bytes);
  set("kernel.local_bytes", is_known || facts.local_bytes > 0, facts.local_bytes);
  set("kernel.max_blocks_per_sm", facts.max_blocks_per_sm > 0, facts.max_blocks_per_sm);
}

Result<Geometry> geometry_of(const LaunchExpressions& launch, std::vector<Cell>& cells, const DeviceInfo& device) {
  const std::vector<bool> nothing_later(cells.size(), false);
  for (const Check& check : launch_checks(launch, device, nothing_later)) {
    const Verdict verdict = check.run(cells);
    if (verdict.status != EvalStatus::ok || !verdict.passed) return Failure{describe(check, verdict)};
  }
  const auto grid = dimensions("grid", launch.grid, cells, 1);
  if (!grid) return grid.failure();
  const auto block = dimensions("block", launch.block, cells, 1);
  if (!block) return block.failure();
  const auto cluster = dimensions("cluster", launch.cluster, cells, launch.cluster.empty() ? 0 : 1);
  if (!cluster) return cluster.failure();
  const Result<int64_t> shared = number("shared_bytes", launch.shared_bytes, cells);
  if (!shared) return shared.failure();
  Geometry geometry;
  geometry.grid = narrow(*grid);
  geometry.block = narrow(*block);
  geometry.cluster = narrow(*cluster);
  geometry.shared_bytes = static_cast<uint32_t>(*shared);
  geometry.cooperative = launch.cooperative;
  geometry.programmatic_dependent = launch.programmatic_dependent;
  return geometry;
}

Result<Geometry> Instance::geometry(const Config& config, const KernelFacts& facts) const {
  Result<std::vector<Cell>> cells = state_->cells(config);
  if (!cells) return cells.failure();
  set_kernel_cells(facts, state_->symbols, *cells);
  const LaunchExpressions& launch = state_->form->launch;
  Result<Geometry> found = geometry_of(launch, *cells, state_->device);
  if (!found)
    return Failure{"kernel '" + state_->model->name() + "': " + found.error() + " rejects " + short_text(config) +
                   " for " + short_text(state_->problem)};
  const Geometry& geometry = *found;
  if (launch.cooperative && facts.max_blocks_per_sm > 0) {
    const uint64_t blocks = uint64_t{geometry.grid[0]} * geometry.grid[1] * geometry.grid[2];
    const uint64_t resident =
        static_cast<uint64_t>(facts.max_blocks_per_sm) * static_cast<uint64_t>(state_->device.sm_count);
    if (blocks > resident)
      return Failure{"kernel '" + state_->model->name() + "': a cooperative launch of " + std::to_string(blocks) +
                     " blocks, but only " + std::to_string(resident) + " fit the device at once; " +
                     short_text(config)};
  }
  return geometry;
}

Result<BuildSpec> Instance::build(const Config& config) const {
  const Model::Form& form = *state_->form;
  const Result<std::vector<Cell>> cells = state_->cells(config);
  if (!cells) return cells.failure();
  std::set<std::string> headers;
  const auto text = [&](int slot) {
    const Cell& cell = (*cells)[static_cast<size_t>(slot)];
    if (cell.kind == Cell::Kind::word) add_header(state_->symbols.word_text(cell.value), headers);
    return state_->source_text(slot, *cells, &config);
  };
  BuildSpec spec;
  spec.source_text = form.source_text;
  spec.source_name = form.source_name;
  spec.include_dirs = form.include_dirs;
  spec.header_texts = form.header_texts;
  spec.entry = form.entry.fill(text);
  spec.is_template = form.is_template;
  for (const auto& [name, slot] : form.macros) {
    const std::string value = text(slot);
    // `2 -X` must not become `2 --1`.
    spec.defines.emplace_back(name, value[0] == '-' ? "(" + value + ")" : value);
  }
  spec.defines_before_includes = form.defines_before_includes;
  for (const OptionForm& option : form.options) {
    if (!option.when.empty()) {
      const Result<int64_t> holds = number("when of an option", option.when, *cells);
      if (!holds) return Failure{"kernel '" + state_->model->name() + "': " + holds.error()};
      if (*holds == 0) continue;
    }
    spec.options.push_back(option.option.fill(text));
  }
  spec.headers.assign(headers.begin(), headers.end());
  spec.arch = form.arch.empty() ? state_->device.arch() : form.arch;
  return spec;
}

Instance::BuildPattern Instance::build_pattern() const {
  const Model::Form& form = *state_->form;
  const std::vector<Cell>& base = state_->space_state->base;
  std::set<std::string> headers;
  std::set<int> reached;  // slots that may reach the source
  const auto text = [&](int slot) {
    reached.insert(slot);
    const std::string& name = state_->symbols.name(slot);
    return state_->problem.count(name) != 0 ? state_->source_text(slot, base, nullptr) : "{" + name + "}";
  };
  BuildPattern pattern;
  pattern.source_text = form.source_text;
  pattern.include_dirs = form.include_dirs;
  pattern.header_texts = form.header_texts;
  pattern.entry = form.entry.fill(text);
  for (const OptionForm& option : form.options)
    pattern.options.push_back(option.option.fill(text) + (option.when.empty() ? "" : " when " + option.when.text()));
  for (const auto& [name, slot] : form.macros) {
    reached.insert(slot);
    pattern.macros.push_back(name);
  }
  for (const DerivedForm& derived : form.derived) {
    if (reached.count(derived.slot) == 0) continue;
    for (std::string& macro : pattern.macros)
      if (macro == derived.name) macro += " = " + derived.expression.text();
  }
  for (const ParamForm& param : form.params)
    for (const Value& value : param.values)
      if (reached.count(param.slot) != 0) add_header(value.text(), headers);
  for (const auto& [name, value] : state_->problem)
    if (reached.count(state_->symbols.find(name)) != 0) add_header(value.text(), headers);
  pattern.headers.assign(headers.begin(), headers.end());
  pattern.defines_before_includes = form.defines_before_includes;
  pattern.arch = form.arch.empty() ? state_->device.arch() : form.arch;
  return pattern;
}

}  // namespace jitune::space
