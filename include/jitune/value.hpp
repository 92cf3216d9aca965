#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "jitune/error.hpp"

namespace jitune {

/// The element types that definitions may name. A closed list: each has one word, one C++ spelling, one size.
enum class Type : uint8_t {
  half,
  bfloat16,
  float32,
  float64,
  int8,
  uint8,
  int16,
  uint16,
  int32,
  uint32,
  int64,
  uint64,
  fp8_e4m3,
  fp8_e5m2,
  boolean,
};

/// What is known of a Type.
struct TypeInfo {
  Type type;
  const char* word;    ///< in definitions, problems and keys: `half`, `bfloat16`, `float`, `int32`, `fp8_e4m3`
  const char* cpp;     ///< in kernel source: `__half`, `__nv_bfloat16`, `float`, `int`, `__nv_fp8_e4m3`
  int size_bytes;      ///< sizeof in kernel source
  const char* header;  ///< the CUDA header that declares it, "" when none is needed
};

/// Facts about `type`. Never fails.
JITUNE_API const TypeInfo& type_info(Type type) noexcept;

/// Finds a type by its word; `double`, `int`, `unsigned`, `float32`, `float64`, `float16` are accepted as second names.
/// Null when the word names no type.
JITUNE_API const TypeInfo* find_type(std::string_view word) noexcept;

/// One value of a param, a default rule or a problem: an int64, a bool, or a word (a type word, or a word of one's
/// own).
class JITUNE_API Value {
 public:
  Value() : state_(int64_t{0}) {}
  Value(int value) : state_(int64_t{value}) {}                     // NOLINT(google-explicit-constructor)
  Value(unsigned value) : state_(int64_t{value}) {}                // NOLINT(google-explicit-constructor)
  Value(long value) : state_(int64_t{value}) {}                    // NOLINT(google-explicit-constructor)
  Value(long long value) : state_(static_cast<int64_t>(value)) {}  // NOLINT(google-explicit-constructor)
  Value(bool value) : state_(value) {}                             // NOLINT(google-explicit-constructor)
  Value(Type type) : state_(std::string(type_info(type).word)) {}  // NOLINT(google-explicit-constructor)
  Value(const char* word) : state_(std::string(word)) {}           // NOLINT(google-explicit-constructor)
  Value(std::string word) : state_(std::move(word)) {}             // NOLINT(google-explicit-constructor)
  /// A size that does not fit an int64 throws Error{bad_problem}.
  Value(unsigned long value);       // NOLINT(google-explicit-constructor)
  Value(unsigned long long value);  // NOLINT(google-explicit-constructor)

  bool is_int() const noexcept { return state_.index() == 0; }
  bool is_bool() const noexcept { return state_.index() == 1; }
  bool is_word() const noexcept { return state_.index() == 2; }
  int64_t as_int() const noexcept;              ///< a bool counts as 0 or 1; a word gives 0
  const std::string& as_word() const noexcept;  ///< "" unless is_word()

  /// `128`, `true` or `half`: the text for command lines, tables and macros.
  std::string text() const;

  /// Reads what text() writes: digits with an optional sign, `true`, `false`, else a word.
  static Value parse(std::string_view text);

  friend bool operator==(const Value&, const Value&) = default;
  friend auto operator<=>(const Value&, const Value&) = default;

 private:
  std::variant<int64_t, bool, std::string> state_;
};

}  // namespace jitune
