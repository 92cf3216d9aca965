// out[c, r] = in[r, c] through a tile in shared memory. TILE, BLOCK, VEC and PAD come as macros.
#include "row_ops.cuh"

template <typename T>
__global__ void __launch_bounds__(BLOCK) transpose(T* out, const T* in, int rows, int cols) {
  using V = Vec<T, VEC>;
  extern __shared__ __align__(16) unsigned char shared[];
  T* tile = reinterpret_cast<T*>(shared);  // TILE rows of TILE + PAD elements: the padding spreads a column over banks
  constexpr int kStride = TILE + PAD;
  constexpr int kVecs = TILE / VEC;
  const unsigned across = (static_cast<unsigned>(cols) + TILE - 1) / TILE;
  const int row0 = static_cast<int>(blockIdx.x / across) * TILE;
  const int col0 = static_cast<int>(blockIdx.x % across) * TILE;

#pragma unroll
  for (int i = 0; i < (TILE * kVecs + BLOCK - 1) / BLOCK; ++i) {
    const int at = threadIdx.x + i * BLOCK;
    const int r = at / kVecs;
    const int c = at % kVecs * VEC;
    if (r < TILE && row0 + r < rows && col0 + c < cols) {
      const V vec = *reinterpret_cast<const V*>(in + static_cast<size_t>(row0 + r) * cols + col0 + c);
#pragma unroll
      for (int j = 0; j < VEC; ++j) tile[r * kStride + c + j] = vec.v[j];
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < (TILE * kVecs + BLOCK - 1) / BLOCK; ++i) {
    const int at = threadIdx.x + i * BLOCK;
    const int c = at / kVecs;
    const int r = at % kVecs * VEC;
    if (c < TILE && col0 + c < cols && row0 + r < rows) {
      V vec;
#pragma unroll
      for (int j = 0; j < VEC; ++j) vec.v[j] = tile[(r + j) * kStride + c];
      *reinterpret_cast<V*>(out + static_cast<size_t>(col0 + c) * rows + row0 + r) = vec;
    }
  }
}
