#include "runtime/caller_data.hpp"

#include <cstring>

#include "jitune/scoped_inputs.hpp"

namespace jitune::runtime {
namespace {

CUdeviceptr address_of(const void* argument) {
  CUdeviceptr address = 0;
  std::memcpy(&address, argument, sizeof address);
  return address;
}

bool is_from_caller(const space::ArgSpec& arg) {
  return arg.kind != ArgKind::scratch && arg.kind != ArgKind::tensor_map && arg.kind != ArgKind::symbol;
}

/// That `address` holds all of `arg`, as far as the driver knows. `what` begins the message.
Result<void> check_buffer(const gpu::Driver& driver, const space::ArgSpec& arg, CUdeviceptr address,
                          const std::string& what) {
  if (address == 0) return Failure{what + " is a null pointer"};
  CUdeviceptr base = 0;
  size_t size = 0;
  // Memory that the driver can't describe (managed, registered host memory) is the caller's responsibility.
  if (driver.cuMemGetAddressRange(&base, &size, address) != CUDA_SUCCESS) return {};
  const size_t left = size - static_cast<size_t>(address - base);
  if (left >= static_cast<size_t>(arg.bytes())) return {};
  return Failure{what + " needs " + std::to_string(arg.bytes()) + " bytes, its allocation has only " +
                 std::to_string(left) + " from there on"};
}

Result<void> check_scoped(const gpu::Driver& driver, const space::ArgSpec& arg, const ScopedInputs::Input& input,
                          CUdeviceptr& address) {
  const std::string what = "the ScopedInputs buffer for arg '" + arg.name + "'";
  if (input.bytes < static_cast<size_t>(arg.bytes()))
    return Failure{what + " has " + std::to_string(input.bytes) + " bytes, the kernel reads " +
                   std::to_string(arg.bytes())};
  address = reinterpret_cast<CUdeviceptr>(input.data);
  return check_buffer(driver, arg, address, what);
}

}  // namespace

Result<void> check_buffers(const gpu::Driver& driver, const std::vector<space::ArgSpec>& args,
                           std::span<const void* const> arguments) {
  size_t caller = 0;
  for (const auto& arg : args) {
    if (!is_from_caller(arg)) continue;
    const void* argument = arguments[caller++];
    if (!arg.is_buffer() || arg.bytes() == 0) continue;
    if (auto checked = check_buffer(driver, arg, address_of(argument), "arg '" + arg.name + "'"); !checked)
      return checked.failure();
  }
  return {};
}

Result<CallerData> CallerData::export_from(const gpu::Driver& driver, CUstream stream, const std::string& kernel,
                                           const std::vector<space::ArgSpec>& args,
                                           std::span<const void* const> arguments, bool in_process) {
  const bool has_arguments = !arguments.empty();
  if (has_arguments)
    if (auto checked = check_buffers(driver, args, arguments); !checked) return checked.failure();
  // What is queued before the launch may still write to the inputs.
  if (const CUresult code = driver.cuStreamSynchronize(stream); code != CUDA_SUCCESS)
    return Failure{driver.describe("waiting for the stream before tuning", code)};
  CallerData data;
  data.sources_.resize(args.size());
  size_t caller = 0;
  for (size_t i = 0; i < args.size(); ++i) {
    const auto& arg = args[i];
    if (!is_from_caller(arg)) continue;
    const void* argument = has_arguments ? arguments[caller++] : nullptr;
    if (arg.kind == ArgKind::scalar) {
      const auto* bytes = static_cast<const uint8_t*>(argument);
      if (has_arguments) data.scalars_.emplace_back(i, std::vector<uint8_t>(bytes, bytes + arg.element_bytes));
      continue;
    }
    if ((arg.kind != ArgKind::in && arg.kind != ArgKind::inout) || arg.bytes() == 0) continue;
    CUdeviceptr address = has_arguments ? address_of(argument) : 0;
    if (const auto* scoped = ScopedInputs::find(kernel, arg.name)) {
      if (auto checked = check_scoped(driver, arg, *scoped, address); !checked) return checked.failure();
    }
    if (address == 0) continue;
    if (in_process) {
      data.sources_[i].kind = measure::DataSource::Kind::device;
      data.sources_[i].address = address;
      continue;
    }
    if (auto done = data.export_input(driver, arg, address, data.sources_[i]); !done) return done.failure();
  }
  return data;
}

Result<void> CallerData::export_input(const gpu::Driver& driver, const space::ArgSpec& arg, CUdeviceptr address,
                                      measure::DataSource& source) {
  CUdeviceptr base = 0;
  size_t size = 0;
  CUipcMemHandle handle;
  if (driver.cuMemGetAddressRange(&base, &size, address) == CUDA_SUCCESS &&
      driver.cuIpcGetMemHandle(&handle, base) == CUDA_SUCCESS) {
    source.kind = measure::DataSource::Kind::ipc;
    source.ipc_handle.assign(handle.reserved, sizeof handle.reserved);
    source.offset = static_cast<int64_t>(address - base);
    return {};
  }
  auto memory = SharedMemory::create(static_cast<size_t>(arg.bytes()));
  if (!memory) return Failure{"arg '" + arg.name + "': " + memory.error()};
  const CUresult code = driver.cuMemcpyDtoH(memory->data(), address, static_cast<size_t>(arg.bytes()));
  if (code != CUDA_SUCCESS)
    return Failure{"arg '" + arg.name + "': " + driver.describe("copying the caller's buffer", code)};
  source.kind = measure::DataSource::Kind::shared_memory;
  source.shm_name = memory->name();
  shared_.push_back(std::move(*memory));
  return {};
}

}  // namespace jitune::runtime
