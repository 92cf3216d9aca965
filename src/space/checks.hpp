#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "space/device.hpp"
#include "space/expression.hpp"

namespace jitune::space {

/// Launch geometry with its expressions parsed. Missing dimensions are left out.
struct LaunchExpressions {
  std::vector<Expression> grid, block, cluster;
  Expression shared_bytes;
  bool cooperative = false;
  bool programmatic_dependent = false;
};

/// What a check found.
struct Verdict {
  EvalStatus status = EvalStatus::ok;  ///< anything but ok rejects
  bool passed = true;
  const Expression* failed = nullptr;  ///< the expression whose status it is
};

/// One thing that a config must pass: a `require` entry, a derived value that must have a value, or a launch limit.
struct Check {
  enum class Kind : uint8_t {
    require,
    derived,
    block_size,
    block_dims,
    grid_dims,
    shared_bytes,
    cluster_size,
    cluster_divides,
    cooperative
  };
  Kind kind = Kind::require;
  std::string name;                            ///< what rejections are reported as
  std::vector<const Expression*> expressions;  ///< of one launch limit: grid first, then cluster
  int slot = -1;                               ///< derived: where the value goes
  int64_t limit = 0;
  size_t split = 0;  ///< cluster_divides: how many of the expressions are the grid's

  /// Evaluates on `cells`; a derived value is stored there.
  Verdict run(std::vector<Cell>& cells) const;
};

/// The launch limits of `device` as checks, as far as they don't depend on slots of `later` (kernel.*).
std::vector<Check> launch_checks(const LaunchExpressions& launch, const DeviceInfo& device,
                                 const std::vector<bool>& later);

/// `division by zero in BM / WM`, or the check's own name.
std::string describe(const Check& check, const Verdict& verdict);

}  // namespace jitune::space
