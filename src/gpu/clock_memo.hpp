#pragma once

#include <string>

#include "gpu/driver.hpp"

namespace jitune::gpu {

struct Clocks {
  int mhz = 0, memory_mhz = 0;  ///< the most that the GPU may run at
};

/// A memo of GPUs' clocks. The driver asks the card for them, half a millisecond each on an H200, where all other facts
/// take microseconds; they change neither while a process runs nor with the next one under the same driver.
class ClockMemo {
 public:
  virtual ~ClockMemo() = default;
  virtual bool recall(const std::string& uuid, int driver_version, Clocks& clocks) = 0;
  virtual void remember(const std::string& uuid, int driver_version, const Clocks& clocks) = 0;
};

/// As device_info(driver, device), with the clocks from `memo` where it knows them.
Result<space::DeviceInfo> device_info(const Driver& driver, CUdevice device, ClockMemo* memo);

}  // namespace jitune::gpu
