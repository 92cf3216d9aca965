#include <algorithm>
#include <array>
#include <cctype>
#include <limits>

#include "space/parser.hpp"

namespace jitune::space {
namespace {

constexpr uint64_t kInt64Max = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());

bool is_word_char(char c) {
  return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0;
}

}  // namespace

void Parser::read_number() {
  const bool hexadecimal = text_[at_] == '0' && at_ + 1 < text_.size() && (text_[at_ + 1] | 0x20) == 'x';
  const uint64_t base = hexadecimal ? 16 : 10;
  size_t end = at_ + (hexadecimal ? 2 : 0);
  const size_t first_digit = end;
  number_ = 0;
  for (; end < text_.size() && std::isxdigit(static_cast<unsigned char>(text_[end])) != 0; ++end) {
    const char c = text_[end];
    const uint64_t digit = c <= '9' ? static_cast<uint64_t>(c - '0') : static_cast<uint64_t>((c | 0x20) - 'a' + 10);
    if (digit >= base) break;
    // One above the largest int64 is let through, for the operand of a minus.
    if (number_ > (kInt64Max + 1 - digit) / base) fail("the number does not fit a signed 64-bit integer", at_);
    number_ = number_ * base + digit;
  }
  if (end == first_digit) fail("hexadecimal digits are missing after 0x", at_);
  if (end < text_.size() && text_[end] == '.') fail("only integers are possible in an expression", end);
  if (end < text_.size() && (is_word_char(text_[end]) || text_[end] == '\''))
    fail("a number ends at a character that does not belong to it; suffixes are not needed", end);
  if (!hexadecimal && end - at_ > 1 && text_[at_] == '0')
    fail("a leading 0 would mean octal in C; write a decimal or a hexadecimal (0x) number", at_);
  token_ = Token::number;
  token_text_ = std::string(text_.substr(at_, end - at_));
  at_ = end;
}

void Parser::read_name() {
  size_t end = at_;
  while (end < text_.size() &&
         (is_word_char(text_[end]) || (text_[end] == '.' && end + 1 < text_.size() && is_word_char(text_[end + 1]))))
    ++end;
  token_ = Token::name;
  token_text_ = std::string(text_.substr(at_, end - at_));
  at_ = end;
}

void Parser::next() {
  while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  token_at_ = at_;
  token_text_.clear();
  token_ = Token::end;
  if (at_ == text_.size()) return;
  const char c = text_[at_];
  if (std::isdigit(static_cast<unsigned char>(c)) != 0) return read_number();
  if (is_word_char(c)) return read_name();
  if (c == '\'') {
    const size_t end = text_.find('\'', at_ + 1);
    if (end == std::string_view::npos) fail("the closing ' of a word is missing", at_);
    if (end == at_ + 1) fail("a word between '' is empty", at_);
    token_ = Token::quoted;
    token_text_ = std::string(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return;
  }
  token_ = Token::punctuation;
  static constexpr std::array<std::string_view, 8> kPairs{"||", "&&", "==", "!=", "<=", ">=", "<<", ">>"};
  const std::string_view pair = text_.substr(at_, 2);
  const bool is_pair = std::find(kPairs.begin(), kPairs.end(), pair) != kPairs.end();
  token_text_ = std::string(text_.substr(at_, is_pair ? 2 : 1));
  if (!is_pair && std::string_view("?:|^&<>+-*/%()!~,=").find(c) == std::string_view::npos)
    fail("a character that no expression holds", at_);
  at_ += token_text_.size();
}

}  // namespace jitune::space
