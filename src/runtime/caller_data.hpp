#pragma once

#include <cuda.h>

#include <memory>
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

/// Whether a launch brings an argument for it: scratch, tensor maps and symbols are made here.
bool is_from_caller(const space::ArgSpec& arg);

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

  /// For tuning behind the launch: copies of the inputs as they are at this point of `stream`, in device memory of
  /// their own, so that the caller may go on and change them. Does not wait. Without room for the copies (a tenth of
  /// the GPU's memory stays free) the inputs are left to fills. They serve once export_snapshot() was called.
  static Result<CallerData> snapshot_from(const gpu::Driver& driver, CUstream stream, const std::string& kernel,
                                          const std::vector<space::ArgSpec>& args,
                                          std::span<const void* const> arguments);

  /// Waits until a snapshot's copies are made, and makes them readable: `by_ipc` for a worker on the same GPU, else by
  /// shared memory. Any thread; a second call does nothing.
  Result<void> export_snapshot(bool by_ipc);
  size_t copied_bytes() const { return copies_ == nullptr ? 0 : copies_->bytes; }

  const std::vector<measure::DataSource>& sources() const { return sources_; }
  const std::vector<std::pair<size_t, std::vector<uint8_t>>>& scalars() const { return scalars_; }

 private:
  struct Input {
    size_t arg;  // its index
    std::string name;
    CUdeviceptr address;
    size_t bytes;
  };
  static Result<CallerData> gather(const gpu::Driver& driver, const std::string& kernel,
                                   const std::vector<space::ArgSpec>& args, std::span<const void* const> arguments);
  Result<void> export_input(const gpu::Driver& driver, const Input& input, bool by_ipc);

  std::vector<measure::DataSource> sources_;
  std::vector<std::pair<size_t, std::vector<uint8_t>>> scalars_;
  std::vector<SharedMemory> shared_;
  std::vector<Input> inputs_;

  /// Device copies and the event after them, in the context they were made in.
  struct Copies {
    const gpu::Driver* driver = nullptr;
    CUcontext context = nullptr;
    CUevent made = nullptr;
    std::vector<CUdeviceptr> buffers;
    size_t bytes = 0;
    ~Copies();
  };
  std::unique_ptr<Copies> copies_;
};

/// Checks that every buffer is device memory and large enough, as far as the driver knows. The message names the arg.
Result<void> check_buffers(const gpu::Driver& driver, const std::vector<space::ArgSpec>& args,
                           std::span<const void* const> arguments);

}  // namespace jitune::runtime
