// The measuring worker's own kernels: fills, comparison of outputs, guards. No #include, few inlined copies and no
// unrolling, so that NVRTC takes a tenth of a second at most. Plain C++ apart from the built-in names: tests compile
// the same text for the host. Every kernel works with any grid, also a single thread. Type codes are those of
// jitune::Type, and kRawBytes.

typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned char u8;

enum {
  kHalf,
  kBfloat16,
  kFloat32,
  kFloat64,
  kInt8,
  kUint8,
  kInt16,
  kUint16,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kFp8E4m3,
  kFp8E5m2,
  kBoolean,
  kRawBytes
};
enum { kFillNone, kFillNormal, kFillUniform, kFillIntegers, kFillIndices, kFillZeros, kFillOnes, kFillConstant };

// A counter-based generator (the finaliser of splitmix64): element i of a buffer is the same for any grid.
__device__ inline u64 random_bits(u64 seed, u64 counter) {
  u64 z = seed + (counter + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

__device__ inline double bits_to_double(u64 bits) {
  union {
    u64 u;
    double d;
  } value;
  value.u = bits;
  return value.d;
}

__device__ inline u64 double_to_bits(double number) {
  union {
    u64 u;
    double d;
  } value;
  value.d = number;
  return value.u;
}

__device__ inline double power_of_two(int exponent) {
  return bits_to_double((u64)(exponent + 1023) << 52);
}

// Exponent and mantissa bits of the small floating types.
struct Layout {
  int exponent, mantissa;
};
__device__ inline Layout layout_of(int type) {
  Layout layout = {5, 10};
  if (type == kBfloat16) {
    layout.exponent = 8;
    layout.mantissa = 7;
  }
  if (type == kFp8E4m3) {
    layout.exponent = 4;
    layout.mantissa = 3;
  }
  if (type == kFp8E5m2) {
    layout.exponent = 5;
    layout.mantissa = 2;
  }
  return layout;
}

// Rounds to nearest even. fp8 saturates at its largest finite value, the others overflow to infinity.
__device__ __noinline__ u32 encode_small(double number, int type) {
  const Layout layout = layout_of(type);
  const int bias = (1 << (layout.exponent - 1)) - 1;
  const u32 sign = (u32)(double_to_bits(number) >> 63) << (layout.exponent + layout.mantissa);
  const u32 infinity = ((1u << layout.exponent) - 1) << layout.mantissa;
  const double size = fabs(number);
  if (size != size) return sign | infinity | ((1u << layout.mantissa) - 1);
  u32 largest = infinity;
  if (type == kFp8E4m3) largest = 0x7E;
  if (type == kFp8E5m2) largest = 0x7B;
  int exponent = (int)((double_to_bits(size) >> 52) & 0x7FF) - 1023;
  if (exponent > bias + 1) return sign | largest;
  u32 code;
  if (exponent < 1 - bias) {
    code = (u32)rint(size * power_of_two(bias + layout.mantissa - 1));
  } else {
    const u32 steps = (u32)rint(size * power_of_two(layout.mantissa - exponent));
    code = ((u32)(exponent + bias) << layout.mantissa) + steps - (1u << layout.mantissa);
  }
  return sign | (code > largest ? largest : code);
}

__device__ __noinline__ double decode_small(u32 bits, int type) {
  const Layout layout = layout_of(type);
  const int bias = (1 << (layout.exponent - 1)) - 1;
  const u32 mantissa = bits & ((1u << layout.mantissa) - 1);
  const u32 exponent = (bits >> layout.mantissa) & ((1u << layout.exponent) - 1);
  const bool negative = (bits >> (layout.exponent + layout.mantissa)) & 1;
  double size;
  const bool special = exponent == (1u << layout.exponent) - 1;
  if (special && (type != kFp8E4m3 || mantissa == 7)) {
    size = bits_to_double(mantissa == 0 ? 0x7FF0000000000000ull : 0x7FF8000000000000ull);
  } else if (exponent == 0) {
    size = mantissa * power_of_two(1 - bias - layout.mantissa);
  } else {
    size = (mantissa + (1u << layout.mantissa)) * power_of_two((int)exponent - bias - layout.mantissa);
  }
  return negative ? -size : size;
}

__device__ __noinline__ double load(const void* data, u64 i, int type) {
  switch (type) {
    case kHalf:
    case kBfloat16:
      return decode_small(((const unsigned short*)data)[i], type);
    case kFp8E4m3:
    case kFp8E5m2:
      return decode_small(((const u8*)data)[i], type);
    case kFloat32:
      return ((const float*)data)[i];
    case kFloat64:
      return ((const double*)data)[i];
    case kInt8:
      return ((const signed char*)data)[i];
    case kInt16:
      return ((const short*)data)[i];
    case kUint16:
      return ((const unsigned short*)data)[i];
    case kInt32:
      return ((const int*)data)[i];
    case kUint32:
      return ((const u32*)data)[i];
    case kInt64:
      return (double)((const long long*)data)[i];
    case kUint64:
      return (double)((const u64*)data)[i];
    default:
      return ((const u8*)data)[i];
  }
}

__device__ inline double clamp(double number, double low, double high) {
  return number < low ? low : number > high ? high : number;
}

__device__ __noinline__ void store(void* data, u64 i, int type, double number) {
  switch (type) {
    case kHalf:
    case kBfloat16:
      ((unsigned short*)data)[i] = (unsigned short)encode_small(number, type);
      return;
    case kFp8E4m3:
    case kFp8E5m2:
      ((u8*)data)[i] = (u8)encode_small(number, type);
      return;
    case kFloat32:
      ((float*)data)[i] = (float)number;
      return;
    case kFloat64:
      ((double*)data)[i] = number;
      return;
    case kInt8:
      ((signed char*)data)[i] = (signed char)clamp(rint(number), -128.0, 127.0);
      return;
    case kInt16:
      ((short*)data)[i] = (short)clamp(rint(number), -32768.0, 32767.0);
      return;
    case kUint16:
      ((unsigned short*)data)[i] = (unsigned short)clamp(rint(number), 0.0, 65535.0);
      return;
    case kInt32:
      ((int*)data)[i] = (int)clamp(rint(number), -2147483648.0, 2147483647.0);
      return;
    case kUint32:
      ((u32*)data)[i] = (u32)clamp(rint(number), 0.0, 4294967295.0);
      return;
    // The largest doubles below 2^63 and 2^64.
    case kInt64:
      ((long long*)data)[i] = (long long)clamp(rint(number), -9223372036854775808.0, 9223372036854774784.0);
      return;
    case kUint64:
      ((u64*)data)[i] = (u64)clamp(rint(number), 0.0, 18446744073709549568.0);
      return;
    case kBoolean:
      ((u8*)data)[i] = number != 0;
      return;
    default:
      ((u8*)data)[i] = (u8)clamp(rint(number), 0.0, 255.0);
      return;
  }
}

__device__ inline void store_integer(void* data, u64 i, int type, long long number) {
  if (type == kInt64 || type == kUint64)
    ((long long*)data)[i] = number;
  else
    store(data, i, type, (double)number);
}

// By kind: normal(mean low, deviation high), uniform [low, high), integers [low, high], indices [0, bound), constant
// low.
extern "C" __global__ void jitune_fill(void* data, u64 count, int type, int kind, double low, double high,
                                       long long bound, u64 seed) {
  const u64 step = (u64)gridDim.x * blockDim.x;
#pragma unroll 1
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    const u64 bits = random_bits(seed, i);
    const bool coin = type == kBoolean || type == kRawBytes;
    switch (kind) {
      case kFillNormal:
      case kFillUniform: {
        if (coin) {
          ((u8*)data)[i] = (u8)(bits & (type == kBoolean ? 1 : 255));
        } else if (kind == kFillUniform) {
          store(data, i, type, low + (high - low) * ((double)(bits >> 11) * power_of_two(-53)));
        } else {
          // The sum of eight 16-bit uniforms: normal enough for inputs, within 4.9 deviations, and no logarithm.
          const u64 more = random_bits(~seed, i);
          u32 sum = 0;
#pragma unroll 1
          for (int part = 0; part < 64; part += 16)
            sum += (u32)((bits >> part) & 0xFFFF) + (u32)((more >> part) & 0xFFFF);
          const double kDeviation = 53509.9;  // sqrt(8 * (2^32 - 1) / 12)
          store(data, i, type, low + high * (((double)sum - 262140.0) / kDeviation));
        }
        break;
      }
      case kFillIntegers:
      case kFillIndices: {
        const long long first = kind == kFillIndices ? 0 : (long long)low;
        const u64 values = kind == kFillIndices ? (u64)bound : (u64)((long long)high - first) + 1;
        store_integer(data, i, type, first + (long long)(values == 0 ? bits : bits % values));
        break;
      }
      case kFillOnes:
        store(data, i, type, 1.0);
        break;
      case kFillConstant:
        store(data, i, type, low);
        break;
      default:
        store(data, i, type, 0.0);
        break;
    }
  }
}

__device__ inline bool same_bytes(const u8* a, const u8* b, int bytes) {
  switch (bytes) {
    case 1:
      return *a == *b;
    case 2:
      return *(const unsigned short*)a == *(const unsigned short*)b;
    case 4:
      return *(const u32*)a == *(const u32*)b;
    case 8:
      return *(const u64*)a == *(const u64*)b;
  }
#pragma unroll 1
  for (int i = 0; i < bytes; ++i)
    if (a[i] != b[i]) return false;
  return true;
}

__device__ inline bool is_poison(const u8* element, u64 offset, int bytes, u32 poison) {
#pragma unroll 1
  for (int i = 0; i < bytes; ++i)
    if (element[i] != (u8)(poison >> (8 * ((offset + i) & 3)))) return false;
  return true;
}

// result: mismatches, count - index of the first one (so that 0 means none), bits of the worst absolute error.
// `skip` marks elements that are not compared; it may be null. A NaN that is the poison was not written.
extern "C" __global__ void jitune_compare(const u8* got, const u8* expected, const u8* skip, u64 count, int type,
                                          int element_bytes, int exact, int nan_equal, double rtol, double atol,
                                          u32 poison, u64* result) {
  const u64 step = (u64)gridDim.x * blockDim.x;
  u64 mismatches = 0, first = 0;
  double worst = 0;
#pragma unroll 1
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    const bool same = same_bytes(got + i * element_bytes, expected + i * element_bytes, element_bytes);
    if (same && (exact || nan_equal)) continue;
    if (skip != 0 && skip[i]) continue;
    double error = 0;
    bool wrong = !same;
    if (type != kRawBytes) {
      const double a = load(got, i, type), b = load(expected, i, type);
      error = a == b ? 0 : fabs(a - b);
      if (!exact) {
        if (a != a || b != b)
          wrong = !(nan_equal && a != a && b != b) ||
                  is_poison(got + i * element_bytes, i * element_bytes, element_bytes, poison);
        else if (a == b)
          wrong = false;
        else
          wrong = !(error <= atol + rtol * fabs(b) && error < bits_to_double(0x7FF0000000000000ull));
      }
    }
    if (!wrong) continue;
    ++mismatches;
    if (count - i > first) first = count - i;
    if (error > worst) worst = error;
  }
  if (mismatches == 0) return;
  atomicAdd(result, mismatches);
  atomicMax(result + 1, first);
  atomicMax(result + 2, double_to_bits(worst));
}

// Elements that kept the poison in two runs over different ones: never written. Counts them and marks them in `skip`,
// which may be null.
extern "C" __global__ void jitune_unwritten(const u8* first, const u8* second, u64 count, int element_bytes,
                                            u32 first_poison, u32 second_poison, u8* skip, u64* found) {
  const u64 step = (u64)gridDim.x * blockDim.x;
  u64 mine = 0;
#pragma unroll 1
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    const u64 offset = i * element_bytes;
    const bool unwritten = is_poison(first + offset, offset, element_bytes, first_poison) &&
                           is_poison(second + offset, offset, element_bytes, second_poison);
    if (skip != 0) skip[i] = unwritten;
    mine += unwritten;
  }
  if (mine != 0) atomicAdd(found, mine);
}

// Guards are pairs of address and bytes, filled with `pattern`. *damaged becomes count - index of the first that is not
// whole, or stays 0.
extern "C" __global__ void jitune_guards(const u64* guards, int count, u32 pattern, u64* damaged) {
  for (int g = (int)blockIdx.x; g < count; g += (int)gridDim.x) {
    const u8* bytes = (const u8*)guards[2 * g];
    bool whole = true;
#pragma unroll 1
    for (u64 i = threadIdx.x; i < guards[2 * g + 1]; i += blockDim.x)
      whole = whole && bytes[i] == (u8)(pattern >> (8 * (((u64)bytes + i) & 3)));
    if (!whole) atomicMax(damaged, (u64)(count - g));
  }
}

// Adds a sum over all bytes to *sum that changes, in all likelihood, with any of them. `data` is aligned to 8 bytes.
extern "C" __global__ void jitune_checksum(const u8* data, u64 bytes, u64* sum) {
  const u64 step = (u64)gridDim.x * blockDim.x;
  const u64 words = bytes / 8;
  u64 mine = 0;
#pragma unroll 1
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step)
    mine += random_bits(((const u64*)data)[i], i);
  if (blockIdx.x == 0 && threadIdx.x == 0)
#pragma unroll 1
    for (u64 i = words * 8; i < bytes; ++i) mine += random_bits(data[i], i);
  if (mine != 0) atomicAdd(sum, mine);
}

extern "C" __global__ void jitune_decode(const void* data, u64 index, int type, double* number) {
  if (blockIdx.x == 0 && threadIdx.x == 0) *number = load(data, index, type);
}

// A clock of the whole GPU in nanoseconds. The stand-in driver of the tests has one of its own.
#ifndef JITUNE_NANOSECONDS
__device__ inline u64 nanoseconds() {
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}
#define JITUNE_NANOSECONDS nanoseconds()
#endif

// SM cycles and nanoseconds over at least `span_ns`, from one tick of the timer to another: it may tick but once a
// microsecond.
extern "C" __global__ void jitune_clock(u64 span_ns, u64* cycles_and_ns) {
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  u64 before = JITUNE_NANOSECONDS, begin, end;
  while ((begin = JITUNE_NANOSECONDS) == before) {
  }
  const long long first = clock64();
  before = begin;
  while ((end = JITUNE_NANOSECONDS) == before || end - begin < span_ns) before = end;
  cycles_and_ns[0] = (u64)(clock64() - first);
  cycles_and_ns[1] = end - begin;
}

// Keeps the GPU busy while the host enqueues what is to be timed.
extern "C" __global__ void jitune_spin(long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
}
