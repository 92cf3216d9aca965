#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "jitune/value.hpp"

namespace jitune::space {

/// Names that expressions may use, each with a slot, and the words that occur in them, each with a number.
/// Type words and their second names are known to every table and share one number.
class Symbols {
 public:
  Symbols();
  /// The slot of `name`, made if it is new.
  int slot(const std::string& name);
  /// The slot of `name`, or -1.
  int find(std::string_view name) const;
  const std::string& name(int slot) const { return names_[static_cast<size_t>(slot)]; }
  int size() const { return static_cast<int>(names_.size()); }

  int64_t word(const std::string& text);           ///< the number of a word, made if it is new
  int64_t find_word(std::string_view text) const;  ///< or -1
  const std::string& word_text(int64_t word) const;

 private:
  std::vector<std::string> names_, words_;
  std::unordered_map<std::string, int> slots_;
  std::unordered_map<std::string, int64_t> word_numbers_;
};

/// A value in a slot during evaluation.
struct Cell {
  enum class Kind : uint8_t { unset, number, word };
  Kind kind = Kind::unset;
  int64_t value = 0;  ///< the number, or the word's number
};

/// What came of an evaluation. Everything but ok means that the config is not usable, and is counted as such.
enum class EvalStatus : uint8_t { ok, overflow, division_by_zero, not_a_number, unset, out_of_range, not_a_type };
const char* to_string(EvalStatus status) noexcept;

struct Evaluation {
  EvalStatus status = EvalStatus::ok;
  int64_t value = 0;
  bool is_word = false;  ///< value is then a word's number (`T` alone, or `cond ? half : float`)
};

/// A C integer expression: int64, every operation checked. Grammar: ?: || && | ^ & == != < <= > >= << >> + - * / % and
/// unary - ! ~ +, parentheses, decimal and hexadecimal numbers, true, false, names (also `device.cc`), words ('row' in
/// single quotes, or a bare type word), and ceil_div(a, b), min(...), max(...), pow2_ceil(a), pow2_floor(a), log2(a)
/// (of the power of two at or below a), abs(a), align_up(a, b), sizeof(word or name that holds a type word).
/// && || ?: evaluate only what they need. Words can only be compared with == and !=, chosen by ?: and sized.
/// Immutable after parse: may be evaluated by many threads at once.
class Expression {
 public:
  Expression() = default;
  /// Throws Error{bad_expression} with `text` and the column: syntax, unknown names (with the nearest known name),
  /// chained comparisons (`a < b < c`), a number that does not fit int64, nesting deeper than 100.
  /// Names must already have a slot in `symbols`; new words get their number there.
  static Expression parse(std::string_view text, Symbols& symbols);

  /// Says why a name may not be used where an expression stands, or "" when it may; "unknown" hides it altogether.
  using NameFilter = std::function<std::string(int slot)>;
  /// As above; a name for which `filter` gives a reason is an error with that reason, at its column.
  static Expression parse(std::string_view text, Symbols& symbols, const NameFilter& filter);

  Evaluation evaluate(std::span<const Cell> cells) const noexcept;

  const std::string& text() const { return text_; }
  const std::vector<int>& slots() const { return slots_; }  ///< every slot it may read, sorted, once each
  bool empty() const { return nodes_.empty(); }

  /// Slots that must hold a number, or a type word, for this expression to have a value; sorted, once each.
  const std::vector<int>& number_slots() const { return number_slots_; }
  const std::vector<int>& type_slots() const { return type_slots_; }

  /// One instruction of a stack machine; `&&`, `||` and `?:` are jumps.
  struct Node {
    uint8_t op = 0;
    int32_t operand = 0;  ///< a slot, or the node to go on at
    int64_t value = 0;    ///< a literal
  };

 private:
  friend class Parser;
  std::string text_;
  std::vector<Node> nodes_;
  std::vector<int> slots_, number_slots_, type_slots_;
};

}  // namespace jitune::space
