// Types, values, canonical JSON of configs, nominal devices, and scalars in a kernel's types.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "jitune/value.hpp"
#include "space/config.hpp"
#include "space/device.hpp"
#include "space/scalar_bytes.hpp"
#include "support/support.hpp"

using namespace jitune;
using namespace jitune::space;

TEST_CASE("every type has one word, one spelling, one size and its header") {
  struct Row {
    Type type;
    const char *word, *cpp;
    int size_bytes;
    const char* header;
  };
  const Row rows[] = {{Type::half, "half", "__half", 2, "cuda_fp16.h"},
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
                      {Type::boolean, "bool", "bool", 1, ""}};
  for (const Row& row : rows) {
    CAPTURE(row.word);
    const TypeInfo& info = type_info(row.type);
    CHECK(info.type == row.type);
    CHECK(std::string(info.word) == row.word);
    CHECK(std::string(info.cpp) == row.cpp);
    CHECK(info.size_bytes == row.size_bytes);
    CHECK(std::string(info.header) == row.header);
    REQUIRE(find_type(row.word) != nullptr);
    CHECK(find_type(row.word)->type == row.type);
  }
  CHECK(std::size(rows) == static_cast<size_t>(Type::boolean) + 1);
  for (const auto& [word, type] : {std::pair{"int", Type::int32},
                                   {"unsigned", Type::uint32},
                                   {"float16", Type::half},
                                   {"float32", Type::float32},
                                   {"float64", Type::float64},
                                   {"double", Type::float64}})
    CHECK(find_type(word)->type == type);
  CHECK(find_type("long") == nullptr);
  CHECK(find_type("") == nullptr);
}

TEST_CASE("values keep their kind, and text() reads back") {
  for (const Value& value : {Value(0), Value(-7), Value(INT64_MAX), Value(INT64_MIN), Value(true), Value(false),
                             Value("row"), Value(Type::half)}) {
    CAPTURE(value.text());
    CHECK(Value::parse(value.text()) == value);
  }
  CHECK(Value(true) != Value(1));
  CHECK(Value(1).as_int() == 1);
  CHECK(Value(true).as_int() == 1);
  CHECK(Value("row").as_int() == 0);
  CHECK(Value("row").as_word() == "row");
  CHECK(Value(5).as_word().empty());
  CHECK(Value(Type::bfloat16).text() == "bfloat16");
  CHECK(Value(size_t{7}).is_int());
  CHECK(Value::parse("+12") == Value(12));
  CHECK(Value::parse("12x") == Value("12x"));
  CHECK(Value::parse("+-1") == Value("+-1"));
  CHECK(Value::parse("9223372036854775808").is_word());
  CHECK(Value(1) < Value(2));
  CHECK_THROWS_AS(Value(std::numeric_limits<size_t>::max()), Error);
  try {
    (void)Value(9223372036854775808ULL);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::bad_problem);
    CHECK(error.message().find("9223372036854775808") != std::string::npos);
  }
}

TEST_CASE("canonical JSON of values is sorted and reads back") {
  const Config config{{"VEC", 4}, {"BLOCK", 128}, {"T", "half"}, {"flag", true}};
  CHECK(space::canonical(config) == R"({"BLOCK":128,"T":"half","VEC":4,"flag":true})");
  const auto back = parse_values(space::canonical(config));
  REQUIRE(back.ok());
  CHECK(*back == config);
  CHECK(space::canonical({}) == "{}");
  CHECK(short_text(config) == "BLOCK=128 T=half VEC=4 flag=true");
}

TEST_CASE("anything but an object of integers, bools and strings is refused with what it is") {
  const std::pair<const char*, const char*> rows[] = {{"[1]", "array"},
                                                      {"3", "number"},
                                                      {"{", "not JSON"},
                                                      {R"({"a":1.5})", "'a' is number"},
                                                      {R"({"a":null})", "null"},
                                                      {R"({"a":{}})", "'a' is object"},
                                                      {R"({"a":18446744073709551615})", "64-bit"},
                                                      {"", "not JSON"}};
  for (const auto& [text, part] : rows) {
    CAPTURE(text);
    const auto values = parse_values(text);
    REQUIRE_FALSE(values.ok());
    CHECK_MESSAGE(values.error().find(part) != std::string::npos, values.error());
  }
  const std::string deep(100'000, '[');
  CHECK_FALSE(parse_values(deep).ok());
}

TEST_CASE("nominal devices have the published figures") {
  struct Row {
    const char* arch;
    int cc, threads_per_sm, blocks_per_sm;
    int64_t smem_optin_kib;
  };
  const Row rows[] = {{"sm_75", 75, 1024, 16, 64},    {"sm_80", 80, 2048, 32, 163},   {"sm_86", 86, 1536, 16, 99},
                      {"sm_87", 87, 1536, 16, 163},   {"sm_89", 89, 1536, 24, 99},    {"sm_90", 90, 2048, 32, 227},
                      {"sm_90a", 90, 2048, 32, 227},  {"sm_100", 100, 2048, 32, 227}, {"sm_100a", 100, 2048, 32, 227},
                      {"sm_103", 103, 2048, 32, 227}, {"sm_110", 110, 1536, 24, 227}, {"sm_120", 120, 1536, 24, 99},
                      {"sm_121", 121, 1536, 24, 99}};
  for (const Row& row : rows) {
    CAPTURE(row.arch);
    const auto device = nominal_device(row.arch);
    REQUIRE(device);
    CHECK(device->cc() == row.cc);
    CHECK(device->max_threads_per_sm == row.threads_per_sm);
    CHECK(device->max_blocks_per_sm == row.blocks_per_sm);
    CHECK(device->smem_optin_bytes == row.smem_optin_kib * 1024);
    CHECK(device->sm_count > 0);
    CHECK(device->memory_bytes > 0);
    CHECK(device->l2_bytes > 0);
    CHECK(device->regs_per_sm == 65536);
    CHECK(nominal_archs().find(row.arch) != std::string::npos);
  }
  CHECK(nominal_device("sm_90")->sm_count == 132);
  CHECK(nominal_device("sm_90")->arch() == "sm_90");
  CHECK_FALSE(nominal_device("sm_80a"));
  CHECK_FALSE(nominal_device("sm_52"));
  CHECK_FALSE(nominal_device(""));
}

namespace {

uint64_t bits(const Result<std::vector<uint8_t>>& bytes) {
  REQUIRE(bytes.ok());
  uint64_t value = 0;
  for (size_t i = 0; i < bytes->size(); ++i) value |= uint64_t{(*bytes)[i]} << (8 * i);
  return value;
}

/// Value of a 16-bit float, by its definition.
double half_value(uint64_t h) {
  const int exponent = static_cast<int>(h >> 10 & 31);
  const double mantissa = static_cast<double>(h & 1023);
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return (h & 0x8000) != 0 ? -magnitude : magnitude;
}

}  // namespace

TEST_CASE("half: known bits, and nearest even for every value and midpoint") {
  CHECK(bits(scalar_bytes(Type::half, 1.0)) == 0x3c00);
  CHECK(bits(scalar_bytes(Type::half, -2.0)) == 0xc000);
  CHECK(bits(scalar_bytes(Type::half, 65504.0)) == 0x7bff);
  CHECK(bits(scalar_bytes(Type::half, 65519.9)) == 0x7bff);
  CHECK(bits(scalar_bytes(Type::half, 65520.0)) == 0x7c00);
  CHECK(bits(scalar_bytes(Type::half, 1e300)) == 0x7c00);
  CHECK(bits(scalar_bytes(Type::half, -0.0)) == 0x8000);
  CHECK(bits(scalar_bytes(Type::half, std::ldexp(1.0, -24))) == 1);
  CHECK(bits(scalar_bytes(Type::half, std::ldexp(1.0, -25))) == 0);
  CHECK(bits(scalar_bytes(Type::half, 1e-300)) == 0);
  CHECK(bits(scalar_bytes(Type::half, std::nan(""))) == 0x7e00);
  CHECK(bits(scalar_bytes(Type::half, int64_t{3})) == 0x4200);
  // 1 + 2^-11 + 2^-40: rounding by way of float would go down to the tie and then to even.
  CHECK(bits(scalar_bytes(Type::half, 1.0 + std::ldexp(1.0, -11) + std::ldexp(1.0, -40))) == 0x3c01);
  int wrong = 0;
  for (uint64_t h = 0; h < 0x7bff; ++h) {
    const double low = half_value(h), high = half_value(h + 1), middle = (low + high) / 2;
    wrong += bits(scalar_bytes(Type::half, low)) != h;
    wrong += bits(scalar_bytes(Type::half, middle)) != (h % 2 == 0 ? h : h + 1);
    wrong += bits(scalar_bytes(Type::half, std::nextafter(middle, high))) != h + 1;
    wrong += bits(scalar_bytes(Type::half, std::nextafter(middle, low))) != h;
  }
  CHECK(wrong == 0);
}

TEST_CASE("bfloat16 agrees with rounding the upper half of a float") {
  std::mt19937_64 random(7);
  int wrong = 0;
  for (int i = 0; i < 20'000; ++i) {
    const uint32_t pattern = static_cast<uint32_t>(random());
    const float value = std::bit_cast<float>(pattern);
    if (std::isnan(value)) continue;
    const uint32_t rounded = (pattern + 0x7fff + (pattern >> 16 & 1)) >> 16;
    wrong += bits(scalar_bytes(Type::bfloat16, static_cast<double>(value))) != rounded;
  }
  CHECK(wrong == 0);
  CHECK(bits(scalar_bytes(Type::bfloat16, 1.0)) == 0x3f80);
}

TEST_CASE("integers are encoded whole or refused") {
  CHECK(bits(scalar_bytes(Type::int8, int64_t{-128})) == 0x80);
  CHECK(bits(scalar_bytes(Type::uint16, int64_t{65535})) == 0xffff);
  CHECK(bits(scalar_bytes(Type::int32, int64_t{-1})) == 0xffffffff);
  CHECK(bits(scalar_bytes(Type::uint64, INT64_MAX)) == static_cast<uint64_t>(INT64_MAX));
  CHECK(bits(scalar_bytes(Type::boolean, int64_t{1})) == 1);
  CHECK(bits(scalar_bytes(Type::float32, int64_t{3})) == std::bit_cast<uint32_t>(3.0f));
  CHECK(bits(scalar_bytes(Type::float32, 1e-6)) == std::bit_cast<uint32_t>(1e-6f));
  CHECK(bits(scalar_bytes(Type::float64, 0.1)) == std::bit_cast<uint64_t>(0.1));
  for (const auto& [type, value] : {std::pair{Type::int8, int64_t{128}},
                                    {Type::uint8, int64_t{-1}},
                                    {Type::int32, int64_t{1} << 31},
                                    {Type::uint32, int64_t{1} << 32},
                                    {Type::uint64, int64_t{-1}},
                                    {Type::boolean, int64_t{2}},
                                    {Type::fp8_e4m3, int64_t{1}}}) {
    CAPTURE(type_info(type).word);
    CHECK_FALSE(scalar_bytes(type, value).ok());
  }
  CHECK(scalar_bytes(Type::fp8_e5m2, 1.0).error().find("fp8") != std::string::npos);
  CHECK(scalar_bytes(Type::int32, 0.5).error().find("int32") != std::string::npos);
}
