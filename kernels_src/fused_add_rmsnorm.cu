// residual += x, then x = residual / sqrt(mean(residual^2) + eps) * weight; both in place, one block per row.
#include "row_ops.cuh"

// No launch bounds: they would override --maxrregcount, which is one of the knobs.
template <typename T, int BLOCK, int VEC>
__global__ void fused_add_rmsnorm(T* x, T* residual, const T* weight, int hidden, float eps) {
  extern __shared__ float partial[];
  using V = Vec<T, VEC>;
  constexpr int kKept = 4;  // vectors a thread holds in registers between the passes
  const int count = hidden / VEC;
  const size_t first = static_cast<size_t>(blockIdx.x) * count;
  V* io = reinterpret_cast<V*>(x) + first;
  V* total = reinterpret_cast<V*>(residual) + first;
  const V* scale = reinterpret_cast<const V*>(weight);

  float sum = 0.0f;
  // What is normalised is the rounded sum, as a later reader of `residual` sees it.
  const auto add = [&](int at) {
    const V a = io[at];
    V b = total[at];
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
      b.v[j] = T(static_cast<float>(a.v[j]) + static_cast<float>(b.v[j]));
      const float value = static_cast<float>(b.v[j]);
      sum += value * value;
    }
    total[at] = b;
    return b;
  };
  V kept[kKept];
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const int at = threadIdx.x + i * BLOCK;
    if (at < count) kept[i] = add(at);
  }
  for (int at = threadIdx.x + kKept * BLOCK; at < count; at += BLOCK) add(at);

  const float factor = rsqrtf(block_sum<BLOCK>(sum, partial) / hidden + eps);
  const auto write = [&](const V& vec, int at) {
    const V w = scale[at];
    V result;
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
      result.v[j] = T(static_cast<float>(vec.v[j]) * factor * static_cast<float>(w.v[j]));
    }
    io[at] = result;
  };
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const int at = threadIdx.x + i * BLOCK;
    if (at < count) write(kept[i], at);
  }
  // A thread reads back only what it wrote itself.
  for (int at = threadIdx.x + kKept * BLOCK; at < count; at += BLOCK) write(total[at], at);
}
