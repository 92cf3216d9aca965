#include <array>
#include <optional>

#include "gpu/module.hpp"

namespace jitune::gpu {
namespace {

constexpr size_t kMaxRank = 5;

CUtensorMapDataType data_type(Type type) {
  switch (type) {
    case Type::half:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case Type::bfloat16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case Type::float32:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case Type::float64:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT64;
    case Type::int32:
      return CU_TENSOR_MAP_DATA_TYPE_INT32;
    case Type::uint32:
      return CU_TENSOR_MAP_DATA_TYPE_UINT32;
    case Type::int64:
      return CU_TENSOR_MAP_DATA_TYPE_INT64;
    case Type::uint64:
      return CU_TENSOR_MAP_DATA_TYPE_UINT64;
    case Type::int16:
    case Type::uint16:
      return CU_TENSOR_MAP_DATA_TYPE_UINT16;
    case Type::int8:
    case Type::uint8:
    case Type::fp8_e4m3:
    case Type::fp8_e5m2:
    case Type::boolean:
      break;
  }
  return CU_TENSOR_MAP_DATA_TYPE_UINT8;  // TMA moves bytes; one-byte types have no code of their own
}

std::optional<CUtensorMapSwizzle> swizzle(int bytes) {
  switch (bytes) {
    case 0:
      return CU_TENSOR_MAP_SWIZZLE_NONE;
    case 32:
      return CU_TENSOR_MAP_SWIZZLE_32B;
    case 64:
      return CU_TENSOR_MAP_SWIZZLE_64B;
    case 128:
      return CU_TENSOR_MAP_SWIZZLE_128B;
    default:
      return std::nullopt;
  }
}

std::optional<CUtensorMapInterleave> interleave(int bytes) {
  switch (bytes) {
    case 0:
      return CU_TENSOR_MAP_INTERLEAVE_NONE;
    case 16:
      return CU_TENSOR_MAP_INTERLEAVE_16B;
    case 32:
      return CU_TENSOR_MAP_INTERLEAVE_32B;
    default:
      return std::nullopt;
  }
}

std::optional<CUtensorMapL2promotion> l2_promotion(int bytes) {
  switch (bytes) {
    case 0:
      return CU_TENSOR_MAP_L2_PROMOTION_NONE;
    case 64:
      return CU_TENSOR_MAP_L2_PROMOTION_L2_64B;
    case 128:
      return CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
    case 256:
      return CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
    default:
      return std::nullopt;
  }
}

/// Sizes of a tensor map as the driver takes them.
struct Sizes {
  std::array<cuuint64_t, kMaxRank> dims{}, strides_bytes{};
  std::array<cuuint32_t, kMaxRank> box{}, element_strides{};
};

/// The reason why the arg's sizes are unusable, or nothing.
std::optional<std::string> fill_sizes(const space::ArgSpec& arg, Sizes& sizes) {
  const size_t rank = arg.dims.size();
  if (rank < 1 || rank > kMaxRank) return "it has " + std::to_string(rank) + " dims, 1 to 5 are possible";
  if (arg.box.size() != rank)
    return "box has " + std::to_string(arg.box.size()) + " values for " + std::to_string(rank) + " dims";
  if (!arg.strides_bytes.empty() && arg.strides_bytes.size() != rank - 1)
    return "strides_bytes has " + std::to_string(arg.strides_bytes.size()) + " values, one less than dims are needed";
  if (!arg.element_strides.empty() && arg.element_strides.size() != rank)
    return "element_strides has " + std::to_string(arg.element_strides.size()) + " values for " + std::to_string(rank) +
           " dims";
  int64_t dense_bytes = arg.element_bytes;
  for (size_t i = 0; i < rank; ++i) {
    if (arg.dims[i] < 1) return "dim " + std::to_string(i) + " is " + std::to_string(arg.dims[i]);
    if (arg.box[i] < 1 || arg.box[i] > 256)
      return "box " + std::to_string(i) + " is " + std::to_string(arg.box[i]) + ", 1 to 256 are possible";
    sizes.dims[i] = static_cast<cuuint64_t>(arg.dims[i]);
    sizes.box[i] = static_cast<cuuint32_t>(arg.box[i]);
    sizes.element_strides[i] = arg.element_strides.empty() ? 1 : static_cast<cuuint32_t>(arg.element_strides[i]);
    dense_bytes *= arg.dims[i];
    if (i + 1 < rank)
      sizes.strides_bytes[i] = static_cast<cuuint64_t>(arg.strides_bytes.empty() ? dense_bytes : arg.strides_bytes[i]);
  }
  return std::nullopt;
}

}  // namespace

Trouble encode_tensor_map(const Driver& driver, const space::ArgSpec& arg, Type element, CUdeviceptr base,
                          CUtensorMap& map) {
  const std::string what = "tensor map `" + arg.name + "`";
  if (driver.cuTensorMapEncodeTiled == nullptr)
    return {CUDA_ERROR_NOT_SUPPORTED, what + " needs a driver for CUDA 12 or newer"};
  space::ArgSpec described = arg;
  described.element_bytes = type_info(element).size_bytes;
  Sizes sizes;
  if (const auto reason = fill_sizes(described, sizes); reason)
    return {CUDA_ERROR_INVALID_VALUE, what + ": " + *reason};
  const auto swizzled = swizzle(arg.swizzle);
  const auto interleaved = interleave(arg.interleave);
  const auto promoted = l2_promotion(arg.l2_promotion);
  if (!swizzled || !interleaved || !promoted)
    return {CUDA_ERROR_INVALID_VALUE,
            what + ": swizzle is 0, 32, 64 or 128, interleave 0, 16 or 32, l2_promotion 0, 64, 128 or 256; not " +
                std::to_string(arg.swizzle) + ", " + std::to_string(arg.interleave) + ", " +
                std::to_string(arg.l2_promotion)};
  const CUresult result = driver.cuTensorMapEncodeTiled(
      &map, data_type(element), static_cast<cuuint32_t>(arg.dims.size()), reinterpret_cast<void*>(base),
      sizes.dims.data(), sizes.strides_bytes.data(), sizes.box.data(), sizes.element_strides.data(), *interleaved,
      *swizzled, *promoted,
      arg.oob_nan ? CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA : CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return {};
  return {result, driver.describe(what + " is refused by the driver (16-byte aligned base and strides, a box row "
                                         "within the swizzle, and so on)",
                                  result)};
}

}  // namespace jitune::gpu
