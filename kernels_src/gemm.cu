// C[M, N] = A[M, K] * B[K, N], all row-major, 16-bit elements, fp32 accumulation, for sm_80 and later: mma.sync fed by
// ldmatrix from a ring of STAGES tiles that cp.async fills. K and N must be multiples of 8 (16-byte accesses); tiles
// over the edges are filled with zeros.
struct __half;
struct __nv_bfloat16;

template <typename T>
constexpr bool kIsHalf = false;
template <>
constexpr bool kIsHalf<__half> = true;

constexpr int kGroup = 8;  // tile rows that run side by side, so that their tiles of B are shared in L2

__device__ __forceinline__ void copy_async(unsigned to, const void* from, bool inside) {
  const int bytes = inside ? 16 : 0;  // the rest of the 16 bytes is filled with zeros
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

__device__ __forceinline__ void load_matrices(unsigned (&r)[4], unsigned at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}

__device__ __forceinline__ void load_matrices_transposed(unsigned (&r)[4], unsigned at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}

template <typename T>
__device__ __forceinline__ void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  if constexpr (kIsHalf<T>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

template <typename T>
__device__ __forceinline__ unsigned pack(float low, float high) {
  unsigned word;
  if constexpr (kIsHalf<T>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  }
  return word;
}

// Byte offset of a 16-byte chunk in a tile of ROW chunks a row. The swizzle gives the eight rows that one ldmatrix
// phase reads eight different bank groups; rows of 64 bytes lie in pairs on one line of banks, so theirs moves every
// second row.
template <int ROW>
__device__ __forceinline__ unsigned chunk_at(int row, int chunk) {
  static_assert(ROW == 4 || ROW % 8 == 0);
  const int swizzled = ROW == 4 ? chunk ^ ((row >> 1) & 3) : chunk ^ (row & 7);
  return static_cast<unsigned>(row * ROW + swizzled) * 16;
}

template <typename T, int BM, int BN, int BK, int STAGES, int WM, int WN>
__global__ void __launch_bounds__((BM / WM) * (BN / WN) * 32) gemm(T* C, const T* A, const T* B, int M, int N, int K) {
  constexpr int kThreads = (BM / WM) * (BN / WN) * 32;
  constexpr int kRowA = BK / 8;  // chunks of a row
  constexpr int kRowB = BN / 8;
  constexpr unsigned kBytesA = BM * BK * 2;
  constexpr unsigned kBytesStage = kBytesA + BK * BN * 2;
  extern __shared__ __align__(128) unsigned char shared[];
  const unsigned ring = static_cast<unsigned>(__cvta_generic_to_shared(shared));

  const int tiles_m = (M + BM - 1) / BM;
  const int tiles_n = (N + BN - 1) / BN;
  const int group = blockIdx.x / (kGroup * tiles_n);
  const int in_group = blockIdx.x % (kGroup * tiles_n);
  const int height = min(kGroup, tiles_m - group * kGroup);
  const int m0 = (group * kGroup + in_group % height) * BM;
  const int n0 = in_group / height * BN;

  // A thread's chunks lie below each other: kThreads is a multiple of the chunks of a row.
  const int row_a = threadIdx.x / kRowA, chunk_a = threadIdx.x % kRowA;
  const int row_b = threadIdx.x / kRowB, chunk_b = threadIdx.x % kRowB;
  constexpr int kDownA = kThreads / kRowA, kDownB = kThreads / kRowB;
  const T* const from_a = A + static_cast<size_t>(m0 + row_a) * K + chunk_a * 8;
  const T* const from_b = B + static_cast<size_t>(row_b) * N + n0 + chunk_b * 8;
  const auto load_tile = [&](int tile, int stage) {
    const int k0 = tile * BK;
    const unsigned to_a = ring + stage * kBytesStage;
    const unsigned to_b = to_a + kBytesA;
    const bool inside_k = k0 + chunk_a * 8 < K;
    const T* from = from_a + k0;
#pragma unroll 8
    for (int row = row_a; row < BM; row += kDownA) {
      const bool inside = inside_k && m0 + row < M;
      copy_async(to_a + chunk_at<kRowA>(row, chunk_a), inside ? from : A, inside);
      from += static_cast<size_t>(kDownA) * K;
    }
    const bool inside_n = n0 + chunk_b * 8 < N;
    from = from_b + static_cast<size_t>(k0) * N;
#pragma unroll 8
    for (int row = row_b; row < BK; row += kDownB) {
      const bool inside = inside_n && k0 + row < K;
      copy_async(to_b + chunk_at<kRowB>(row, chunk_b), inside ? from : B, inside);
      from += static_cast<size_t>(kDownB) * N;
    }
  };
  const auto commit = [] { asm volatile("cp.async.commit_group;" ::: "memory"); };

  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int warp_m = warp / (BN / WN) * WM;
  const int warp_n = warp % (BN / WN) * WN;
  float acc[WM / 16][WN / 8][4] = {};

  const int tiles_k = (K + BK - 1) / BK;
#pragma unroll 1
  for (int stage = 0; stage < STAGES - 1; ++stage) {
    if (stage < tiles_k) load_tile(stage, stage);
    commit();  // also when there is nothing to load: the wait below counts groups
  }
  int stage = 0;
#pragma unroll 1
  for (int tile = 0; tile < tiles_k; ++tile) {
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
    __syncthreads();  // this tile has come, and everyone is done with the one that the next load overwrites
    const int ahead = tile + STAGES - 1;
    if (ahead < tiles_k) load_tile(ahead, stage == 0 ? STAGES - 1 : stage - 1);
    commit();

    const unsigned tile_a = ring + stage * kBytesStage;
    const unsigned tile_b = tile_a + kBytesA;
#pragma unroll
    for (int k = 0; k < BK / 16; ++k) {
      unsigned a[WM / 16][4];
      unsigned b[WN / 16][4];
#pragma unroll
      for (int i = 0; i < WM / 16; ++i) {
        load_matrices(a[i], tile_a + chunk_at<kRowA>(warp_m + i * 16 + lane % 16, k * 2 + lane / 16));
      }
#pragma unroll
      for (int j = 0; j < WN / 16; ++j) {
        load_matrices_transposed(b[j], tile_b + chunk_at<kRowB>(k * 16 + lane % 16, (warp_n + j * 16) / 8 + lane / 16));
      }
#pragma unroll
      for (int i = 0; i < WM / 16; ++i) {
#pragma unroll
        for (int j = 0; j < WN / 8; ++j) multiply<T>(acc[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
      }
    }
    stage = stage == STAGES - 1 ? 0 : stage + 1;
  }

#pragma unroll
  for (int i = 0; i < WM / 16; ++i) {
#pragma unroll
    for (int j = 0; j < WN / 8; ++j) {
      const int col = n0 + warp_n + j * 8 + lane % 4 * 2;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = m0 + warp_m + i * 16 + half * 8 + lane / 4;
        if (row < M && col < N) {
          *reinterpret_cast<unsigned*>(C + static_cast<size_t>(row) * N + col) =
              pack<T>(acc[i][j][half * 2], acc[i][j][half * 2 + 1]);
        }
      }
    }
  }
}
