// The worker's own kernels, compiled for the host from the text that the GPU gets.
#include <algorithm>
#include <cmath>

#include "kernels.hpp"
#include "state.hpp"

namespace fake_cuda {
namespace {

using std::fabs;
using std::rint;

struct Dimension {
  unsigned x = 1;
};
constexpr Dimension gridDim, blockDim;  // one thread walks over everything
constexpr Dimension blockIdx{0}, threadIdx{0};

unsigned long long atomicAdd(unsigned long long* to, unsigned long long value) {
  const unsigned long long before = *to;
  *to += value;
  return before;
}

unsigned long long atomicMax(unsigned long long* to, unsigned long long value) {
  const unsigned long long before = *to;
  *to = std::max(*to, value);
  return before;
}

long long clock64() {
  static long long ticks = 0;
  return ticks += 1'000'000;
}

#define JITUNE_NANOSECONDS 0ull
#define __device__
#define __noinline__ inline
#define __global__
#include "measure/utility.cu"

template <class T>
T param(void** params, size_t index) {
  return *static_cast<T*>(params[index]);
}

}  // namespace

bool run_utility(const std::string& name, void** p) {
  if (name == "jitune_fill") {
    jitune_fill(param<void*>(p, 0), param<u64>(p, 1), param<int>(p, 2), param<int>(p, 3), param<double>(p, 4),
                param<double>(p, 5), param<long long>(p, 6), param<u64>(p, 7));
  } else if (name == "jitune_compare") {
    jitune_compare(param<u8*>(p, 0), param<u8*>(p, 1), param<u8*>(p, 2), param<u64>(p, 3), param<int>(p, 4),
                   param<int>(p, 5), param<int>(p, 6), param<int>(p, 7), param<double>(p, 8), param<double>(p, 9),
                   param<u32>(p, 10), param<u64*>(p, 11));
  } else if (name == "jitune_unwritten") {
    jitune_unwritten(param<u8*>(p, 0), param<u8*>(p, 1), param<u64>(p, 2), param<int>(p, 3), param<u32>(p, 4),
                     param<u32>(p, 5), param<u8*>(p, 6), param<u64*>(p, 7));
  } else if (name == "jitune_guards") {
    jitune_guards(param<u64*>(p, 0), param<int>(p, 1), param<u32>(p, 2), param<u64*>(p, 3));
  } else if (name == "jitune_checksum") {
    jitune_checksum(param<u8*>(p, 0), param<u64>(p, 1), param<u64*>(p, 2));
  } else if (name == "jitune_decode") {
    jitune_decode(param<void*>(p, 0), param<u64>(p, 1), param<int>(p, 2), param<double*>(p, 3));
  } else if (name == "jitune_spin") {
    jitune_spin(param<long long>(p, 0));
  } else if (name == "jitune_clock") {
    // The kernel's loops wait for a timer that moves; here the spec says what it would find.
    const auto span_ns = param<u64>(p, 0);
    auto* result = param<u64*>(p, 1);
    result[0] = static_cast<u64>(next_clock_mhz()) * span_ns / 1000;
    result[1] = span_ns;
  } else {
    return false;
  }
  return true;
}

namespace {
int type_code(const std::string& type) {
  if (type == "__half" || type == "half") return kHalf;
  if (type == "__nv_bfloat16") return kBfloat16;
  return kFloat32;
}
}  // namespace

size_t element_bytes(const std::string& type) {
  return type_code(type) == kFloat32 ? 4 : 2;
}
double load_element(const void* data, size_t index, const std::string& type) {
  return load(data, index, type_code(type));
}
void store_element(void* data, size_t index, const std::string& type, double value) {
  store(data, index, type_code(type), value);
}

}  // namespace fake_cuda
