#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "space/form.hpp"
#include "space/instance.hpp"
#include "space/space_state.hpp"

namespace jitune::space {

struct Instance::State {
  std::shared_ptr<const Model> model;
  std::shared_ptr<const Model::Form> form;
  ProblemValues problem, bucketed;
  DeviceInfo device;
  Symbols symbols;  ///< the model's, and the words of this problem
  std::shared_ptr<const Space::State> space_state;
  std::optional<Space> space;

  /// Problem, device, params and derived values of `config`; the failure says why it can't be used. A config is only
  /// looked at as far as its params and derived values: constraints are reject()'s.
  Result<std::vector<Cell>> cells(const Config& config) const;

  /// The text of a slot's value in kernel source.
  std::string source_text(int slot, const std::vector<Cell>& cells, const Config* config) const;
};

/// The number that `expression` has, or a failure with `what` and the text.
Result<int64_t> number(const std::string& what, const Expression& expression, const std::vector<Cell>& cells);

/// The numbers of a launch whose expressions are known; the failure names the limit that rejects it.
Result<Geometry> geometry_of(const LaunchExpressions& launch, std::vector<Cell>& cells, const DeviceInfo& device);

/// Writes kernel.* as far as it is known.
void set_kernel_cells(const KernelFacts& facts, const Symbols& symbols, std::vector<Cell>& cells);

/// The type of an arg: its own, or the problem's. Nothing for `bytes`.
std::optional<Type> type_of(const ArgForm& arg, const std::vector<Cell>& cells);

/// The parts of ArgSpec that need a config. In instance_args.cpp.
Result<ArgSpec> make_arg(const ArgForm& form, const std::vector<Cell>& cells, const std::string& base_directory);

/// Whether a tensor map's numbers are ones that the driver takes, and lie within its buffer.
Result<void> check_tensor_map(const ArgSpec& map, const ArgSpec& buffer);

}  // namespace jitune::space
