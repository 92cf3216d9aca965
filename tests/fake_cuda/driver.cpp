#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <utility>

#include "state.hpp"

using namespace fake_cuda;

namespace {

thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

struct ErrorText {
  CUresult code;
  const char* name;
  const char* text;
};
constexpr std::array kErrors{
    ErrorText{CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    ErrorText{CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    ErrorText{CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    ErrorText{CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    ErrorText{CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    ErrorText{CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    ErrorText{CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    ErrorText{CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    ErrorText{CUDA_ERROR_MAP_FAILED, "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed"},
    ErrorText{CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    ErrorText{CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    ErrorText{CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    ErrorText{CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    ErrorText{CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
              "too many resources requested for launch"},
    ErrorText{CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
              "too many blocks in cooperative launch"},
    ErrorText{CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    ErrorText{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
              "operation not permitted when stream is capturing"},
    ErrorText{CUDA_ERROR_INVALID_CLUSTER_SIZE, "CUDA_ERROR_INVALID_CLUSTER_SIZE", "invalid cluster size"}};

const ErrorText* find_error(CUresult code) {
  for (const ErrorText& error : kErrors)
    if (error.code == code) return &error;
  return nullptr;
}

const Device* find_device(CUdevice device) {
  const auto& devices = state().spec.devices;
  return device >= 0 && static_cast<size_t>(device) < devices.size() ? &devices[static_cast<size_t>(device)] : nullptr;
}

bool parse_uuid(const std::string& text, CUuuid& uuid) {
  std::string digits;
  for (const char c : text.substr(std::min<size_t>(4, text.size())))
    if (c != '-') digits += c;
  if (digits.size() != 32) return false;
  for (size_t i = 0; i < 16; ++i) uuid.bytes[i] = static_cast<char>(std::stoi(digits.substr(2 * i, 2), nullptr, 16));
  return true;
}

int attribute(const Device& device, CUdevice_attribute which) {
  switch (which) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return device.cc_major;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return device.cc_minor;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return device.sm_count;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      return static_cast<int>(device.l2_bytes);
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      return 49152;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return device.smem_optin_bytes;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      return 228 << 10;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
      return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
      return 65536;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      return 2048;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      return 32;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      return 32;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      return device.clock_mhz * 1000;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
      return device.memory_clock_mhz * 1000;
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
      return 1;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
      return device.compute_mode;
    case static_cast<CUdevice_attribute>(133):  // MPS_ENABLED, from CUDA 12.4 on
      return device.mps ? 1 : 0;
    default:
      return 0;
  }
}

Function* function_of(CUfunction handle) {
  return reinterpret_cast<Function*>(handle);
}

/// The clusters and the other launch attributes: what the plain launch has no word for.
CUresult check_attributes(const CUlaunchConfig& config, const Function& function) {
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const CUlaunchAttribute& given = config.attrs[i];
    if (given.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
      const auto& size = given.value.clusterDim;
      const unsigned blocks = size.x * size.y * size.z;
      if (blocks == 0 || blocks > (function.large_clusters ? 16u : 8u)) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
      if (config.gridDimX % size.x != 0 || config.gridDimY % size.y != 0 || config.gridDimZ % size.z != 0)
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (given.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && given.value.cooperative != 0) {
      const auto threads = static_cast<int>(config.blockDimX * config.blockDimY * config.blockDimZ);
      const int64_t room = int64_t{occupancy(function, threads, config.sharedMemBytes)} *
                           state().spec.devices[static_cast<size_t>(current_device())].sm_count;
      if (int64_t{config.gridDimX} * config.gridDimY * config.gridDimZ > room)
        return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace

bool fake_cuda::spoils_capture() {
  if (state().foreign_capture == 0 || capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  return state().spoiled = true;
}

extern "C" {

CUresult cuDriverGetVersion(int* version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** text) {
  const ErrorText* found = find_error(error);
  *text = found == nullptr ? nullptr : found->name;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  const ErrorText* found = find_error(error);
  *text = found == nullptr ? nullptr : found->text;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = ready(); bad != CUDA_SUCCESS) return bad;
  *count = static_cast<int>(state().spec.devices.size());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = ready(); bad != CUDA_SUCCESS) return bad;
  if (find_device(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  const std::lock_guard lock(state().mutex);
  if (find_device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(name, static_cast<size_t>(length), "%s", find_device(device)->name.c_str());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  const std::lock_guard lock(state().mutex);
  if (find_device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return parse_uuid(find_device(device)->uuid, *uuid) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice device) {
  const std::lock_guard lock(state().mutex);
  if (find_device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *value = attribute(*find_device(device), which);
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t* bytes, CUdevice device) {
  const std::lock_guard lock(state().mutex);
  if (find_device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = static_cast<size_t>(find_device(device)->memory_bytes);
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = in_context(); bad != CUDA_SUCCESS) return bad;
  if (state().capturing && capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (spoils_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  std::vector<ImageSymbol> symbols;
  if (!read_image(image, symbols)) return CUDA_ERROR_INVALID_IMAGE;
  auto loaded = std::make_unique<Module>();
  for (const ImageSymbol& symbol : symbols) {
    if (symbol.is_function) {
      auto function = std::make_unique<Function>();
      function->module = loaded.get();
      function->symbol = symbol.name;
      function->demangled = demangle(symbol.name);
      function->max_dynamic_bytes = 49152 - find_rule(state().spec, function->demangled).static_smem_bytes;
      loaded->functions[symbol.name] = std::move(function);
    } else if (symbol.bytes > 0) {
      Variable variable{0, symbol.bytes};
      if (const CUresult bad = allocate(symbol.bytes, &variable.address); bad != CUDA_SUCCESS) return bad;
      loaded->variables[symbol.name] = variable;
    }
  }
  *module = reinterpret_cast<CUmodule>(loaded.get());
  Module* key = loaded.get();
  state().modules[key] = std::move(loaded);
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = in_context(); bad != CUDA_SUCCESS) return bad;
  const auto found = state().modules.find(reinterpret_cast<Module*>(module));
  if (found == state().modules.end()) return CUDA_ERROR_INVALID_HANDLE;
  for (const auto& [name, variable] : found->second->variables) release(variable.address);
  state().modules.erase(found);
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = in_context(); bad != CUDA_SUCCESS) return bad;
  const auto found = state().modules.find(reinterpret_cast<Module*>(module));
  if (found == state().modules.end()) return CUDA_ERROR_INVALID_HANDLE;
  const auto named = found->second->functions.find(name);
  if (named == found->second->functions.end()) return CUDA_ERROR_NOT_FOUND;
  *function = reinterpret_cast<CUfunction>(named->second.get());
  return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal(CUdeviceptr* address, size_t* bytes, CUmodule module, const char* name) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = in_context(); bad != CUDA_SUCCESS) return bad;
  const auto found = state().modules.find(reinterpret_cast<Module*>(module));
  if (found == state().modules.end()) return CUDA_ERROR_INVALID_HANDLE;
  const auto named = found->second->variables.find(name);
  if (named == found->second->variables.end()) return CUDA_ERROR_NOT_FOUND;
  if (address != nullptr) *address = named->second.address;
  if (bytes != nullptr) *bytes = named->second.bytes;
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute which, CUfunction handle) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = in_context(); bad != CUDA_SUCCESS) return bad;
  const Function& function = *function_of(handle);
  const Rule& rule = find_rule(state().spec, function.demangled);
  switch (which) {
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = rule.regs;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = rule.static_smem_bytes;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      *value = rule.local_bytes;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = function.max_dynamic_bytes;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = std::min(1024, 65536 / std::max(1, rule.regs) / 32 * 32);
      return CUDA_SUCCESS;
    default:
      *value = 0;
      return CUDA_SUCCESS;
  }
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute which, int value) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = in_context(); bad != CUDA_SUCCESS) return bad;
  Function& function = *function_of(handle);
  if (which == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    const int most = state().spec.devices[static_cast<size_t>(current_device())].smem_optin_bytes -
                     find_rule(state().spec, function.demangled).static_smem_bytes;
    if (value < 0 || value > most) return CUDA_ERROR_INVALID_VALUE;
    function.max_dynamic_bytes = value;
  }
  if (which == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) function.large_clusters = value != 0;
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle, int threads, size_t shared_bytes) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = in_context(); bad != CUDA_SUCCESS) return bad;
  if (threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  *blocks = occupancy(*function_of(handle), threads, shared_bytes);
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream, void** params, void**) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = in_context(); bad != CUDA_SUCCESS) return bad;
  if (handle == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return launch(*function_of(handle), {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, params);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction handle, void** params, void**) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = in_context(); bad != CUDA_SUCCESS) return bad;
  if (handle == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Function& function = *function_of(handle);
  if (const CUresult bad = check_attributes(*config, function); bad != CUDA_SUCCESS) return bad;
  return launch(function, {config->gridDimX, config->gridDimY, config->gridDimZ},
                {config->blockDimX, config->blockDimY, config->blockDimZ}, config->sharedMemBytes, params);
}

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType, cuuint32_t rank, void* address,
                                const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                CUtensorMapFloatOOBfill) {
  if (rank < 1 || rank > 5 || reinterpret_cast<uintptr_t>(address) % 16 != 0) return CUDA_ERROR_INVALID_VALUE;
  for (cuuint32_t i = 0; i < rank; ++i)
    if (dims[i] == 0 || box[i] == 0 || box[i] > 256 || (i + 1 < rank && strides[i] % 16 != 0))
      return CUDA_ERROR_INVALID_VALUE;
  std::memset(map, 0, sizeof *map);
  std::memcpy(map, &address, sizeof address);
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream* stream, unsigned) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = in_context(); bad != CUDA_SUCCESS) return bad;
  *stream = reinterpret_cast<CUstream>(new Stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream stream) {
  delete reinterpret_cast<Stream*>(stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream) {
  const std::lock_guard lock(state().mutex);
  return wait();
}

CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned) {
  const std::lock_guard lock(state().mutex);
  return in_context();
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  const std::lock_guard lock(state().mutex);
  if (state().foreign_capture == 1 && stream == nullptr) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  *status = state().capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return ready();
}

CUresult cuStreamGetCtx(CUstream, CUcontext* context) {
  return cuCtxGetCurrent(context);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  std::swap(*mode, capture_mode);
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture(CUstream, CUstreamCaptureMode) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = in_context(); bad != CUDA_SUCCESS) return bad;
  if (state().recording != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  state().recording = new Graph;
  return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream, CUgraph* graph) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = in_context(); bad != CUDA_SUCCESS) return bad;
  if (state().recording == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  *graph = reinterpret_cast<CUgraph>(std::exchange(state().recording, nullptr));
  return CUDA_SUCCESS;
}

CUresult cuGraphInstantiate(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = in_context(); bad != CUDA_SUCCESS) return bad;
  *exec = reinterpret_cast<CUgraphExec>(new Graph(*reinterpret_cast<Graph*>(graph)));
  return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = in_context(); bad != CUDA_SUCCESS) return bad;
  for (const RecordedLaunch& one : reinterpret_cast<Graph*>(exec)->launches)
    if (const CUresult bad = launch(*one.function, one.grid, one.block, one.shared_bytes, one.params);
        bad != CUDA_SUCCESS)
      return bad;
  return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  delete reinterpret_cast<Graph*>(exec);
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
  delete reinterpret_cast<Graph*>(graph);
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent* event, unsigned) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = in_context(); bad != CUDA_SUCCESS) return bad;
  *event = reinterpret_cast<CUevent>(new Event);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event) {
  delete reinterpret_cast<Event*>(event);
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = in_context(); bad != CUDA_SUCCESS) return bad;
  *reinterpret_cast<Event*>(event) = {true, state().now_us};
  return CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent) {
  const std::lock_guard lock(state().mutex);
  return wait();
}

CUresult cuEventQuery(CUevent) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = in_context(); bad != CUDA_SUCCESS) return bad;
  return state().hung ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float* ms, CUevent begin, CUevent end) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = in_context(); bad != CUDA_SUCCESS) return bad;
  const Event& first = *reinterpret_cast<Event*>(begin);
  const Event& last = *reinterpret_cast<Event*>(end);
  if (!first.recorded || !last.recorded) return CUDA_ERROR_INVALID_HANDLE;
  *ms = static_cast<float>((last.at_us - first.at_us) / 1000);
  return CUDA_SUCCESS;
}
}
