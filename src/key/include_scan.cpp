#include "key/include_scan.hpp"

#include <cctype>

namespace jitune::key {
namespace {

constexpr int kEnd = -1;

bool is_word_char(int c) {
  return c == '_' || (c > 0 && c < 128 && std::isalnum(c) != 0);
}
bool is_blank(int c) {
  return c == ' ' || c == '\t' || c == '\v' || c == '\f' || c == '\r';
}

/// Walks a text as translation phases 2 and 3 see it: a backslash at the end of a line joins it with the next.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {
    if (text_.substr(0, 3) == "\xEF\xBB\xBF") at_ = 3;
  }

  std::vector<Include> run() {
    for (int c = peek(); c != kEnd; c = peek()) {
      if (c == '\n') {
        line_start_ = true;
        take();
      } else if (is_blank(c)) {
        take();
      } else if (skip_comment()) {
        // A comment leaves the start of a line a start.
      } else if (line_start_ && (c == '#' || (c == '%' && peek_second() == ':'))) {
        take();
        if (c == '%') take();
        line_start_ = false;
        directive();
      } else {
        line_start_ = false;
        token(c);
      }
    }
    return std::move(found_);
  }

 private:
  size_t after_splices(size_t at) const {
    while (at < text_.size() && text_[at] == '\\') {
      size_t end = at + 1;
      if (end < text_.size() && text_[end] == '\r') ++end;
      if (end >= text_.size() || text_[end] != '\n') break;
      at = end + 1;
    }
    return at;
  }

  int at(size_t position) const { return position < text_.size() ? static_cast<unsigned char>(text_[position]) : kEnd; }

  int peek() {
    at_ = after_splices(at_);
    return at(at_);
  }

  int peek_second() { return peek() == kEnd ? kEnd : at(after_splices(at_ + 1)); }

  int take() {
    const int c = peek();
    if (c != kEnd) ++at_;
    return c;
  }

  bool skip_comment() {
    if (peek() != '/') return false;
    const int second = peek_second();
    if (second == '/') {
      while (peek() != kEnd && peek() != '\n') take();
      return true;
    }
    if (second != '*') return false;
    take();
    take();
    for (int previous = 0, c = take(); c != kEnd; previous = c, c = take())
      if (previous == '*' && c == '/') break;
    return true;
  }

  std::string word() {
    std::string text;
    while (is_word_char(peek())) text += static_cast<char>(take());
    return text;
  }

  void token(int c) {
    if (c == '"' || c == '\'') {
      literal(c);
    } else if (std::isdigit(c) != 0) {
      // A number takes its digit separators with it: the quote in 1'000 opens no literal.
      while (is_word_char(peek()) || peek() == '.' || (peek() == '\'' && is_word_char(peek_second()))) take();
    } else if (is_word_char(c)) {
      const std::string text = word();
      if (peek() == '"' && (text == "R" || text == "u8R" || text == "uR" || text == "UR" || text == "LR"))
        raw_literal();
    } else {
      take();
    }
  }

  void literal(int quote) {
    take();
    for (int c = peek(); c != kEnd && c != '\n'; c = peek()) {
      take();
      if (c == quote) return;
      if (c == '\\' && peek() != '\n') take();
    }
  }

  void raw_literal() {
    take();
    // Within a raw string a backslash at a line's end is a backslash: look at the bytes themselves.
    const size_t open = text_.find('(', at_);
    if (open == std::string_view::npos || open - at_ > 16) return;
    const std::string close = ')' + std::string(text_.substr(at_, open - at_)) + '"';
    const size_t end = text_.find(close, open);
    at_ = end == std::string_view::npos ? text_.size() : end + close.size();
  }

  void skip_blanks() {
    while (is_blank(peek()) || skip_comment())
      if (is_blank(peek())) take();
  }

  void directive() {
    skip_blanks();
    const std::string name = word();
    if (name != "include" && name != "include_next" && name != "import") return;
    skip_blanks();
    Include include;
    include.next = name == "include_next";
    const int first = peek();
    if (first == '"' || first == '<') {
      take();
      const int close = first == '<' ? '>' : '"';
      while (peek() != close) {
        if (peek() == kEnd || peek() == '\n') return;
        include.name += static_cast<char>(take());
      }
      take();
      include.form = first == '<' ? Include::Form::angled : Include::Form::quoted;
    } else {
      include.form = Include::Form::macro;
      while (peek() != kEnd && peek() != '\n' && !skip_comment()) include.name += static_cast<char>(take());
      while (!include.name.empty() && is_blank(static_cast<unsigned char>(include.name.back())))
        include.name.pop_back();
    }
    if (!include.name.empty()) found_.push_back(std::move(include));
  }

  std::string_view text_;
  size_t at_ = 0;
  bool line_start_ = true;
  std::vector<Include> found_;
};

}  // namespace

std::vector<Include> scan_includes(std::string_view text) {
  return Scanner(text).run();
}

}  // namespace jitune::key
