#include "gpu/idle.hpp"

#include "base/dynamic_library.hpp"

namespace jitune::gpu {
namespace {

// From NVML's reference; its header is no part of the CUDA headers that we need.
constexpr int kSuccess = 0;
using Device = void*;
struct Utilization {
  unsigned gpu_percent, memory_percent;
};

struct Management {
  int (*init)() = nullptr;
  int (*device_by_uuid)(const char* uuid, Device* device) = nullptr;
  int (*utilization)(Device device, Utilization* utilization) = nullptr;
  int (*processes)(Device device, unsigned* count, void* infos) = nullptr;
  bool ok = false;
};

template <class Function>
bool find(const DynamicLibrary& library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(library.find(name));
  return function != nullptr;
}

Management load() {
  Management made;
  auto library = DynamicLibrary::open("libnvidia-ml.so.1");
  if (!library) return made;
  made.ok = find(*library, "nvmlInit_v2", made.init) &&
            find(*library, "nvmlDeviceGetHandleByUUID", made.device_by_uuid) &&
            find(*library, "nvmlDeviceGetUtilizationRates", made.utilization) &&
            find(*library, "nvmlDeviceGetComputeRunningProcesses_v3", made.processes) && made.init() == kSuccess;
  library->keep();
  return made;
}

}  // namespace

bool is_idle(const std::string& uuid) {
  static const Management management = load();
  Device device = nullptr;
  if (!management.ok || management.device_by_uuid(uuid.c_str(), &device) != kSuccess) return false;
  unsigned count = 0;  // with room for none, success means that there are none
  if (management.processes(device, &count, nullptr) != kSuccess || count != 0) return false;
  Utilization load{100, 100};
  return management.utilization(device, &load) == kSuccess && load.gpu_percent == 0;
}

}  // namespace jitune::gpu
