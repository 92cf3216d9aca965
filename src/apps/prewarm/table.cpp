#include "apps/prewarm/table.hpp"

#include <algorithm>

namespace jitune::prewarm {
namespace {

/// Columns on a terminal, as far as counting code points goes.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace

void Table::add(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::text(int indent) const {
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    widths.push_back(width_of(columns_[i].name));
    for (const auto& row : rows_) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string out;
  const auto add_line = [&](const auto& cell_of) {
    std::string line(static_cast<size_t>(indent), ' ');
    for (size_t i = 0; i < columns_.size(); ++i) {
      const std::string& cell = cell_of(i);
      const std::string gap(widths[i] - width_of(cell), ' ');
      line += (i > 0 ? "  " : "") + (columns_[i].align == Align::right ? gap + cell : cell + gap);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  add_line([&](size_t i) -> const std::string& { return columns_[i].name; });
  for (const auto& row : rows_) add_line([&](size_t i) -> const std::string& { return row[i]; });
  return out;
}

}  // namespace jitune::prewarm
