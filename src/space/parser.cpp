#include "space/parser.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "space/names.hpp"

namespace jitune::space {
namespace {

constexpr size_t kMaxText = 4096;
constexpr int kMaxDepth = 100;
constexpr uint64_t kInt64Max = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());

struct BinaryOperator {
  std::string_view text;
  Op op;
  int level;  ///< binds tighter with a higher level
};

constexpr int kEquality = 3, kRelation = 4, kLevels = 8;
constexpr std::array<BinaryOperator, 16> kBinary{{{"|", Op::bit_or, 0},
                                                  {"^", Op::bit_xor, 1},
                                                  {"&", Op::bit_and, 2},
                                                  {"==", Op::equal, kEquality},
                                                  {"!=", Op::not_equal, kEquality},
                                                  {"<", Op::less, kRelation},
                                                  {"<=", Op::less_equal, kRelation},
                                                  {">", Op::greater, kRelation},
                                                  {">=", Op::greater_equal, kRelation},
                                                  {"<<", Op::shift_left, 5},
                                                  {">>", Op::shift_right, 5},
                                                  {"+", Op::add, 6},
                                                  {"-", Op::subtract, 6},
                                                  {"*", Op::multiply, 7},
                                                  {"/", Op::divide, 7},
                                                  {"%", Op::modulo, 7}}};

struct Function {
  std::string_view name;
  Op op;
  int arguments;  ///< 0: two or more
};
constexpr std::array<Function, 8> kFunctions{{{"ceil_div", Op::ceil_div, 2},
                                              {"min", Op::minimum, 0},
                                              {"max", Op::maximum, 0},
                                              {"pow2_ceil", Op::pow2_ceil, 1},
                                              {"pow2_floor", Op::pow2_floor, 1},
                                              {"log2", Op::log2, 1},
                                              {"abs", Op::absolute, 1},
                                              {"align_up", Op::align_up, 2}}};

/// How many values an instruction adds to the stack.
int stack_effect(Op op) {
  switch (op) {
    case Op::number:
    case Op::word:
    case Op::load:
      return 1;
    case Op::negate:
    case Op::logical_not:
    case Op::bit_not:
    case Op::truth:
    case Op::pow2_ceil:
    case Op::pow2_floor:
    case Op::log2:
    case Op::absolute:
    case Op::size_of:
      return 0;
    default:
      return -1;
  }
}

void sort_once(std::vector<int>& slots) {
  std::sort(slots.begin(), slots.end());
  slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
}

}  // namespace

struct Parser::Deeper {
  explicit Deeper(Parser& parser) : parser_(parser) {
    if (++parser_.depth_ > kMaxDepth)
      parser_.fail("nested deeper than 100; name parts of it as derived values", parser_.token_at_);
  }
  ~Deeper() { --parser_.depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;
  Parser& parser_;
};

Parser::Parser(std::string_view text, Symbols& symbols, const Expression::NameFilter& filter)
    : text_(text), symbols_(symbols), filter_(filter) {}

void Parser::fail(const std::string& message, size_t at) const {
  throw Error(ErrorCode::bad_expression, message, "", std::string(text_), static_cast<int>(at) + 1);
}

Expression Parser::parse() {
  if (text_.size() > kMaxText)
    throw Error(ErrorCode::bad_expression,
                "longer than " + std::to_string(kMaxText) + " characters; name parts of it as derived values", "",
                std::string(text_.substr(0, 80)) + "...", 0);
  next();
  if (token_ == Token::end) fail("an expression is empty; write a number, a name or a formula", 0);
  conditional();
  if (token_ != Token::end) {
    if (token_ == Token::name && (token_text_ == "and" || token_text_ == "or"))
      fail(std::string("write ") + (token_text_ == "and" ? "&&" : "||") + " instead of '" + token_text_ + "'",
           token_at_);
    if (is("=")) fail("'=' assigns nothing here; write == to compare", token_at_);
    fail("an operator was expected before '" + token_text_ + "'", token_at_);
  }
  out_.text_ = std::string(text_);
  sort_once(out_.slots_);
  sort_once(out_.number_slots_);
  sort_once(out_.type_slots_);
  return std::move(out_);
}

bool Parser::accept(std::string_view punctuation) {
  if (!is(punctuation)) return false;
  next();
  return true;
}

void Parser::expect(std::string_view punctuation, const std::string& after) {
  if (!is(punctuation)) fail("'" + std::string(punctuation) + "' is missing after " + after, token_at_);
  next();
}

size_t Parser::emit(Op op, int32_t operand, int64_t value) {
  stack_ += stack_effect(op);
  if (op == Op::jump) stack_ += 1;  // neither branch of ?: knows of the other
  if (stack_ > kMaxStack) fail("too many open operands; name parts of it as derived values", token_at_);
  out_.nodes_.push_back({static_cast<uint8_t>(op), operand, value});
  return out_.nodes_.size() - 1;
}

void Parser::patch(size_t jump) {
  out_.nodes_[jump].operand = static_cast<int32_t>(out_.nodes_.size());
}

void Parser::need_number(const Operand& operand) {
  if (operand.kind == Operand::Kind::word)
    fail("a word can only be compared with == and !=, chosen by ?: and measured by sizeof", operand.at);
  if (operand.slot >= 0) out_.number_slots_.push_back(operand.slot);
}

void Parser::need_type(const Operand& operand) {
  if (operand.kind == Operand::Kind::number) fail("sizeof measures a type word, not a number", operand.at);
  if (operand.slot >= 0) out_.type_slots_.push_back(operand.slot);
}

Parser::Operand Parser::conditional() {
  const Deeper deeper(*this);
  const Operand condition = logical_or();
  if (!is("?")) return condition;
  need_number(condition);
  next();
  const size_t to_else = emit(Op::jump_if_zero);
  const Operand yes = conditional();
  const size_t to_end = emit(Op::jump);
  stack_ -= 1;
  expect(":", "the first choice of ?:");
  patch(to_else);
  const Operand no = conditional();
  patch(to_end);
  Operand result{yes.kind == no.kind ? yes.kind : Operand::Kind::unknown, -1, condition.at, false};
  return result;
}

Parser::Operand Parser::logical_or() {
  Operand left = logical_and();
  while (is("||")) {
    need_number(left);
    const size_t jump = emit(Op::jump_if_true_keep);
    next();
    need_number(logical_and());
    emit(Op::truth);
    patch(jump);
    left = {Operand::Kind::number, -1, left.at, false};
  }
  return left;
}

Parser::Operand Parser::logical_and() {
  Operand left = binary(0);
  while (is("&&")) {
    need_number(left);
    const size_t jump = emit(Op::jump_if_zero_keep);
    next();
    need_number(binary(0));
    emit(Op::truth);
    patch(jump);
    left = {Operand::Kind::number, -1, left.at, false};
  }
  return left;
}

Parser::Operand Parser::compare(Op op, const Operand& left, const Operand& right, size_t at) {
  if (left.is_comparison || right.is_comparison)
    fail(
        "comparisons can't be chained; write `a < b && b < c`, or parentheses if a comparison of truth values is meant",
        at);
  const bool is_equality = op == Op::equal || op == Op::not_equal;
  if (!is_equality) {
    need_number(left);
    need_number(right);
  } else {
    if (left.kind == Operand::Kind::number) need_number(right);
    if (right.kind == Operand::Kind::number) need_number(left);
  }
  emit(op);
  return {Operand::Kind::number, -1, left.at, true};
}

Parser::Operand Parser::binary(int level) {
  if (level == kLevels) return unary();
  Operand left = binary(level + 1);
  for (;;) {
    const auto found = std::find_if(kBinary.begin(), kBinary.end(), [&](const BinaryOperator& candidate) {
      return candidate.level == level && is(candidate.text);
    });
    if (found == kBinary.end()) return left;
    const size_t at = token_at_;
    next();
    const Operand right = binary(level + 1);
    if (level == kEquality || level == kRelation) {
      left = compare(found->op, left, right, at);
      continue;
    }
    need_number(left);
    need_number(right);
    emit(found->op);
    left = {Operand::Kind::number, -1, left.at, false};
  }
}

Parser::Operand Parser::unary() {
  const size_t at = token_at_;
  for (const auto& [text, op] :
       {std::pair{"-", Op::negate}, {"!", Op::logical_not}, {"~", Op::bit_not}, {"+", Op::number}}) {
    if (!is(text)) continue;
    next();
    if (op == Op::negate && token_ == Token::number && number_ == kInt64Max + 1) {
      next();
      emit(Op::number, 0, std::numeric_limits<int64_t>::min());
      return {Operand::Kind::number, -1, at, false};
    }
    const Deeper deeper(*this);
    const Operand operand = unary();
    need_number(operand);
    if (op != Op::number) emit(op);
    return {Operand::Kind::number, -1, at, false};
  }
  return primary();
}

Parser::Operand Parser::primary() {
  const size_t at = token_at_;
  const std::string text = token_text_;
  switch (token_) {
    case Token::number:
      if (number_ > kInt64Max) fail("the number does not fit a signed 64-bit integer", at);
      emit(Op::number, 0, static_cast<int64_t>(number_));
      next();
      return {Operand::Kind::number, -1, at, false};
    case Token::quoted:
      emit(Op::word, 0, symbols_.word(text));
      next();
      return {Operand::Kind::word, -1, at, false};
    case Token::name:
      next();
      return is("(") ? call(text, at) : name(text, at);
    case Token::punctuation:
      if (accept("(")) {
        Operand inner = conditional();
        expect(")", "the expression in parentheses");
        inner.is_comparison = false;
        return inner;
      }
      [[fallthrough]];
    default:
      fail(token_ == Token::end ? "the expression ends where a value was expected"
                                : "a value was expected before '" + text + "'",
           at);
  }
}

Parser::Operand Parser::call(const std::string& name, size_t at) {
  next();
  if (name == "sizeof") {
    need_type(conditional());
    expect(")", "sizeof's type word");
    emit(Op::size_of);
    return {Operand::Kind::number, -1, at, false};
  }
  const auto function = std::find_if(kFunctions.begin(), kFunctions.end(),
                                     [&](const Function& candidate) { return candidate.name == name; });
  if (function == kFunctions.end()) {
    std::vector<std::string> known{"sizeof"};
    for (const Function& candidate : kFunctions) known.emplace_back(candidate.name);
    fail("no function is called '" + name + "'" + did_you_mean(name, known) + "; there are " + join(known), at);
  }
  int arguments = 0;
  do {
    need_number(conditional());
    ++arguments;
    if (function->arguments == 0 && arguments > 1) emit(function->op);
  } while (accept(","));
  expect(")", "the arguments of " + name);
  if (function->arguments == 0 ? arguments < 2 : arguments != function->arguments)
    fail(name + " takes " + (function->arguments == 0 ? "two or more" : std::to_string(function->arguments)) +
             " argument(s), not " + std::to_string(arguments),
         at);
  if (function->arguments != 0) emit(function->op);
  return {Operand::Kind::number, -1, at, false};
}

std::vector<std::string> Parser::known_names() const {
  std::vector<std::string> known;
  for (int slot = 0; slot < symbols_.size(); ++slot)
    if (!filter_ || filter_(slot).empty()) known.push_back(symbols_.name(slot));
  return known;
}

Parser::Operand Parser::name(const std::string& name, size_t at) {
  if (name == "true" || name == "false") {
    emit(Op::number, 0, name == "true" ? 1 : 0);
    return {Operand::Kind::number, -1, at, false};
  }
  const int slot = symbols_.find(name);
  std::string reason = slot < 0 ? "unknown" : filter_ ? filter_(slot) : "";
  if (reason.empty()) {
    emit(Op::load, slot);
    out_.slots_.push_back(slot);
    return {Operand::Kind::unknown, slot, at, false};
  }
  if (const TypeInfo* type = find_type(name); type != nullptr) {
    emit(Op::word, 0, symbols_.word(type->word));
    return {Operand::Kind::word, -1, at, false};
  }
  if (reason != "unknown") fail("'" + name + "' " + reason, at);
  if (name == "and" || name == "or" || name == "not") fail("write &&, || and ! instead of and, or and not", at);
  const std::vector<std::string> known = known_names();
  if (const size_t dot = name.find('.'); dot != std::string::npos) {
    std::vector<std::string> alike;
    for (const std::string& candidate : known)
      if (candidate.compare(0, dot + 1, name, 0, dot + 1) == 0) alike.push_back(candidate);
    if (!alike.empty())
      fail("'" + name + "' is not known" + did_you_mean(name, alike) + "; there are " + join(alike), at);
  }
  fail("'" + name + "' is not known here" + did_you_mean(name, known) +
           "; a word of your own is written between single quotes",
       at);
}

Expression Expression::parse(std::string_view text, Symbols& symbols) {
  return parse(text, symbols, NameFilter());
}

Expression Expression::parse(std::string_view text, Symbols& symbols, const NameFilter& filter) {
  return Parser(text, symbols, filter).parse();
}

}  // namespace jitune::space
