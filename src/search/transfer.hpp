#pragma once

#include <utility>
#include <vector>

#include "search/model.hpp"

namespace jitune::search {

/// What records of other problems, devices or sources say about the points of a space.
class Transfer {
 public:
  Transfer(const space::ValidSet& valid, const std::vector<Record>& records);
  bool empty() const { return sources_.empty(); }

  /// At most `count` points, each chosen so that together they do well everywhere: the one that lowers most the mean,
  /// over the records, of the log of how far the best chosen is from the record's best (greedy cover).
  std::vector<space::Point> portfolio(size_t count) const;

  /// For each record that is large enough: a point's time among the record's own as a standard score, or what a forest
  /// makes of the record where it does not have the point; and how much the record counts.
  std::vector<std::pair<Hint, double>> hints() const;

 private:
  struct Source {
    std::vector<std::pair<space::Point, double>> times;  // log, fastest first
    double weight = 1;
  };
  const space::ValidSet& valid_;
  std::vector<Source> sources_;
};

}  // namespace jitune::search
