#include "gpu/driver.hpp"

#include <algorithm>
#include <array>

#include "base/dynamic_library.hpp"

namespace jitune::gpu {
namespace {

enum Need : uint8_t { required, optional };

/// The name that cuda.h's macros made of `name`, as text: the symbol that the library exports.
#define JITUNE_SYMBOL_TEXT(name) #name
#define JITUNE_SYMBOL(name) JITUNE_SYMBOL_TEXT(name)

template <class Function>
bool find(const DynamicLibrary& library, const char* symbol, Function& function) {
  void* address = library.find(symbol);
  // Newer headers ask for a second version with the same parameters that drivers before 12.8 do not have.
  if (address == nullptr && std::string_view(symbol) == "cuEventElapsedTime_v2")
    address = library.find("cuEventElapsedTime");
  function = reinterpret_cast<Function>(address);
  return address != nullptr;
}

std::string missing_functions(const DynamicLibrary& library, Driver& driver) {
  std::string missing;
#define JITUNE_DRIVER_FUNCTION(name, need)                                    \
  if (!find(library, JITUNE_SYMBOL(name), driver.name) && (need) == required) \
    missing += std::string(missing.empty() ? "" : ", ") + JITUNE_SYMBOL(name);
#include "gpu/driver_functions.inc"
#undef JITUNE_DRIVER_FUNCTION
  return missing;
}

Result<const Driver*> load() {
  Result<DynamicLibrary> library = DynamicLibrary::open("libcuda.so.1");
  if (!library)
    return Failure{"the CUDA driver (libcuda.so.1) cannot be loaded: " + library.error() +
                   "; install NVIDIA's driver, or run where there is one (in a container: with the GPU passed in)"};
  static Driver driver;
  const std::string missing = missing_functions(*library, driver);
  if (!missing.empty())
    return Failure{"the CUDA driver is too old for jitune: libcuda.so.1 lacks " + missing +
                   "; install a driver for CUDA 12 or newer"};
  library->keep();
  if (const CUresult result = driver.cuInit(0); result != CUDA_SUCCESS) {
    const std::string text = driver.describe("cuInit", result);
    if (result == CUDA_ERROR_NO_DEVICE)
      return Failure{"no CUDA GPU is visible to this process (" + text +
                     "); check `nvidia-smi` and CUDA_VISIBLE_DEVICES"};
    return Failure{"the CUDA driver does not start (" + text + "); check that `nvidia-smi` works"};
  }
  driver.cuDriverGetVersion(&driver.version);
  return &driver;
}

// What leaves the context usable: the call was refused, nothing ran astray. Sorted. Whatever is not here destroys it.
constexpr std::array kHarmless{
    CUDA_SUCCESS,
    CUDA_ERROR_INVALID_VALUE,
    CUDA_ERROR_OUT_OF_MEMORY,
    CUDA_ERROR_NOT_INITIALIZED,
    CUDA_ERROR_PROFILER_DISABLED,
    CUDA_ERROR_NO_DEVICE,
    CUDA_ERROR_INVALID_DEVICE,
    CUDA_ERROR_INVALID_IMAGE,
    CUDA_ERROR_MAP_FAILED,
    CUDA_ERROR_UNMAP_FAILED,
    CUDA_ERROR_ALREADY_MAPPED,
    CUDA_ERROR_NO_BINARY_FOR_GPU,
    CUDA_ERROR_NOT_MAPPED,
    CUDA_ERROR_UNSUPPORTED_LIMIT,
    CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
    CUDA_ERROR_INVALID_PTX,
    CUDA_ERROR_JIT_COMPILER_NOT_FOUND,
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
    CUDA_ERROR_JIT_COMPILATION_DISABLED,
    CUDA_ERROR_INVALID_SOURCE,
    CUDA_ERROR_FILE_NOT_FOUND,
    CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND,
    CUDA_ERROR_SHARED_OBJECT_INIT_FAILED,
    CUDA_ERROR_INVALID_HANDLE,
    CUDA_ERROR_NOT_FOUND,
    CUDA_ERROR_NOT_READY,
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
    CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING,
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
    CUDA_ERROR_PEER_ACCESS_NOT_ENABLED,
    CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE,
    CUDA_ERROR_TOO_MANY_PEERS,
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
    CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
    CUDA_ERROR_NOT_PERMITTED,
    CUDA_ERROR_NOT_SUPPORTED,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
    CUDA_ERROR_STREAM_CAPTURE_MERGE,
    CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
    CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
    CUDA_ERROR_CAPTURED_EVENT,
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
    CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
    CUDA_ERROR_INVALID_CLUSTER_SIZE,
};
static_assert(std::is_sorted(kHarmless.begin(), kHarmless.end()));

}  // namespace

std::string Driver::describe(const std::string& what, CUresult result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (cuGetErrorName == nullptr || cuGetErrorName(result, &name) != CUDA_SUCCESS) name = nullptr;
  if (cuGetErrorString == nullptr || cuGetErrorString(result, &text) != CUDA_SUCCESS) text = nullptr;
  std::string message = what + ": ";
  message += name != nullptr ? std::string(name) : "CUDA error " + std::to_string(static_cast<int>(result));
  if (text != nullptr) message += " (" + std::string(text) + ")";
  return message;
}

Result<void> Driver::check(const std::string& what, CUresult result) const {
  if (result == CUDA_SUCCESS) return {};
  return Failure{describe(what, result)};
}

Result<const Driver*> driver() {
  static const Result<const Driver*> loaded = load();
  return loaded;
}

bool is_device_lost(CUresult result) {
  switch (result) {
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_SYSTEM_NOT_READY:
      return true;
    default:
      return false;
  }
}

bool is_sticky(CUresult result) {
  return !std::binary_search(kHarmless.begin(), kHarmless.end(), result);
}

}  // namespace jitune::gpu
