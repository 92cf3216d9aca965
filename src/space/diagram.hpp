#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "space/point.hpp"
#include "space/space.hpp"

namespace jitune::space {

/// The valid points of a space as a decision diagram: one level a param, equal subtrees held once, each node with the
/// number of points below it. So points are counted exactly, ranked, unranked and tested without being held, as long
/// as constraints leave enough subtrees equal. Immutable, safe to read from many threads.
class Diagram {
 public:
  struct Limits {
    uint64_t steps = 4'000'000;          ///< values tried while building; about a second
    uint64_t memory_bytes = 24'000'000;  ///< of the finished diagram
  };
  /// Nothing when a limit is reached first. A subtree is walked once for each combination of those values that later
  /// constraints read.
  static std::optional<Diagram> build(const Space::State& state, const Limits& limits);

  Count size() const { return counts_[root_]; }
  Point at(Count rank) const;  ///< rank < size()
  bool contains(const Point& point) const;
  Count rank(const Point& point) const;  ///< of a point that is contained
  /// All points in the order of ranks, until `visit` returns false.
  void visit(const std::function<bool(const Point&)>& visit) const;
  uint64_t memory_bytes() const;

 private:
  class Builder;
  bool walk(uint32_t node, size_t level, Point& point, const std::function<bool(const Point&)>& visit) const;
  uint32_t child(uint32_t node, size_t index) const { return edges_[first_[node] + index]; }

  std::vector<int> order_;        // level -> param
  std::vector<uint32_t> widths_;  // by level
  std::vector<uint32_t> first_;   // by node: its edges; node 0 has no points, node 1 is the end
  std::vector<uint32_t> edges_;
  std::vector<Count> counts_;
  uint32_t root_ = 0;
};

}  // namespace jitune::space
