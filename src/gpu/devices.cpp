#include <array>
#include <cstdio>
#include <map>
#include <mutex>

#include "gpu/clock_memo.hpp"

namespace jitune::gpu {
namespace {

std::string uuid_text(const CUuuid& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    std::array<char, 3> hex{};
    std::snprintf(hex.data(), hex.size(), "%02x", static_cast<unsigned>(static_cast<unsigned char>(uuid.bytes[i])));
    text += hex.data();
  }
  return text;
}

/// The digits of a UUID: what stays the same whether it is written as `GPU-` or `MIG-`.
std::string uuid_digits(const std::string& text) {
  return text.size() > 4 && text[3] == '-' ? text.substr(4) : text;
}

Result<CUdevice> device_at(const Driver& driver, int ordinal) {
  CUdevice device = 0;
  if (auto done = driver.check("cuDeviceGet " + std::to_string(ordinal), driver.cuDeviceGet(&device, ordinal)); !done)
    return done.failure();
  return device;
}

Result<int> device_count(const Driver& driver) {
  int count = 0;
  if (auto done = driver.check("cuDeviceGetCount", driver.cuDeviceGetCount(&count)); !done) return done.failure();
  return count;
}

}  // namespace

Result<space::DeviceInfo> device_info(const Driver& driver, CUdevice device) {
  return device_info(driver, device, nullptr);
}

Result<space::DeviceInfo> device_info(const Driver& driver, CUdevice device, ClockMemo* memo) {
  space::DeviceInfo info;
  CUresult result = CUDA_SUCCESS;
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    if (result == CUDA_SUCCESS) result = driver.cuDeviceGetAttribute(&value, which, device);
    return value;
  };
  info.cc_major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  info.cc_minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  info.sm_count = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  info.l2_bytes = attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  info.smem_optin_bytes = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  info.smem_per_sm_bytes = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  info.smem_reserved_bytes = attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
  info.regs_per_sm = attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
  info.max_threads_per_block = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  info.max_threads_per_sm = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  info.max_blocks_per_sm = attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
  info.warp_size = attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  info.cooperative = attribute(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH) != 0;
  if (auto done = driver.check("cuDeviceGetAttribute", result); !done) return done.failure();

  CUuuid uuid{};
  if (auto done = driver.check("cuDeviceGetUuid", driver.cuDeviceGetUuid(&uuid, device)); !done) return done.failure();
  info.uuid = uuid_text(uuid);
  Clocks clocks;
  if (memo == nullptr || !memo->recall(info.uuid, driver.version, clocks)) {
    clocks = {attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE) / 1000,
              attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) / 1000};
    if (auto done = driver.check("cuDeviceGetAttribute", result); !done) return done.failure();
    if (memo != nullptr) memo->remember(info.uuid, driver.version, clocks);
  }
  info.max_clock_mhz = clocks.mhz;
  info.max_memory_clock_mhz = clocks.memory_mhz;

  std::array<char, 256> name{};
  size_t memory_bytes = 0;
  result = driver.cuDeviceGetName(name.data(), static_cast<int>(name.size() - 1), device);
  if (auto done = driver.check("cuDeviceGetName", result); !done) return done.failure();
  result = driver.cuDeviceTotalMem(&memory_bytes, device);
  if (auto done = driver.check("cuDeviceTotalMem", result); !done) return done.failure();
  info.name = name.data();
  info.memory_bytes = static_cast<int64_t>(memory_bytes);
  info.driver = std::to_string(driver.version / 1000) + "." + std::to_string(driver.version % 1000 / 10);
  return info;
}

Result<std::vector<space::DeviceInfo>> devices() {
  const Result<const Driver*> loaded = driver();
  if (!loaded) return loaded.failure();
  const Driver& driver = **loaded;
  const Result<int> count = device_count(driver);
  if (!count) return count.failure();
  std::vector<space::DeviceInfo> infos;
  for (int ordinal = 0; ordinal < *count; ++ordinal) {
    const Result<CUdevice> device = device_at(driver, ordinal);
    if (!device) return device.failure();
    Result<space::DeviceInfo> info = device_info(driver, *device);
    if (!info) return info.failure();
    infos.push_back(std::move(*info));
  }
  return infos;
}

Result<CUdevice> find_device(const Driver& driver, const std::string& uuid) {
  const Result<int> count = device_count(driver);
  if (!count) return count.failure();
  std::string seen;
  for (int ordinal = 0; ordinal < *count; ++ordinal) {
    const Result<CUdevice> device = device_at(driver, ordinal);
    if (!device) return device.failure();
    CUuuid raw{};
    if (auto done = driver.check("cuDeviceGetUuid", driver.cuDeviceGetUuid(&raw, *device)); !done)
      return done.failure();
    const std::string text = uuid_text(raw);
    if (uuid_digits(text) == uuid_digits(uuid)) return *device;
    seen += (seen.empty() ? "" : ", ") + text;
  }
  return Failure{"no GPU has the UUID " + uuid + "; this process sees " + (seen.empty() ? "none" : seen) +
                 "; check CUDA_VISIBLE_DEVICES"};
}

Sharing sharing(const Driver& driver, CUdevice device) {
  // By number: the headers of CUDA 12.0 do not name it, and its drivers refuse it, which means no.
  constexpr auto kMpsEnabled = static_cast<CUdevice_attribute>(133);
  Sharing sharing;
  int mode = 0;
  if (driver.cuDeviceGetAttribute(&mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, device) == CUDA_SUCCESS) {
    sharing.exclusive = mode == CU_COMPUTEMODE_EXCLUSIVE_PROCESS;
    sharing.prohibited = mode == CU_COMPUTEMODE_PROHIBITED;
  }
  int mps = 0;
  sharing.mps = driver.cuDeviceGetAttribute(&mps, kMpsEnabled, device) == CUDA_SUCCESS && mps != 0;
  return sharing;
}

Result<CUcontext> use_primary_context(const Driver& driver, CUdevice device) {
  // Retained once a device and process: each retain would otherwise need a release of its own.
  static std::mutex mutex;
  static std::map<CUdevice, CUcontext> retained;
  const std::lock_guard lock(mutex);
  CUcontext context = nullptr;
  if (const auto found = retained.find(device); found != retained.end()) {
    context = found->second;
  } else {
    const CUresult result = driver.cuDevicePrimaryCtxRetain(&context, device);
    if (auto done = driver.check("cuDevicePrimaryCtxRetain", result); !done) return done.failure();
    retained[device] = context;
  }
  if (auto done = driver.check("cuCtxSetCurrent", driver.cuCtxSetCurrent(context)); !done) return done.failure();
  return context;
}

}  // namespace jitune::gpu
