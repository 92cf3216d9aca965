#include "space/scalar_bytes.hpp"

#include <bit>
#include <cmath>
#include <limits>
#include <string>

namespace jitune::space {
namespace {

std::vector<uint8_t> little_endian(uint64_t bits, int size_bytes) {
  std::vector<uint8_t> bytes;
  for (int i = 0; i < size_bytes; ++i) bytes.push_back(static_cast<uint8_t>(bits >> (8 * i)));
  return bytes;
}

/// A 16-bit float with `exponent_bits`: rounded from the double itself, since going through float would round twice.
uint64_t to_16_bits(double value, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const uint64_t infinity = ((uint64_t{1} << exponent_bits) - 1) << mantissa_bits;
  const uint64_t sign = std::signbit(value) ? 0x8000U : 0U;
  if (std::isnan(value)) return sign | infinity | (uint64_t{1} << (mantissa_bits - 1));
  if (std::isinf(value)) return sign | infinity;
  if (value == 0) return sign;
  int exponent = std::ilogb(value);
  if (exponent < 1 - bias) exponent = 1 - bias;  // subnormal: the spacing stays
  // In units of the last place; nearbyint rounds to even, the default mode.
  const double units = std::nearbyint(std::ldexp(std::fabs(value), mantissa_bits - exponent));
  // A carry out of the mantissa goes into the exponent by itself; a subnormal has neither hidden bit nor exponent.
  const uint64_t bits = static_cast<uint64_t>(units) + (static_cast<uint64_t>(exponent + bias - 1) << mantissa_bits);
  return sign | (bits >= infinity || exponent > bias ? infinity : bits);
}

template <class Integer>
Result<std::vector<uint8_t>> integer(int64_t value, const TypeInfo& info) {
  const bool fits =
      std::is_signed_v<Integer>
          ? value >= static_cast<int64_t>(std::numeric_limits<Integer>::min()) &&
                value <= static_cast<int64_t>(std::numeric_limits<Integer>::max())
          : value >= 0 && (sizeof(Integer) == 8 || static_cast<uint64_t>(value) <= std::numeric_limits<Integer>::max());
  if (!fits) return Failure{std::to_string(value) + " does not fit " + info.word};
  return little_endian(static_cast<uint64_t>(value), info.size_bytes);
}

}  // namespace

Result<std::vector<uint8_t>> scalar_bytes(Type type, double value) {
  const TypeInfo& info = type_info(type);
  switch (type) {
    case Type::half:
      return little_endian(to_16_bits(value, 5), 2);
    case Type::bfloat16:
      return little_endian(to_16_bits(value, 8), 2);
    case Type::float32:
      return little_endian(std::bit_cast<uint32_t>(static_cast<float>(value)), 4);
    case Type::float64:
      return little_endian(std::bit_cast<uint64_t>(value), 8);
    case Type::fp8_e4m3:
    case Type::fp8_e5m2:
      return Failure{"scalars of fp8 types are not possible; pass a float and convert it in the kernel"};
    default:
      return Failure{std::to_string(value) + " is no integer, but the type is " + info.word};
  }
}

Result<std::vector<uint8_t>> scalar_bytes(Type type, int64_t value) {
  const TypeInfo& info = type_info(type);
  switch (type) {
    case Type::int8:
      return integer<int8_t>(value, info);
    case Type::uint8:
      return integer<uint8_t>(value, info);
    case Type::int16:
      return integer<int16_t>(value, info);
    case Type::uint16:
      return integer<uint16_t>(value, info);
    case Type::int32:
      return integer<int32_t>(value, info);
    case Type::uint32:
      return integer<uint32_t>(value, info);
    case Type::int64:
      return integer<int64_t>(value, info);
    case Type::uint64:
      return integer<uint64_t>(value, info);
    case Type::boolean:
      if (value != 0 && value != 1) return Failure{std::to_string(value) + " is neither true nor false"};
      return little_endian(static_cast<uint64_t>(value), 1);
    case Type::float32:
      return little_endian(std::bit_cast<uint32_t>(static_cast<float>(value)), 4);
    default:
      return scalar_bytes(type, static_cast<double>(value));
  }
}

}  // namespace jitune::space
