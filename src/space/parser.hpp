#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "space/expression.hpp"
#include "space/expression_ops.hpp"

namespace jitune::space {

/// Recursive descent over one expression; writes the stack machine's instructions as it goes.
class Parser {
 public:
  Parser(std::string_view text, Symbols& symbols, const Expression::NameFilter& filter);
  Expression parse();

 private:
  enum class Token : uint8_t { end, number, name, quoted, punctuation };
  /// What is known of a value before it is computed, and the slot if it is a bare name.
  struct Operand {
    enum class Kind : uint8_t { unknown, number, word } kind = Kind::unknown;
    int slot = -1;
    size_t at = 0;
    bool is_comparison = false;
  };

  [[noreturn]] void fail(const std::string& message, size_t at) const;
  void next();
  void read_number();
  void read_name();
  bool is(std::string_view punctuation) const { return token_ == Token::punctuation && token_text_ == punctuation; }
  bool accept(std::string_view punctuation);
  void expect(std::string_view punctuation, const std::string& after);

  Operand conditional();
  Operand logical_or();
  Operand logical_and();
  Operand binary(int level);
  Operand unary();
  Operand primary();
  Operand call(const std::string& name, size_t at);
  Operand name(const std::string& name, size_t at);

  void need_number(const Operand& operand);
  void need_type(const Operand& operand);
  Operand compare(Op op, const Operand& left, const Operand& right, size_t at);
  size_t emit(Op op, int32_t operand = 0, int64_t value = 0);
  void patch(size_t jump);
  std::vector<std::string> known_names() const;

  struct Deeper;
  std::string_view text_;
  Symbols& symbols_;
  const Expression::NameFilter& filter_;
  Expression out_;
  size_t at_ = 0;
  Token token_ = Token::end;
  size_t token_at_ = 0;
  std::string token_text_;
  uint64_t number_ = 0;
  int depth_ = 0;
  int stack_ = 0;
};

}  // namespace jitune::space
