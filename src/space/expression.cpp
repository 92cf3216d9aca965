#include "space/expression.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "space/expression_ops.hpp"

namespace jitune::space {
namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int kTypes = static_cast<int>(Type::boolean) + 1;

struct Item {
  int64_t value;
  bool is_word;
};

EvalStatus shift(Op op, int64_t a, int64_t b, int64_t& out) {
  if (b < 0 || b > 63) return EvalStatus::out_of_range;
  if (op == Op::shift_right) {
    out = a >> b;
    return EvalStatus::ok;
  }
  out = static_cast<int64_t>(static_cast<uint64_t>(a) << b);
  return (out >> b) == a ? EvalStatus::ok : EvalStatus::overflow;
}

EvalStatus divide(Op op, int64_t a, int64_t b, int64_t& out) {
  if (b == 0) return EvalStatus::division_by_zero;
  if (op == Op::ceil_div || op == Op::align_up) {
    if (b < 0) return EvalStatus::out_of_range;
    out = a / b + (a % b > 0 ? 1 : 0);
    return op == Op::align_up && __builtin_mul_overflow(out, b, &out) ? EvalStatus::overflow : EvalStatus::ok;
  }
  if (a == kMin && b == -1) return EvalStatus::overflow;
  out = op == Op::divide ? a / b : a % b;
  return EvalStatus::ok;
}

EvalStatus unary(Op op, int64_t a, int64_t& out) {
  switch (op) {
    case Op::negate:
      return __builtin_sub_overflow(int64_t{0}, a, &out) ? EvalStatus::overflow : EvalStatus::ok;
    case Op::logical_not:
      out = a == 0;
      return EvalStatus::ok;
    case Op::bit_not:
      out = ~a;
      return EvalStatus::ok;
    case Op::truth:
      out = a != 0;
      return EvalStatus::ok;
    case Op::absolute:
      if (a == kMin) return EvalStatus::overflow;
      out = a < 0 ? -a : a;
      return EvalStatus::ok;
    case Op::pow2_ceil:
      if (a < 0) return EvalStatus::out_of_range;
      if (a > (kMax / 2 + 1)) return EvalStatus::overflow;
      out = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(a)));
      return EvalStatus::ok;
    case Op::pow2_floor:
      if (a <= 0) return EvalStatus::out_of_range;
      out = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(a)));
      return EvalStatus::ok;
    default:  // log2
      if (a <= 0) return EvalStatus::out_of_range;
      out = std::bit_width(static_cast<uint64_t>(a)) - 1;
      return EvalStatus::ok;
  }
}

EvalStatus binary(Op op, int64_t a, int64_t b, int64_t& out) {
  bool overflow = false;
  switch (op) {
    case Op::add:
      overflow = __builtin_add_overflow(a, b, &out);
      break;
    case Op::subtract:
      overflow = __builtin_sub_overflow(a, b, &out);
      break;
    case Op::multiply:
      overflow = __builtin_mul_overflow(a, b, &out);
      break;
    case Op::divide:
    case Op::modulo:
    case Op::ceil_div:
    case Op::align_up:
      return divide(op, a, b, out);
    case Op::shift_left:
    case Op::shift_right:
      return shift(op, a, b, out);
    case Op::less:
      out = a < b;
      break;
    case Op::less_equal:
      out = a <= b;
      break;
    case Op::greater:
      out = a > b;
      break;
    case Op::greater_equal:
      out = a >= b;
      break;
    case Op::bit_and:
      out = a & b;
      break;
    case Op::bit_xor:
      out = a ^ b;
      break;
    case Op::bit_or:
      out = a | b;
      break;
    case Op::minimum:
      out = std::min(a, b);
      break;
    default:
      out = std::max(a, b);
      break;
  }
  return overflow ? EvalStatus::overflow : EvalStatus::ok;
}

EvalStatus compare(Op op, Item a, Item b, int64_t& out) {
  if (a.is_word != b.is_word) return EvalStatus::not_a_number;
  out = (a.value == b.value) == (op == Op::equal);
  return EvalStatus::ok;
}

}  // namespace

Symbols::Symbols() {
  for (int i = 0; i < kTypes; ++i) word(type_info(static_cast<Type>(i)).word);
}

int Symbols::slot(const std::string& name) {
  const auto [at, is_new] = slots_.emplace(name, size());
  if (is_new) names_.push_back(name);
  return at->second;
}

int Symbols::find(std::string_view name) const {
  const auto at = slots_.find(std::string(name));
  return at == slots_.end() ? -1 : at->second;
}

int64_t Symbols::word(const std::string& text) {
  if (const int64_t known = find_word(text); known >= 0) return known;
  words_.push_back(text);
  word_numbers_.emplace(text, static_cast<int64_t>(words_.size()) - 1);
  return static_cast<int64_t>(words_.size()) - 1;
}

int64_t Symbols::find_word(std::string_view text) const {
  // The words of the types come first, in the order of the enum, so that a number below kTypes is a Type.
  if (const TypeInfo* type = find_type(text); type != nullptr && words_.size() >= kTypes)
    return static_cast<int64_t>(type->type);
  const auto at = word_numbers_.find(std::string(text));
  return at == word_numbers_.end() ? -1 : at->second;
}

const std::string& Symbols::word_text(int64_t word) const {
  return words_[static_cast<size_t>(word)];
}

const char* to_string(EvalStatus status) noexcept {
  switch (status) {
    case EvalStatus::ok:
      return "ok";
    case EvalStatus::overflow:
      return "overflow";
    case EvalStatus::division_by_zero:
      return "division by zero";
    case EvalStatus::not_a_number:
      return "a word where a number is needed";
    case EvalStatus::unset:
      return "a value that is not known yet";
    case EvalStatus::out_of_range:
      return "an operand out of range";
    case EvalStatus::not_a_type:
      return "sizeof of something that is not a type word";
  }
  return "unknown";
}

Evaluation Expression::evaluate(std::span<const Cell> cells) const noexcept {
  Item stack[kMaxStack];
  int top = -1;
  const auto fail = [](EvalStatus status) { return Evaluation{status, 0, false}; };
  for (size_t at = 0; at < nodes_.size(); ++at) {
    const Node& node = nodes_[at];
    const Op op = static_cast<Op>(node.op);
    EvalStatus status = EvalStatus::ok;
    switch (op) {
      case Op::number:
        stack[++top] = {node.value, false};
        break;
      case Op::word:
        stack[++top] = {node.value, true};
        break;
      case Op::load: {
        const Cell& cell = cells[static_cast<size_t>(node.operand)];
        if (cell.kind == Cell::Kind::unset) return fail(EvalStatus::unset);
        stack[++top] = {cell.value, cell.kind == Cell::Kind::word};
        break;
      }
      case Op::jump:
        at = static_cast<size_t>(node.operand) - 1;
        break;
      case Op::jump_if_zero:
      case Op::jump_if_zero_keep:
      case Op::jump_if_true_keep: {
        if (stack[top].is_word) return fail(EvalStatus::not_a_number);
        const bool jumps = (stack[top].value != 0) == (op == Op::jump_if_true_keep);
        if (jumps) at = static_cast<size_t>(node.operand) - 1;
        if (jumps && op != Op::jump_if_zero)
          stack[top].value = op == Op::jump_if_true_keep;
        else
          --top;
        break;
      }
      case Op::size_of:
        if (!stack[top].is_word || stack[top].value >= kTypes) return fail(EvalStatus::not_a_type);
        stack[top] = {type_info(static_cast<Type>(stack[top].value)).size_bytes, false};
        break;
      case Op::equal:
      case Op::not_equal:
        --top;
        status = compare(op, stack[top], stack[top + 1], stack[top].value);
        stack[top].is_word = false;
        break;
      case Op::negate:
      case Op::logical_not:
      case Op::bit_not:
      case Op::truth:
      case Op::pow2_ceil:
      case Op::pow2_floor:
      case Op::log2:
      case Op::absolute:
        if (stack[top].is_word) return fail(EvalStatus::not_a_number);
        status = unary(op, stack[top].value, stack[top].value);
        break;
      default:
        --top;
        if (stack[top].is_word || stack[top + 1].is_word) return fail(EvalStatus::not_a_number);
        status = binary(op, stack[top].value, stack[top + 1].value, stack[top].value);
    }
    if (status != EvalStatus::ok) return fail(status);
  }
  if (top != 0) return fail(EvalStatus::unset);  // an empty expression
  return {EvalStatus::ok, stack[0].value, stack[0].is_word};
}

}  // namespace jitune::space
