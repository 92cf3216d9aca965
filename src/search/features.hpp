#pragma once

#include <cstdint>
#include <vector>

#include "search/columns.hpp"
#include "search/forest.hpp"
#include "space/valid_set.hpp"

namespace jitune::search {

/// Turns points into rows of features. Each param gives its value's place. Two params with numbers give their product:
/// what a time depends on is often one of them (threads of a block, elements of a tile), and a tree that can only cut
/// along params needs many cuts, and so many points, to see that. A param whose values are divided by different powers
/// of two gives that power: whole warps, full transactions and bank conflicts hang on it, and places do not show it.
/// What else is known of a config follows.
class Features {
 public:
  explicit Features(const space::ValidSet& valid, const ConfigNumbers& numbers = {});

  /// Where there are too many products to use all of them: chooses others.
  void choose(Random& random);

  /// Appends the row of `point`, which may be followed by further features. All rows of a fit need the same choice.
  void append(const space::Point& point, std::vector<uint8_t>& codes) const;

 private:
  struct Pair {
    size_t a = 0, b = 0;  // params
    double lowest = 0, scale = 0;
  };
  struct Divisors {
    size_t param = 0;
    std::vector<uint8_t> powers;  // of each value: how often two divides it
  };
  void note_divisors(size_t param);
  const space::ValidSet& valid_;
  std::vector<Divisors> divisors_;
  std::vector<std::vector<double>> logs_;  // of each param's values; empty where they are not positive numbers
  std::vector<Pair> pairs_;
  size_t used_ = 0;  // of the pairs, the first so many
  Columns columns_;
};

}  // namespace jitune::search
