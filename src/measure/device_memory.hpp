#pragma once

#include <cstdint>

#include "gpu/module.hpp"

namespace jitune::measure {

/// One allocation of GPU memory, freed with the object.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(DeviceMemory&& other) noexcept { *this = static_cast<DeviceMemory&&>(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  ~DeviceMemory() { reset(); }

  /// Frees what it holds and allocates `bytes` (0 allocates nothing). `what` is named in the trouble.
  gpu::Trouble allocate(const gpu::Driver& driver, int64_t bytes, const char* what);
  void reset();

  CUdeviceptr address() const { return address_; }
  int64_t bytes() const { return bytes_; }

 private:
  const gpu::Driver* driver_ = nullptr;
  CUdeviceptr address_ = 0;
  int64_t bytes_ = 0;
};

/// The failure of a driver call, or nothing.
inline gpu::Trouble trouble(const gpu::Driver& driver, const char* what, CUresult result) {
  if (result == CUDA_SUCCESS) return {};
  return {result, driver.describe(what, result)};
}

}  // namespace jitune::measure
