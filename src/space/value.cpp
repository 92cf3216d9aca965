#include "jitune/value.hpp"

#include <array>
#include <charconv>
#include <limits>

namespace jitune {
namespace {

// In the order of the enum. The words of float64 and boolean are C++'s own; `float64` is a second name.
constexpr std::array<TypeInfo, 15> kTypes{{
    {Type::half, "half", "__half", 2, "cuda_fp16.h"},
    {Type::bfloat16, "bfloat16", "__nv_bfloat16", 2, "cuda_bf16.h"},
    {Type::float32, "float", "float", 4, ""},
    {Type::float64, "double", "double", 8, ""},
    {Type::int8, "int8", "signed char", 1, ""},
    {Type::uint8, "uint8", "unsigned char", 1, ""},
    {Type::int16, "int16", "short", 2, ""},
    {Type::uint16, "uint16", "unsigned short", 2, ""},
    {Type::int32, "int32", "int", 4, ""},
    {Type::uint32, "uint32", "unsigned int", 4, ""},
    {Type::int64, "int64", "long long", 8, ""},
    {Type::uint64, "uint64", "unsigned long long", 8, ""},
    {Type::fp8_e4m3, "fp8_e4m3", "__nv_fp8_e4m3", 1, "cuda_fp8.h"},
    {Type::fp8_e5m2, "fp8_e5m2", "__nv_fp8_e5m2", 1, "cuda_fp8.h"},
    {Type::boolean, "bool", "bool", 1, ""},
}};

struct SecondName {
  std::string_view word;
  Type type;
};
constexpr std::array<SecondName, 5> kSecondNames{{{"float16", Type::half},
                                                  {"float32", Type::float32},
                                                  {"float64", Type::float64},
                                                  {"int", Type::int32},
                                                  {"unsigned", Type::uint32}}};

int64_t checked(unsigned long long value) {
  if (value > static_cast<unsigned long long>(std::numeric_limits<int64_t>::max()))
    throw Error(ErrorCode::bad_problem, "the value " + std::to_string(value) + " does not fit a signed 64-bit integer");
  return static_cast<int64_t>(value);
}

}  // namespace

const TypeInfo& type_info(Type type) noexcept {
  return kTypes[static_cast<size_t>(type)];
}

const TypeInfo* find_type(std::string_view word) noexcept {
  for (const TypeInfo& info : kTypes)
    if (word == info.word) return &info;
  for (const SecondName& second : kSecondNames)
    if (word == second.word) return &type_info(second.type);
  return nullptr;
}

Value::Value(unsigned long value) : state_(checked(value)) {}
Value::Value(unsigned long long value) : state_(checked(value)) {}

int64_t Value::as_int() const noexcept {
  if (const int64_t* number = std::get_if<int64_t>(&state_)) return *number;
  if (const bool* flag = std::get_if<bool>(&state_)) return *flag ? 1 : 0;
  return 0;
}

const std::string& Value::as_word() const noexcept {
  static const std::string empty;
  const std::string* word = std::get_if<std::string>(&state_);
  return word != nullptr ? *word : empty;
}

std::string Value::text() const {
  if (is_int()) return std::to_string(as_int());
  if (is_bool()) return as_int() != 0 ? "true" : "false";
  return as_word();
}

Value Value::parse(std::string_view text) {
  if (text == "true") return Value(true);
  if (text == "false") return Value(false);
  std::string_view digits = text;
  if (!digits.empty() && digits.front() == '+') digits.remove_prefix(1);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool sign_twice = digits.size() < text.size() && !digits.empty() && digits.front() == '-';
  if (error == std::errc() && end == digits.data() + digits.size() && !sign_twice)
    return Value(static_cast<long>(number));
  return Value(std::string(text));
}

}  // namespace jitune
