// A stand-in for the driver's management library: every GPU is idle but those whose UUIDs JITUNE_FAKE_BUSY names.
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>

namespace {

bool is_busy(const void* device) {
  const char* busy = std::getenv("JITUNE_FAKE_BUSY");
  return busy != nullptr && std::strstr(busy, static_cast<const char*>(device)) != nullptr;
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  return 0;
}

int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  static std::mutex mutex;
  static std::set<std::string> known;
  const std::lock_guard lock(mutex);
  *device = const_cast<char*>(known.emplace(uuid).first->c_str());
  return 0;
}

int nvmlDeviceGetUtilizationRates(void* device, unsigned* percent) {
  percent[0] = percent[1] = is_busy(device) ? 80 : 0;
  return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, void*) {
  *count = is_busy(device) ? 1 : 0;
  return is_busy(device) ? 7 : 0;
}
}
