#pragma once

#include <cstdint>
#include <initializer_list>

/// Classes of strides and addresses as problem values, for kernels whose best config (or code) depends on them while
/// their exact values do not matter:
///
///     kernel.problem({{"n", n}, {"x_stride", jitune::stride_class(stride)}, {"align", jitune::alignment_class({x,
///     y})}})
///
/// jit-prewarm takes the same numbers: `--problem n=4096,x_stride=1,align=16`.
namespace jitune {

/// 0 for a broadcast dimension, 1 for a contiguous one, 2 for any other stride, negative ones included.
constexpr int stride_class(long long stride) noexcept {
  return stride == 0 || stride == 1 ? static_cast<int>(stride) : 2;
}

/// The largest power of two, at most `at_most` (itself one), that divides all the addresses: 16 says that vectors of 16
/// bytes may be loaded from each of them.
inline int alignment_class(std::initializer_list<const void*> addresses, int at_most = 16) noexcept {
  std::uintptr_t bits = static_cast<std::uintptr_t>(at_most);
  for (const void* address : addresses) bits |= reinterpret_cast<std::uintptr_t>(address);
  return static_cast<int>(bits & (~bits + 1));
}

/// Of numbers of bytes too: offsets, row pitches.
constexpr int alignment_class(long long bytes, int at_most = 16) noexcept {
  const auto bits = static_cast<unsigned long long>(bytes) | static_cast<unsigned long long>(at_most);
  return static_cast<int>(bits & (~bits + 1));
}

}  // namespace jitune
