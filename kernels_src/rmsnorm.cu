// y[r, :] = x[r, :] / sqrt(mean(x[r, :]^2) + eps) * weight, one block per row.
#include "row_ops.cuh"

template <typename T, int BLOCK, int VEC>
__global__ void __launch_bounds__(BLOCK) rmsnorm(T* y, const T* x, const T* weight, int hidden, float eps) {
  extern __shared__ float partial[];
  using V = Vec<T, VEC>;
  constexpr int kKept = 4;  // vectors a thread holds in registers between the passes; a longer row is read twice
  const int count = hidden / VEC;
  const size_t first = static_cast<size_t>(blockIdx.x) * count;
  const V* in = reinterpret_cast<const V*>(x) + first;
  const V* scale = reinterpret_cast<const V*>(weight);
  V* out = reinterpret_cast<V*>(y) + first;

  V kept[kKept];
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const int at = threadIdx.x + i * BLOCK;
    if (at < count) kept[i] = in[at];
  }
  float sum = 0.0f;
  const auto add = [&sum](const V& vec) {
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
      const float value = static_cast<float>(vec.v[j]);
      sum += value * value;
    }
  };
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    if (static_cast<int>(threadIdx.x) + i * BLOCK < count) add(kept[i]);
  }
  for (int at = threadIdx.x + kKept * BLOCK; at < count; at += BLOCK) add(in[at]);

  const float factor = rsqrtf(block_sum<BLOCK>(sum, partial) / hidden + eps);
  const auto write = [&](const V& vec, int at) {
    const V w = scale[at];
    V result;
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
      result.v[j] = T(static_cast<float>(vec.v[j]) * factor * static_cast<float>(w.v[j]));
    }
    out[at] = result;
  };
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const int at = threadIdx.x + i * BLOCK;
    if (at < count) write(kept[i], at);
  }
  for (int at = threadIdx.x + kKept * BLOCK; at < count; at += BLOCK) write(in[at], at);
}
