#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "space/config.hpp"

namespace jitune::space {

/// An unsigned count that may exceed 64 bits: products of params do.
using Count = unsigned __int128;
std::string to_string(Count count);

/// How many points one constraint rejects (a point is charged to the first constraint that rejects it).
struct Rejections {
  std::string constraint;  ///< its text, or `overflow in DERIVED = ...` and the like
  Count points = 0;
};

struct SpaceCount {
  Count product = 0;   ///< points before constraints
  Count examined = 0;  ///< points that were decided; less than product when the limit stopped the count
  Count valid = 0;
  bool complete = true;
  std::vector<Rejections> rejections;  ///< in the order of the definition, zeros included
};

/// All valid configs of a kernel for one problem and device. Nothing is enumerated until asked, memory is O(params).
/// Order of enumeration is canonical: params sorted by name, values in the definition's order, last name fastest; for
/// explicit configs, their own order. Immutable and safe to read from many threads.
/// A config is valid where every `require` entry holds, every derived value has a value, and the launch is within the
/// device's limits (as far as those do not depend on kernel.*).
class Space {
 public:
  struct State;
  explicit Space(std::shared_ptr<const State> state);

  Count product() const;

  /// Calls `visit` with each valid config until it returns false. A depth-first walk that tests a constraint as soon as
  /// all its names have values, so that a rejected prefix costs one test.
  void visit(const std::function<bool(const Config&)>& visit) const;

  /// Valid configs, at most `limit` of them.
  std::vector<Config> list(size_t limit) const;

  /// Counts valid configs and what each constraint rejects. Stops after `limit` nodes of the walk (complete = false).
  SpaceCount count(uint64_t limit = 50'000'000) const;

  /// Draws a valid config uniformly by rejection, from a counter-based generator: equal seeds and draws give equal
  /// configs. Falls back to a random walk down the tree where rejection finds nothing in 10,000 tries; nothing when the
  /// space is empty or that fails too.
  std::optional<Config> sample(uint64_t seed, uint64_t draw) const;

  /// Whether `config` is one of the space's points, whatever the constraints say.
  bool contains(const Config& config) const;

 private:
  std::shared_ptr<const State> state_;
};

}  // namespace jitune::space
