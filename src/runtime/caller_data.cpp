#include "runtime/caller_data.hpp"

#include <cstring>

#include "jitune/scoped_inputs.hpp"

namespace jitune::runtime {
namespace {

constexpr size_t kHeadroomShare = 10;  // of the GPU's memory, left free

CUdeviceptr address_of(const void* argument) {
  CUdeviceptr address = 0;
  std::memcpy(&address, argument, sizeof address);
  return address;
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

bool is_from_caller(const space::ArgSpec& arg) {
  return arg.kind != ArgKind::scratch && arg.kind != ArgKind::tensor_map && arg.kind != ArgKind::symbol;
}

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

Result<CallerData> CallerData::gather(const gpu::Driver& driver, const std::string& kernel,
                                      const std::vector<space::ArgSpec>& args, std::span<const void* const> arguments) {
  const bool has_arguments = !arguments.empty();
  if (has_arguments)
    if (auto checked = check_buffers(driver, args, arguments); !checked) return checked.failure();
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
    if (address != 0) data.inputs_.push_back({i, arg.name, address, static_cast<size_t>(arg.bytes())});
  }
  return data;
}

Result<CallerData> CallerData::export_from(const gpu::Driver& driver, CUstream stream, const std::string& kernel,
                                           const std::vector<space::ArgSpec>& args,
                                           std::span<const void* const> arguments, bool in_process) {
  auto data = gather(driver, kernel, args, arguments);
  if (!data) return data;
  // What is queued before the launch may still write to the inputs.
  if (const CUresult code = driver.cuStreamSynchronize(stream); code != CUDA_SUCCESS)
    return Failure{driver.describe("waiting for the stream before tuning", code)};
  for (const Input& input : data->inputs_) {
    if (in_process) {
      data->sources_[input.arg].kind = measure::DataSource::Kind::device;
      data->sources_[input.arg].address = input.address;
    } else if (auto done = data->export_input(driver, input, true); !done) {
      return done.failure();
    }
  }
  return data;
}

Result<void> CallerData::export_input(const gpu::Driver& driver, const Input& input, bool by_ipc) {
  measure::DataSource& source = sources_[input.arg];
  CUdeviceptr base = 0;
  size_t size = 0;
  CUipcMemHandle handle;
  if (by_ipc && driver.cuMemGetAddressRange(&base, &size, input.address) == CUDA_SUCCESS &&
      driver.cuIpcGetMemHandle(&handle, base) == CUDA_SUCCESS) {
    source.kind = measure::DataSource::Kind::ipc;
    source.ipc_handle.assign(handle.reserved, sizeof handle.reserved);
    source.offset = static_cast<int64_t>(input.address - base);
    return {};
  }
  auto memory = SharedMemory::create(input.bytes);
  if (!memory) return Failure{"arg '" + input.name + "': " + memory.error()};
  const CUresult code = driver.cuMemcpyDtoH(memory->data(), input.address, input.bytes);
  if (code != CUDA_SUCCESS)
    return Failure{"arg '" + input.name + "': " + driver.describe("copying the caller's buffer", code)};
  source.kind = measure::DataSource::Kind::shared_memory;
  source.shm_name = memory->name();
  shared_.push_back(std::move(*memory));
  return {};
}

CallerData::Copies::~Copies() {
  if (driver->cuCtxPushCurrent(context) != CUDA_SUCCESS) return;  // gone, and its memory with it
  if (made != nullptr) driver->cuEventDestroy(made);
  for (const CUdeviceptr each : buffers) driver->cuMemFree(each);
  driver->cuCtxPopCurrent(nullptr);
}

Result<CallerData> CallerData::snapshot_from(const gpu::Driver& driver, CUstream stream, const std::string& kernel,
                                             const std::vector<space::ArgSpec>& args,
                                             std::span<const void* const> arguments) {
  auto data = gather(driver, kernel, args, arguments);
  if (!data || data->inputs_.empty()) return data;
  auto copies = std::make_unique<Copies>();
  copies->driver = &driver;
  driver.cuCtxGetCurrent(&copies->context);
  size_t wanted = 0, free_bytes = 0, total_bytes = 0;
  for (const Input& input : data->inputs_) wanted += input.bytes;
  bool copied = driver.cuMemGetInfo(&free_bytes, &total_bytes) == CUDA_SUCCESS &&
                free_bytes >= wanted + total_bytes / kHeadroomShare;
  for (Input& input : data->inputs_) {
    CUdeviceptr copy = 0;
    copied = copied && driver.cuMemAlloc(&copy, input.bytes) == CUDA_SUCCESS;
    if (!copied) break;
    copies->buffers.push_back(copy);
    copies->bytes += input.bytes;
    copied = driver.cuMemcpyDtoDAsync(copy, input.address, input.bytes, stream) == CUDA_SUCCESS;
    input.address = copy;
  }
  copied = copied && driver.cuEventCreate(&copies->made, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS &&
           driver.cuEventRecord(copies->made, stream) == CUDA_SUCCESS;
  if (!copied) {
    driver.cuStreamSynchronize(stream);  // some copies may be under way into memory that is freed now
    data->inputs_.clear();
    return data;
  }
  data->copies_ = std::move(copies);
  return data;
}

Result<void> CallerData::export_snapshot(bool by_ipc) {
  if (copies_ == nullptr || inputs_.empty()) return {};
  const gpu::Driver& driver = *copies_->driver;
  if (const CUresult code = driver.cuCtxPushCurrent(copies_->context); code != CUDA_SUCCESS)
    return Failure{driver.describe("using the context of the caller's data", code)};
  Result<void> done;
  if (const CUresult code = driver.cuEventSynchronize(copies_->made); code != CUDA_SUCCESS)
    done = Failure{driver.describe("waiting for copies of the caller's data", code)};
  for (const Input& input : inputs_)
    if (done) done = export_input(driver, input, by_ipc);
  driver.cuCtxPopCurrent(nullptr);
  inputs_.clear();
  return done;
}

}  // namespace jitune::runtime
