// y[r, :] = softmax(x[r, :]); ROWS rows a block, LANES threads a row.
#include "row_ops.cuh"

constexpr float kLog2e = 1.4426950408889634f;
constexpr float kLowest = -3.0e38f;  // finite, so that the difference of two of them is no NaN

// A running maximum and the sum of 2^(value - maximum) under it, in units of log2.
struct Running {
  float max;
  float sum;
};

__device__ __forceinline__ Running merge(Running a, Running b) {
  const float top = fmaxf(a.max, b.max);
  return {top, a.sum * exp2f(a.max - top) + b.sum * exp2f(b.max - top)};
}

__device__ __forceinline__ Running warp_merge(Running value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value = merge(value,
                  {__shfl_xor_sync(0xffffffffu, value.max, offset), __shfl_xor_sync(0xffffffffu, value.sum, offset)});
  }
  return value;
}

// KEEP vectors of a thread stay in registers between the passes; what is beyond them is read twice.
template <typename T, int LANES, int ROWS, int VEC, int KEEP>
__global__ void __launch_bounds__(LANES* ROWS) softmax(T* y, const T* x, int rows, int cols) {
  using V = Vec<T, VEC>;
  const int lane = threadIdx.x % LANES;
  const long long row = static_cast<long long>(blockIdx.x) * ROWS + threadIdx.x / LANES;
  const int count = row < rows ? cols / VEC : 0;  // threads past the last row still meet the barrier
  const V* in = reinterpret_cast<const V*>(x) + row * (cols / VEC);
  V* out = reinterpret_cast<V*>(y) + row * (cols / VEC);

  const auto add = [](Running run, const V& vec) {
    float top = run.max;
#pragma unroll
    for (int j = 0; j < VEC; ++j) top = fmaxf(top, static_cast<float>(vec.v[j]) * kLog2e);
    run.sum *= exp2f(run.max - top);
#pragma unroll
    for (int j = 0; j < VEC; ++j) run.sum += exp2f(static_cast<float>(vec.v[j]) * kLog2e - top);
    return Running{top, run.sum};
  };
  V kept[KEEP > 0 ? KEEP : 1];
#pragma unroll
  for (int i = 0; i < KEEP; ++i) {
    if (lane + i * LANES < count) kept[i] = in[lane + i * LANES];
  }
  Running run{kLowest, 0.0f};
#pragma unroll
  for (int i = 0; i < KEEP; ++i) {
    if (lane + i * LANES < count) run = add(run, kept[i]);
  }
  for (int at = lane + KEEP * LANES; at < count; at += LANES) run = add(run, in[at]);

  run = warp_merge(run);
  if constexpr (LANES > 32) {
    constexpr int kWarps = LANES / 32;
    __shared__ Running partial[ROWS * kWarps];
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = run;
    __syncthreads();
    const int within = threadIdx.x % 32;
    const int warps_before = threadIdx.x / LANES * kWarps;
    run = warp_merge(within < kWarps ? partial[warps_before + within] : Running{kLowest, 0.0f});
  }

  const float inverse = 1.0f / run.sum;
  const auto write = [&](const V& vec, int at) {
    V result;
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
      result.v[j] = T(exp2f(static_cast<float>(vec.v[j]) * kLog2e - run.max) * inverse);
    }
    out[at] = result;
  };
#pragma unroll
  for (int i = 0; i < KEEP; ++i) {
    if (lane + i * LANES < count) write(kept[i], lane + i * LANES);
  }
  for (int at = lane + KEEP * LANES; at < count; at += LANES) write(in[at], at);
}
