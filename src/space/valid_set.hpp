#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "space/diagram.hpp"
#include "space/point.hpp"
#include "space/space.hpp"

namespace jitune::space {

/// The valid points of a space for those that search it: tested, drawn, ranked, and each one's neighbours. Nothing that
/// it returns is ever invalid. Where the space is too large and too entangled to be counted (counted() is false) points
/// are drawn by rejection, and the rest works the same. Immutable, safe to read from many threads.
class ValidSet {
 public:
  explicit ValidSet(Space space, const Diagram::Limits& limits = {});

  const Space& space() const { return space_; }
  size_t params() const { return widths_.size(); }
  int width(size_t param) const { return widths_[param]; }  ///< how many values it has
  const std::string& name(size_t param) const;
  const Value& value(size_t param, size_t index) const;

  bool counted() const { return diagram_.has_value(); }
  Count size() const { return diagram_ ? diagram_->size() : 0; }  ///< 0 when not counted
  Point at(Count rank) const { return diagram_->at(rank); }       ///< only when counted
  Count rank(const Point& point) const { return diagram_->rank(point); }
  const std::optional<Diagram>& diagram() const { return diagram_; }

  bool contains(const Point& point) const;
  Config config(const Point& point) const;
  std::optional<Point> point(const Config& config) const;  ///< nothing for what is no point, or not valid

  /// A uniform draw; nothing when the space is empty, or no valid point was found.
  std::optional<Point> sample(Random& random) const;

  /// Appends the valid points that differ from `point` in one param.
  void hamming(const Point& point, std::vector<Point>& out) const;

  /// A valid point that differs from `point` in `param` alone, drawn at random; nothing when there is none.
  std::optional<Point> vary(const Point& point, size_t param, Random& random) const;

  /// A valid point whose indices are each at most one away from `point`'s, at least one of them not equal. Drawn by a
  /// few tries: nothing does not mean that there is none.
  std::optional<Point> box(const Point& point, Random& random) const;

  /// `point` when it is valid; else a valid one near it: by steps of one index, then of one value, else any.
  std::optional<Point> repair(const Point& point, Random& random) const;

  uint64_t memory_bytes() const { return diagram_ ? diagram_->memory_bytes() : 0; }

 private:
  Space space_;
  std::vector<int> widths_;
  std::vector<size_t> varied_;  // params with more than one value
  std::optional<Diagram> diagram_;
};

/// One param of a space that is not a kernel's.
struct PlainParam {
  std::string name;
  std::vector<Value> values;
};

/// A space without a kernel: of measurements made elsewhere, or made up. `configs` (indices of values, in the order of
/// `params`), when not empty, are its points. Throws jitune::Error{bad_expression} for a constraint that can't be read.
Space plain_space(const std::vector<PlainParam>& params, const std::vector<std::string>& require,
                  const std::vector<Point>& configs = {});

}  // namespace jitune::space
