// Pieces that the row kernels share. No toolkit header is needed here: the caller's element type brings its own, and
// parsing headers is most of what a small kernel costs to compile.
#pragma once

// N elements moved by one access. Buffers come from allocators that align to 256 bytes, and every user requires that a
// row is a whole number of vectors, so each vector is aligned to its size.
template <typename T, int N>
struct alignas(sizeof(T) * N) Vec {
  T v[N];
};

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}

// Sum over the block, given to every thread. `partial` holds one float per warp; the order of additions is fixed.
template <int THREADS>
__device__ __forceinline__ float block_sum(float value, float* partial) {
  value = warp_sum(value);
  if constexpr (THREADS > 32) {
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    const int lane = static_cast<int>(threadIdx.x % 32);
    value = warp_sum(lane < THREADS / 32 ? partial[lane] : 0.0f);
  }
  return value;
}
