#include "exchange/csv.hpp"

namespace jitune::exchange {
namespace {

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

/// Reads from a position in the text to behind the end of a row.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  bool at_end() const { return at_ >= text_.size(); }
  size_t line() const { return line_; }

  bool skip_line_without_row() {
    const size_t end = std::min(text_.find('\n', at_), text_.size());
    const std::string line = trimmed(std::string(text_.substr(at_, end - at_)));
    if (!line.empty() && line[0] != '#') return false;
    at_ = end + 1;
    ++line_;
    return true;
  }

  std::vector<std::string> row() {
    std::vector<std::string> cells;
    do cells.push_back(cell());
    while (!at_end() && text_[at_++] == ',');
    ++line_;
    return cells;
  }

 private:
  /// Stops at the comma or line feed after the cell.
  std::string cell() {
    std::string plain, quoted;
    bool was_quoted = false;
    for (; !at_end() && text_[at_] != ',' && text_[at_] != '\n'; ++at_) {
      if (text_[at_] == '"' && !was_quoted && trimmed(plain).empty()) {
        quoted = inside_quotes();
        was_quoted = true;
      } else {
        plain += text_[at_];
      }
    }
    return was_quoted ? quoted : trimmed(plain);
  }

  /// From an opening quote to the closing one.
  std::string inside_quotes() {
    std::string content;
    for (++at_; !at_end(); ++at_) {
      if (text_[at_] == '"' && (at_ + 1 >= text_.size() || text_[at_ + 1] != '"')) return content;
      if (text_[at_] == '"') ++at_;
      if (text_[at_] == '\n') ++line_;
      content += text_[at_];
    }
    return content;
  }

  std::string_view text_;
  size_t at_ = 0, line_ = 1;
};

}  // namespace

std::vector<CsvRow> parse_csv(std::string_view text) {
  std::vector<CsvRow> rows;
  Reader reader(text);
  while (!reader.at_end()) {
    if (reader.skip_line_without_row()) continue;
    const size_t line = reader.line();
    rows.push_back({line, reader.row()});
  }
  return rows;
}

std::string csv_field(const std::string& text) {
  const bool bare = !text.empty() && text.find_first_of(",\"\n\r") == std::string::npos && text[0] != ' ' &&
                    text[0] != '#' && text.back() != ' ' && text[0] != '\t' && text.back() != '\t';
  if (bare || text.empty()) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace jitune::exchange
