#pragma once

#include <string>

#include "gpu/module.hpp"
#include "measure/protocol.hpp"

namespace jitune::measure {

/// Copies `bytes` from the caller's allocation, mapped over CUDA IPC, to `to`, and closes the mapping. Waits for the
/// copy.
gpu::Trouble copy_from_ipc(const gpu::Driver& driver, const DataSource& source, CUdeviceptr to, int64_t bytes);

/// Copies the first `bytes` of a POSIX shared memory object to `to`. Waits for the copy.
gpu::Trouble copy_from_shared_memory(const gpu::Driver& driver, const std::string& name, CUdeviceptr to, int64_t bytes);

/// Copies the first `bytes` of a file to `to`. Waits for the copy.
gpu::Trouble copy_from_file(const gpu::Driver& driver, const std::string& path, CUdeviceptr to, int64_t bytes);

}  // namespace jitune::measure
