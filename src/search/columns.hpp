#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "search/strategy.hpp"
#include "space/point.hpp"
#include "space/valid_set.hpp"

namespace jitune::search {

/// The numbers that are known of configs beforehand, as features: a number becomes its place among those of some random
/// points. Numbers that say no more than one param or another number are left out. Not thread-safe: it remembers.
class Columns {
 public:
  /// No columns at all.
  Columns() = default;
  Columns(const space::ValidSet& valid, const ConfigNumbers& numbers);

  size_t size() const { return columns_.size(); }
  std::vector<std::string> names() const;
  /// Appends a code for each column.
  void append(const space::Point& point, std::vector<uint8_t>& codes) const;

 private:
  struct Column {
    std::string name;
    size_t number = 0;            // which of the numbers
    std::vector<double> borders;  // codes 1, 2, ... begin there; 0: below them or not known
  };
  const space::ValidSet* valid_ = nullptr;
  ConfigNumbers numbers_;
  std::vector<Column> columns_;
  mutable std::unordered_map<space::Point, std::vector<uint8_t>, space::PointHash> known_;
};

}  // namespace jitune::search
