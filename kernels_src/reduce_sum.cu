// sums[r] += sum of x[r, :], in fp32. SPLIT blocks share a row and add their parts atomically, so `sums` must start at
// zero. BLOCK, SPLIT and UNROLL come as macros.
#include "row_ops.cuh"

template <typename T, int VEC>
__global__ void __launch_bounds__(BLOCK) reduce_sum(float* sums, const T* x, int cols) {
  using V = Vec<T, VEC>;
  __shared__ float partial[BLOCK / 32];
  const unsigned row = blockIdx.x / SPLIT;
  const unsigned count = static_cast<unsigned>(cols) / VEC;
  const V* in = reinterpret_cast<const V*>(x) + static_cast<size_t>(row) * count;

  // The blocks of a row interleave; UNROLL loads are in flight before the first is used.
  constexpr unsigned kStep = SPLIT * BLOCK;
  float sum[VEC] = {};
  for (unsigned at = blockIdx.x % SPLIT * BLOCK + threadIdx.x; at < count; at += kStep * UNROLL) {
    V vec[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      if (at + u * kStep < count) vec[u] = in[at + u * kStep];
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      if (at + u * kStep < count) {
#pragma unroll
        for (int j = 0; j < VEC; ++j) sum[j] += static_cast<float>(vec[u].v[j]);
      }
    }
  }
#pragma unroll
  for (int j = 1; j < VEC; ++j) sum[0] += sum[j];
  const float total = block_sum<BLOCK>(sum[0], partial);
  if (threadIdx.x == 0) atomicAdd(sums + row, total);
}
