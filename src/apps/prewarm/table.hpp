#pragma once

#include <string>
#include <vector>

namespace jitune::prewarm {

/// A table for people: a header row, columns two spaces apart, numbers to the right.
class Table {
 public:
  enum class Align : unsigned char { left, right };
  struct Column {
    std::string name;
    Align align = Align::left;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// Adds a row; missing cells at the end stay empty.
  void add(std::vector<std::string> cells);

  bool empty() const { return rows_.empty(); }

  /// Header and rows, each line ended by a newline, no spaces before it. `indent` spaces in front of each line.
  std::string text(int indent = 0) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace jitune::prewarm
