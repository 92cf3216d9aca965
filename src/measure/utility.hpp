#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "gpu/module.hpp"
#include "space/instance.hpp"

namespace jitune::measure {

/// What a comparison left on the GPU: mismatches, count - index of the first, bits of the worst absolute error.
struct Comparison {
  uint64_t mismatches = 0;
  uint64_t from_end = 0;
  uint64_t worst_bits = 0;
};

/// The kernels of utility.cu, enqueued on one stream. Nothing here waits.
class Utility {
 public:
  Utility() = default;
  Utility(const Utility&) = delete;
  Utility& operator=(const Utility&) = delete;
  ~Utility();

  gpu::Trouble load(const gpu::Driver& driver, std::string_view cubin, CUstream stream);

  /// Fills a buffer or symbol as `arg` says (file excepted). Equal seeds give equal contents.
  gpu::Trouble fill(CUdeviceptr data, const space::ArgSpec& arg, uint64_t seed) const;

  /// Adds to the Comparison at `result`. `skip` (bytes by element) may be 0. A NaN that is still the `poison` never
  /// equals another NaN.
  gpu::Trouble compare(CUdeviceptr got, CUdeviceptr expected, CUdeviceptr skip, const space::ArgSpec& arg,
                       uint32_t poison, CUdeviceptr result) const;

  /// Counts, and marks if `skip` is not 0, the elements that kept two poisons in two runs.
  gpu::Trouble unwritten(CUdeviceptr first, CUdeviceptr second, const space::ArgSpec& arg, uint32_t first_poison,
                         uint32_t second_poison, CUdeviceptr skip, CUdeviceptr found) const;

  /// Checks `count` guards (pairs of address and bytes); count - index of the first damaged one goes to `damaged`.
  gpu::Trouble guards(CUdeviceptr table, int count, uint32_t pattern, CUdeviceptr damaged) const;

  gpu::Trouble checksum(CUdeviceptr data, int64_t bytes, CUdeviceptr sum) const;

  /// Writes element `index` as a double to `number`.
  gpu::Trouble decode(CUdeviceptr data, uint64_t index, const space::ArgSpec& arg, CUdeviceptr number) const;

  gpu::Trouble spin(int64_t cycles) const;

  /// Writes SM cycles and nanoseconds of the same 10 us to the two words at `result`.
  gpu::Trouble clock(CUdeviceptr result) const;

 private:
  enum Kernel : uint8_t { kFill, kCompare, kUnwritten, kGuards, kChecksum, kDecode, kSpin, kClock, kKernels };
  gpu::Trouble run(Kernel kernel, uint64_t items, void** params) const;

  const gpu::Driver* driver_ = nullptr;
  CUmodule module_ = nullptr;
  CUstream stream_ = nullptr;
  std::array<CUfunction, kKernels> functions_{};
};

}  // namespace jitune::measure
