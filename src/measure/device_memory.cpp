#include "measure/device_memory.hpp"

#include <string>
#include <utility>

namespace jitune::measure {

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

gpu::Trouble DeviceMemory::allocate(const gpu::Driver& driver, int64_t bytes, const char* what) {
  reset();
  if (bytes <= 0) return {};
  CUdeviceptr address = 0;
  const CUresult result = driver.cuMemAlloc(&address, static_cast<size_t>(bytes));
  if (result != CUDA_SUCCESS) {
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    driver.cuMemGetInfo(&free_bytes, &total_bytes);
    return {result, driver.describe(std::string(what) + " needs " + std::to_string(bytes) + " bytes, " +
                                        std::to_string(free_bytes) + " are free",
                                    result)};
  }
  driver_ = &driver;
  address_ = address;
  bytes_ = bytes;
  return {};
}

void DeviceMemory::reset() {
  if (address_ != 0) driver_->cuMemFree(address_);
  address_ = 0;
  bytes_ = 0;
}

}  // namespace jitune::measure
