#pragma once

#include <cuda.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/shared_memory.hpp"
#include "gpu/driver.hpp"
#include "measure/protocol.hpp"
#include "space/instance.hpp"

namespace jitune::runtime {

/// The caller's own data, made readable for the measuring worker: by CUDA IPC where the memory allows it, else by a
/// copy in shared memory, which is removed with this object. The caller's buffers are only read.
class CallerData {
 public:
  /// Waits for `stream`, then exports every input: of this thread's ScopedInputs, else of `arguments` (none: those
  /// inputs are left to fills). Fails with a message about the argument when a buffer is smaller than the definition
  /// says, or is not device memory. `in_process`: their addresses will do, the reader is in this context.
  static Result<CallerData> export_from(const gpu::Driver& driver, CUstream stream, const std::string& kernel,
                                        const std::vector<space::ArgSpec>& args, std::span<const void* const> arguments,
                                        bool in_process = false);
  const std::vector<measure::DataSource>& sources() const { return sources_; }
  const std::vector<std::pair<size_t, std::vector<uint8_t>>>& scalars() const { return scalars_; }

 private:
  Result<void> export_input(const gpu::Driver& driver, const space::ArgSpec& arg, CUdeviceptr address,
                            measure::DataSource& source);

  std::vector<measure::DataSource> sources_;
  std::vector<std::pair<size_t, std::vector<uint8_t>>> scalars_;
  std::vector<SharedMemory> shared_;
};

/// Checks that every buffer is device memory and large enough, as far as the driver knows. The message names the arg.
Result<void> check_buffers(const gpu::Driver& driver, const std::vector<space::ArgSpec>& args,
                           std::span<const void* const> arguments);

}  // namespace jitune::runtime
