#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace jitune::exchange {

/// A row of a table, with the line where it begins.
struct CsvRow {
  size_t line = 0;
  std::vector<std::string> cells;
};

/// Reads a table: commas, fields in double quotes where they hold commas or line feeds, quotes in them doubled. Blanks
/// around a field that is not quoted are dropped; empty lines and lines that begin with # are passed over.
std::vector<CsvRow> parse_csv(std::string_view text);

/// A field as parse_csv reads it back.
std::string csv_field(const std::string& text);

}  // namespace jitune::exchange
