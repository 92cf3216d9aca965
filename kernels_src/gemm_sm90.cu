// C[M, N] = A[M, K] * B[K, N], all row-major, 16-bit elements, fp32 accumulation, for Hopper (sm_90a).
//
// A persistent grid; each block has one producer warp, which keeps a ring of STAGES tiles full by TMA, and CONSUMERS
// warpgroups, which share the block's BM x BN tile by rows and multiply by wgmma straight from shared memory. In a
// cluster of two, the blocks work on neighbouring tiles of one column: each loads half of their common tile of B and
// multicasts it.
//
// A tile of A is BM rows of 64 elements along K ("K-major"). A tile of B is BN / 64 slabs of 64 rows along K by 64
// elements along N ("MN-major", which wgmma can read for 16-bit types). Both have rows of 128 bytes, the width of the
// swizzle. TMA fills what lies over an edge with zeros; K and N must be multiples of 8 (its strides are multiples of 16
// bytes).
struct __half;
struct __nv_bfloat16;

template <typename T>
constexpr bool kIsHalf = false;
template <>
constexpr bool kIsHalf<__half> = true;

struct alignas(64) TensorMap {
  unsigned long long words[16];
};

constexpr int kBK = 64;         // one row of the 128-byte swizzle
constexpr int kRowBytes = 128;  // kBK or 64 columns of B, 2 bytes each
constexpr int kSlabBytes = 64 * kRowBytes;
constexpr int kGroup = 8;  // tile rows that run side by side, so that their tiles of B are shared in L2

__device__ __forceinline__ void barrier_init(unsigned barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void barrier_expect(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_arrive_at(unsigned barrier, unsigned rank) {
  asm volatile(
      "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

// Waits until the phase with this parity is complete.
__device__ __forceinline__ void barrier_wait(unsigned barrier, unsigned parity) {
  unsigned done;
  do {
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
  } while (!done);
}

__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
}

__device__ __forceinline__ void load_box(unsigned to, const TensorMap* map, int x, int y, unsigned barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          to),
      "l"(map), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}

// The same, to the same place and the same barrier of every block in `blocks`.
__device__ __forceinline__ void load_box(unsigned to, const TensorMap* map, int x, int y, unsigned barrier,
                                         unsigned short blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(map), "r"(x), "r"(y), "r"(barrier), "h"(blocks)
      : "memory");
}

// A matrix descriptor of wgmma: 128-byte swizzle, `stride` bytes from eight rows to the next eight, `lead` bytes from
// 64 elements to the next 64 along the contiguous dimension (of no meaning for A, whose tile has just 64).
__device__ __forceinline__ unsigned long long descriptor(unsigned at, unsigned lead, unsigned stride) {
  return (at & 0x3ffff) >> 4 | static_cast<unsigned long long>(lead >> 4) << 16 |
         static_cast<unsigned long long>(stride >> 4) << 32 | 1ull << 62;
}

// clang-format off
#define WGMMA_M64N64(TYPE, C, A_DESC, B_DESC, ADD) \
  asm volatile( \
      "{\n.reg .pred add;\nsetp.ne.b32 add, %34, 0;\n" \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE " {" \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, " \
      "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
      "%24, %25, %26, %27, %28, %29, %30, %31}, " \
      "%32, %33, add, 1, 1, 0, 1;\n}" \
      : "+f"(C[0]), "+f"(C[1]), "+f"(C[2]), "+f"(C[3]), "+f"(C[4]), "+f"(C[5]), "+f"(C[6]), "+f"(C[7]), \
        "+f"(C[8]), "+f"(C[9]), "+f"(C[10]), "+f"(C[11]), "+f"(C[12]), "+f"(C[13]), "+f"(C[14]), "+f"(C[15]), \
        "+f"(C[16]), "+f"(C[17]), "+f"(C[18]), "+f"(C[19]), "+f"(C[20]), "+f"(C[21]), "+f"(C[22]), "+f"(C[23]), \
        "+f"(C[24]), "+f"(C[25]), "+f"(C[26]), "+f"(C[27]), "+f"(C[28]), "+f"(C[29]), "+f"(C[30]), "+f"(C[31]) \
      : "l"(A_DESC), "l"(B_DESC), "r"(ADD))

#define WGMMA_M64N128(TYPE, C, A_DESC, B_DESC, ADD) \
  asm volatile( \
      "{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n" \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE " {" \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, " \
      "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
      "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, " \
      "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, " \
      "%60, %61, %62, %63}, " \
      "%64, %65, add, 1, 1, 0, 1;\n}" \
      : "+f"(C[0]), "+f"(C[1]), "+f"(C[2]), "+f"(C[3]), "+f"(C[4]), "+f"(C[5]), "+f"(C[6]), "+f"(C[7]), \
        "+f"(C[8]), "+f"(C[9]), "+f"(C[10]), "+f"(C[11]), "+f"(C[12]), "+f"(C[13]), "+f"(C[14]), "+f"(C[15]), \
        "+f"(C[16]), "+f"(C[17]), "+f"(C[18]), "+f"(C[19]), "+f"(C[20]), "+f"(C[21]), "+f"(C[22]), "+f"(C[23]), \
        "+f"(C[24]), "+f"(C[25]), "+f"(C[26]), "+f"(C[27]), "+f"(C[28]), "+f"(C[29]), "+f"(C[30]), "+f"(C[31]), \
        "+f"(C[32]), "+f"(C[33]), "+f"(C[34]), "+f"(C[35]), "+f"(C[36]), "+f"(C[37]), "+f"(C[38]), "+f"(C[39]), \
        "+f"(C[40]), "+f"(C[41]), "+f"(C[42]), "+f"(C[43]), "+f"(C[44]), "+f"(C[45]), "+f"(C[46]), "+f"(C[47]), \
        "+f"(C[48]), "+f"(C[49]), "+f"(C[50]), "+f"(C[51]), "+f"(C[52]), "+f"(C[53]), "+f"(C[54]), "+f"(C[55]), \
        "+f"(C[56]), "+f"(C[57]), "+f"(C[58]), "+f"(C[59]), "+f"(C[60]), "+f"(C[61]), "+f"(C[62]), "+f"(C[63]) \
      : "l"(A_DESC), "l"(B_DESC), "r"(ADD))

#define WGMMA_M64N256(TYPE, C, A_DESC, B_DESC, ADD) \
  asm volatile( \
      "{\n.reg .pred add;\nsetp.ne.b32 add, %130, 0;\n" \
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." TYPE "." TYPE " {" \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, " \
      "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
      "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, " \
      "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, " \
      "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, " \
      "%72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, " \
      "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, " \
      "%108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, " \
      "%120, %121, %122, %123, %124, %125, %126, %127}, " \
      "%128, %129, add, 1, 1, 0, 1;\n}" \
      : "+f"(C[0]), "+f"(C[1]), "+f"(C[2]), "+f"(C[3]), "+f"(C[4]), "+f"(C[5]), "+f"(C[6]), "+f"(C[7]), \
        "+f"(C[8]), "+f"(C[9]), "+f"(C[10]), "+f"(C[11]), "+f"(C[12]), "+f"(C[13]), "+f"(C[14]), "+f"(C[15]), \
        "+f"(C[16]), "+f"(C[17]), "+f"(C[18]), "+f"(C[19]), "+f"(C[20]), "+f"(C[21]), "+f"(C[22]), "+f"(C[23]), \
        "+f"(C[24]), "+f"(C[25]), "+f"(C[26]), "+f"(C[27]), "+f"(C[28]), "+f"(C[29]), "+f"(C[30]), "+f"(C[31]), \
        "+f"(C[32]), "+f"(C[33]), "+f"(C[34]), "+f"(C[35]), "+f"(C[36]), "+f"(C[37]), "+f"(C[38]), "+f"(C[39]), \
        "+f"(C[40]), "+f"(C[41]), "+f"(C[42]), "+f"(C[43]), "+f"(C[44]), "+f"(C[45]), "+f"(C[46]), "+f"(C[47]), \
        "+f"(C[48]), "+f"(C[49]), "+f"(C[50]), "+f"(C[51]), "+f"(C[52]), "+f"(C[53]), "+f"(C[54]), "+f"(C[55]), \
        "+f"(C[56]), "+f"(C[57]), "+f"(C[58]), "+f"(C[59]), "+f"(C[60]), "+f"(C[61]), "+f"(C[62]), "+f"(C[63]), \
        "+f"(C[64]), "+f"(C[65]), "+f"(C[66]), "+f"(C[67]), "+f"(C[68]), "+f"(C[69]), "+f"(C[70]), "+f"(C[71]), \
        "+f"(C[72]), "+f"(C[73]), "+f"(C[74]), "+f"(C[75]), "+f"(C[76]), "+f"(C[77]), "+f"(C[78]), "+f"(C[79]), \
        "+f"(C[80]), "+f"(C[81]), "+f"(C[82]), "+f"(C[83]), "+f"(C[84]), "+f"(C[85]), "+f"(C[86]), "+f"(C[87]), \
        "+f"(C[88]), "+f"(C[89]), "+f"(C[90]), "+f"(C[91]), "+f"(C[92]), "+f"(C[93]), "+f"(C[94]), "+f"(C[95]), \
        "+f"(C[96]), "+f"(C[97]), "+f"(C[98]), "+f"(C[99]), "+f"(C[100]), "+f"(C[101]), "+f"(C[102]), "+f"(C[103]), \
        "+f"(C[104]), "+f"(C[105]), "+f"(C[106]), "+f"(C[107]), "+f"(C[108]), "+f"(C[109]), "+f"(C[110]), "+f"(C[111]), \
        "+f"(C[112]), "+f"(C[113]), "+f"(C[114]), "+f"(C[115]), "+f"(C[116]), "+f"(C[117]), "+f"(C[118]), "+f"(C[119]), \
        "+f"(C[120]), "+f"(C[121]), "+f"(C[122]), "+f"(C[123]), "+f"(C[124]), "+f"(C[125]), "+f"(C[126]), "+f"(C[127]) \
      : "l"(A_DESC), "l"(B_DESC), "r"(ADD))

// clang-format on

// C (64 x BN, in the registers of a warpgroup) = A * B + (add ? C : 0).
template <typename T, int BN>
__device__ __forceinline__ void multiply(float (&c)[BN / 2], unsigned long long a, unsigned long long b, int add) {
  if constexpr (BN == 64 && kIsHalf<T>) {
    WGMMA_M64N64("f16", c, a, b, add);
  } else if constexpr (BN == 64) {
    WGMMA_M64N64("bf16", c, a, b, add);
  } else if constexpr (BN == 128 && kIsHalf<T>) {
    WGMMA_M64N128("f16", c, a, b, add);
  } else if constexpr (BN == 128) {
    WGMMA_M64N128("bf16", c, a, b, add);
  } else if constexpr (kIsHalf<T>) {
    WGMMA_M64N256("f16", c, a, b, add);
  } else {
    WGMMA_M64N256("bf16", c, a, b, add);
  }
}

template <int PENDING>
__device__ __forceinline__ void wait_multiply() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
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

// Four lanes with four words each: word i of lane j becomes word j of lane i.
__device__ __forceinline__ void transpose_quad(unsigned (&w)[4]) {
  const bool odd = threadIdx.x & 1;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const unsigned other = __shfl_xor_sync(0xffffffffu, odd ? w[i] : w[i + 1], 1);
    (odd ? w[i] : w[i + 1]) = other;
  }
  const bool upper = threadIdx.x & 2;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const unsigned other = __shfl_xor_sync(0xffffffffu, upper ? w[i] : w[i + 2], 2);
    (upper ? w[i] : w[i + 2]) = other;
  }
}

struct Tile {
  int row;
  int col;
};

// Tiles in an order that keeps those in flight close together: kGroup tile rows side by side, then the next column.
__device__ __forceinline__ Tile tile_at(int index, int tall, int wide) {
  const int group = index / (kGroup * wide);
  const int in_group = index % (kGroup * wide);
  const int height = min(kGroup, tall - group * kGroup);
  return {group * kGroup + in_group % height, in_group / height};
}

// With one consumer two blocks fit on a multiprocessor, and one stores while the other multiplies; ptxas refuses the
// widest instruction under the register cap that this takes.
template <typename T, int BM, int BN, int STAGES, int CONSUMERS, int CLUSTER>
__global__ void __launch_bounds__((CONSUMERS + 1) * 128, CONSUMERS == 1 && BN < 256 ? 2 : 1)
    gemm_sm90(T* C, const __grid_constant__ TensorMap A_map, const __grid_constant__ TensorMap B_map, int M, int N,
              int K) {
  constexpr int kBytesA = BM * kRowBytes;
  constexpr int kBytesStage = kBytesA + BN * kRowBytes;
  constexpr int kBlocks64 = BM / 64 / CONSUMERS;  // wgmma tiles of 64 rows that a consumer has
  static_assert(kBlocks64 * 64 * CONSUMERS == BM && CLUSTER <= 2);

  extern __shared__ unsigned char shared[];
  // The swizzle follows address bits, so every tile starts at a multiple of 1024 bytes.
  const unsigned ring = (static_cast<unsigned>(__cvta_generic_to_shared(shared)) + 1023) / 1024 * 1024;
  const unsigned full = ring + STAGES * kBytesStage;
  const unsigned empty = full + STAGES * 8;

  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; ++i) {
      barrier_init(full + i * 8, 1);
      barrier_init(empty + i * 8,
                   CLUSTER * CONSUMERS * 4);  // one arrival a warp, from every block it shares tiles with
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  if constexpr (CLUSTER > 1) {
    cluster_sync();
  } else {
    __syncthreads();
  }

  const int rank = blockIdx.x % CLUSTER;
  const int tall = (M + BM * CLUSTER - 1) / (BM * CLUSTER);  // in clusters
  const int wide = (N + BN - 1) / BN;
  const int tiles = tall * wide;
  const int tiles_k = (K + kBK - 1) / kBK;
  int stage = 0;
  unsigned phase = 0;
  const auto advance = [&] {
    if (++stage == STAGES) {
      stage = 0;
      phase ^= 1;
    }
  };

  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0) {
      for (int index = blockIdx.x / CLUSTER; index < tiles; index += gridDim.x / CLUSTER) {
        const Tile tile = tile_at(index, tall, wide);
        const int m0 = (tile.row * CLUSTER + rank) * BM;
        const int n0 = tile.col * BN;
        for (int k = 0; k < tiles_k; ++k) {
          barrier_wait(empty + stage * 8, phase ^ 1);
          const unsigned barrier = full + stage * 8;
          const unsigned to_a = ring + stage * kBytesStage;
          const unsigned to_b = to_a + kBytesA;
          barrier_expect(barrier, kBytesStage);  // all of B: the other block's half counts here too
          load_box(to_a, &A_map, k * kBK, m0, barrier);
#pragma unroll
          for (int slab = 0; slab < BN / 64; ++slab) {
            const int x = n0 + slab * 64;
            if constexpr (CLUSTER == 1) {
              load_box(to_b + slab * kSlabBytes, &B_map, x, k * kBK, barrier);
            } else {
              load_box(to_b + slab * kSlabBytes + rank * (kSlabBytes / CLUSTER), &B_map, x,
                       k * kBK + rank * (kBK / CLUSTER), barrier, static_cast<unsigned short>((1 << CLUSTER) - 1));
            }
          }
          advance();
        }
      }
    }
  } else {
    if constexpr (CONSUMERS == 1) {
      asm volatile("setmaxnreg.inc.sync.aligned.u32 216;");  // 2 blocks of 216 + 40 and 128 threads each
    } else {
      asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");  // 2 * 232 + 40 <= 3 * 168
    }
    const int lane = threadIdx.x % 32;
    const int consumer = threadIdx.x / 128 - 1;
    const auto release = [&](int at) {
      if constexpr (CLUSTER == 1) {
        if (lane == 0) barrier_arrive(empty + at * 8);
      } else {
        if (lane < CLUSTER) barrier_arrive_at(empty + at * 8, lane);
      }
    };
    for (int index = blockIdx.x / CLUSTER; index < tiles; index += gridDim.x / CLUSTER) {
      float acc[kBlocks64][BN / 2];
      int previous = 0;
#pragma unroll 1
      for (int k = 0; k < tiles_k; ++k) {
        barrier_wait(full + stage * 8, phase);
        const unsigned tile_a = ring + stage * kBytesStage + consumer * kBlocks64 * kSlabBytes;
        const unsigned long long a = descriptor(tile_a, 16, 8 * kRowBytes);
        const unsigned long long b = descriptor(ring + stage * kBytesStage + kBytesA, kSlabBytes, 8 * kRowBytes);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int step = 0; step < kBK / 16; ++step) {
#pragma unroll
          for (int i = 0; i < kBlocks64; ++i) {
            // Along K, A moves 16 elements within its rows, B moves 16 rows. Descriptors count in 16 bytes.
            multiply<T, BN>(acc[i], a + (i * kSlabBytes + step * 32) / 16, b + step * 16 * kRowBytes / 16,
                            k > 0 || step > 0);
          }
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        // One stage's products stay in flight; those of the stage before are done, so that it may be filled again.
        wait_multiply<1>();
        if (k > 0) release(previous);
        previous = stage;
        advance();
      }
      wait_multiply<0>();
#pragma unroll
      for (int i = 0; i < kBlocks64; ++i) {
#pragma unroll
        for (int j = 0; j < BN / 2; ++j) asm volatile("" : "+f"(acc[i][j])::"memory");  // not read before the wait
      }
      release(previous);

      const Tile tile = tile_at(index, tall, wide);
      const int first_row = (tile.row * CLUSTER + rank) * BM + consumer * kBlocks64 * 64 + threadIdx.x / 32 % 4 * 16;
      const int first_col = tile.col * BN;
#pragma unroll
      for (int i = 0; i < kBlocks64; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = first_row + i * 64 + half * 8 + lane / 4;
          T* out = C + static_cast<size_t>(row) * N;
#pragma unroll
          for (int j = 0; j < BN / 32; ++j) {
            unsigned words[4];
#pragma unroll
            for (int g = 0; g < 4; ++g) {
              const int at = (j * 4 + g) * 4 + half * 2;
              words[g] = pack<T>(acc[i][at], acc[i][at + 1]);
            }
            transpose_quad(words);  // from 4 bytes of four places to 16 bytes of one
            const int col = first_col + j * 32 + lane % 4 * 8;
            if (row < M && col < N) {
              *reinterpret_cast<uint4*>(out + col) = make_uint4(words[0], words[1], words[2], words[3]);
            }
          }
        }
      }
    }
  }
  // No block leaves while the other may still write to its shared memory or arrive at its barriers.
  if constexpr (CLUSTER > 1) cluster_sync();
}
