#pragma once

#include <memory>
#include <vector>

#include "space/checks.hpp"
#include "space/form.hpp"
#include "space/space.hpp"

namespace jitune::space {

/// Which checks can run once the first `level` params of an order have values.
struct Plan {
  std::vector<int> order;                ///< indices of params
  std::vector<std::vector<int>> levels;  ///< indices of checks; one more level than params
  std::vector<Count> below;              ///< points under a node of a level
  int last_check_level = 0;
};

/// Attaches each check to the level of `order` at which all that it reads has a value.
Plan make_plan(const Model::Form& form, const std::vector<Check>& checks, std::vector<int> order, size_t slots);

struct Space::State {
  std::shared_ptr<const Model> model;  ///< owns the form and its expressions; null for a space without a kernel
  std::shared_ptr<const Model::Form> form;
  std::vector<Cell> base;     ///< problem and device; params and derived values unset
  std::vector<Check> checks;  ///< require entries in the definition's order, launch limits, derived values
  size_t constraints = 0;     ///< how many of them are not derived values
  Plan canonical;             ///< params by name
  Plan quick;                 ///< params that constraints name first, for counting

  /// Sets up checks and plans once form and base are set. `symbols` are those that the form's slots are of.
  void prepare(const DeviceInfo& device, const Symbols& symbols);

  Count product() const;

  /// Indices of `config`'s values in the order of params; nothing when it is not one of the points.
  std::optional<std::vector<int>> indices(const Config& config) const;
  Config config(const std::vector<int>& indices) const;

  /// Sets params and runs every check. `failed` is the index of the check that rejects, or -1.
  Verdict run_all(const std::vector<int>& indices, std::vector<Cell>& cells, int& failed) const;
};

/// What a Space is made of. For this room and for tests.
const std::shared_ptr<const Space::State>& state_of(const Space& space);

}  // namespace jitune::space
