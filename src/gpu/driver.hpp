#pragma once

#include <cuda.h>

#include <string>
#include <vector>

#include "base/result.hpp"
#include "space/device.hpp"

namespace jitune::gpu {

/// The CUDA driver's functions that jitune uses, loaded from libcuda.so.1 when first asked for. Each member is called
/// like the driver's own function of that name. Thread-safe after load. Optional ones may be null, as marked.
/// Includers see cuda.h, whose macros rename member and use alike.
struct Driver {
#define JITUNE_DRIVER_FUNCTION(name, need) decltype(&::name) name = nullptr;
#include "gpu/driver_functions.inc"
#undef JITUNE_DRIVER_FUNCTION

  int version = 0;  ///< cuDriverGetVersion: 13000

  /// `what: CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)`
  std::string describe(const std::string& what, CUresult result) const;
  Result<void> check(const std::string& what, CUresult result) const;
};

/// Loads libcuda.so.1 and calls cuInit(0), once per process; later calls give the same answer. The failure says whether
/// the library or a GPU is missing and what to do. Takes some 100 ms the first time on a machine with a GPU.
Result<const Driver*> driver();

/// Whether an error has destroyed the CUDA context, so that the process must end (illegal address, hardware exceptions,
/// launch timeout, ECC, and whatever this driver is newer than we are) or can go on (bad launch configuration, out of
/// memory, not found). By a table; unknown codes count as sticky.
bool is_sticky(CUresult result);

/// Whether an error tells of the GPU itself (ECC, fallen off the bus, taken away) rather than of what ran on it.
bool is_device_lost(CUresult result);

/// Every GPU that this process may use, in the driver's order. Creates no context.
Result<std::vector<space::DeviceInfo>> devices();

/// Facts about one GPU.
Result<space::DeviceInfo> device_info(const Driver& driver, CUdevice device);

/// The driver's device with this UUID (`GPU-...`; MIG and CUDA_VISIBLE_DEVICES are why an ordinal will not do).
Result<CUdevice> find_device(const Driver& driver, const std::string& uuid);

/// Who else may have a context on a GPU.
struct Sharing {
  bool exclusive = false;   ///< one process at a time (nvidia-smi -c EXCLUSIVE_PROCESS)
  bool prohibited = false;  ///< none at all
  bool mps = false;         ///< contexts of this process go through MPS: a fault would reach the other clients
};
Sharing sharing(const Driver& driver, CUdevice device);

/// Makes the primary context of `device` current on this thread and keeps it for the life of the process.
Result<CUcontext> use_primary_context(const Driver& driver, CUdevice device);

}  // namespace jitune::gpu
