#pragma once

#include <cstdint>

namespace jitune::space {

/// The instructions of Expression::Node. Binary ones take the two topmost values of the stack, unary ones the topmost.
enum class Op : uint8_t {
  number,
  word,
  load,
  negate,
  logical_not,
  bit_not,
  truth,  ///< to 0 or 1
  add,
  subtract,
  multiply,
  divide,
  modulo,
  shift_left,
  shift_right,
  less,
  less_equal,
  greater,
  greater_equal,
  equal,
  not_equal,
  bit_and,
  bit_xor,
  bit_or,
  ceil_div,
  minimum,
  maximum,
  pow2_ceil,
  pow2_floor,
  log2,
  absolute,
  align_up,
  size_of,
  jump,
  jump_if_zero,       ///< takes the condition off the stack
  jump_if_zero_keep,  ///< `&&`: a 0 stays and is the result, anything else is taken off
  jump_if_true_keep,  ///< `||`: anything but 0 becomes 1 and stays, a 0 is taken off
};

/// The most values an expression may have on the stack at once.
constexpr int kMaxStack = 256;

}  // namespace jitune::space
