#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "fake_cuda.hpp"
#include "state.hpp"

namespace fake_cuda {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kGarbageBytes = 1 << 20;  // fresh memory up to this size is filled, as real memory is never clean

struct Allocation {
  size_t bytes = 0;
  int fd = -1;
  bool imported = false;
};

std::map<CUdeviceptr, Allocation>& allocations() {
  static std::map<CUdeviceptr, Allocation> all;
  return all;
}

/// The allocation that holds `address`, or the end.
std::map<CUdeviceptr, Allocation>::iterator find(CUdeviceptr address) {
  auto after = allocations().upper_bound(address);
  if (after == allocations().begin()) return allocations().end();
  --after;
  return address < after->first + after->second.bytes ? after : allocations().end();
}

size_t mapped_bytes(size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

CUresult map(int fd, size_t bytes, bool imported, CUdeviceptr* address) {
  void* memory = ::mmap(nullptr, mapped_bytes(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = reinterpret_cast<CUdeviceptr>(memory);
  allocations()[*address] = {bytes, fd, imported};
  return CUDA_SUCCESS;
}

/// What an IPC handle holds: the exporting process and its descriptor of the memory.
struct Export {
  std::array<char, 8> magic{'f', 'a', 'k', 'e', 'i', 'p', 'c', '1'};
  int32_t pid = 0, fd = 0;
  uint64_t bytes = 0;
};
static_assert(sizeof(Export) <= sizeof(CUipcMemHandle));

}  // namespace

int64_t allocated_bytes() {
  int64_t bytes = 0;
  for (const auto& [address, allocation] : allocations()) bytes += static_cast<int64_t>(allocation.bytes);
  return bytes;
}

CUresult allocate(size_t bytes, CUdeviceptr* address) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const Device& device = state().spec.devices[static_cast<size_t>(current_device())];
  if (allocated_bytes() + static_cast<int64_t>(bytes) > device.memory_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  const int fd = ::memfd_create("fake-cuda", MFD_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(mapped_bytes(bytes))) != 0) {
    if (fd >= 0) ::close(fd);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUresult result = map(fd, bytes, false, address);
  if (result != CUDA_SUCCESS) ::close(fd);
  if (result == CUDA_SUCCESS && bytes <= kGarbageBytes) std::memset(reinterpret_cast<void*>(*address), 0xCD, bytes);
  return result;
}

CUresult release(CUdeviceptr address) {
  const auto found = allocations().find(address);
  if (found == allocations().end()) return CUDA_ERROR_INVALID_VALUE;
  ::munmap(reinterpret_cast<void*>(address), mapped_bytes(found->second.bytes));
  ::close(found->second.fd);
  allocations().erase(found);
  return CUDA_SUCCESS;
}

bool is_mapped(CUdeviceptr address, size_t bytes) {
  const auto found = find(address);
  return found != allocations().end() && address + bytes <= found->first + found->second.bytes;
}

}  // namespace fake_cuda

using namespace fake_cuda;

namespace {

/// Moves the virtual clock by what a copy or fill takes at 4 TB/s.
void spend(size_t bytes) {
  state().now_us += 1.0 + static_cast<double>(bytes) / 4e6;
}

CUresult copy(void* to, const void* from, size_t bytes) {
  std::memmove(to, from, bytes);
  spend(bytes);
  return CUDA_SUCCESS;
}

void* pointer(CUdeviceptr address) {
  return reinterpret_cast<void*>(address);
}

}  // namespace

extern "C" {

CUresult cuMemAlloc(CUdeviceptr* address, size_t bytes) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = in_context(); bad != CUDA_SUCCESS) return bad;
  if (state().capturing || spoils_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return allocate(bytes, address);
}

CUresult cuMemFree(CUdeviceptr address) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = in_context(); bad != CUDA_SUCCESS) return bad;
  if (address == 0) return CUDA_SUCCESS;
  return release(address);
}

CUresult cuMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = in_context(); bad != CUDA_SUCCESS) return bad;
  const Device& device = state().spec.devices[static_cast<size_t>(current_device())];
  *total_bytes = static_cast<size_t>(device.memory_bytes);
  *free_bytes = *total_bytes - static_cast<size_t>(allocated_bytes());
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = in_context(); bad != CUDA_SUCCESS) return bad;
  const auto found = find(address);
  if (found == allocations().end()) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = found->first;
  if (bytes != nullptr) *bytes = found->second.bytes;
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = in_context(); bad != CUDA_SUCCESS) return bad;
  const auto found = find(address);
  if (found == allocations().end()) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(data) = CU_MEMORYTYPE_DEVICE;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(data) = 0;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(data) = found->first;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<size_t*>(data) = found->second.bytes;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      *static_cast<bool*>(data) = state().spec.devices[0].ipc && !found->second.imported;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = wait(); bad != CUDA_SUCCESS) return bad;
  return is_mapped(to, bytes) ? copy(pointer(to), from, bytes) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = wait(); bad != CUDA_SUCCESS) return bad;
  return is_mapped(from, bytes) ? copy(to, pointer(from), bytes) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = in_context(); bad != CUDA_SUCCESS) return bad;
  if (!is_mapped(to, bytes) || !is_mapped(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
  return copy(pointer(to), pointer(from), bytes);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = in_context(); bad != CUDA_SUCCESS) return bad;
  return is_mapped(to, bytes) ? copy(pointer(to), from, bytes) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = in_context(); bad != CUDA_SUCCESS) return bad;
  return is_mapped(from, bytes) ? copy(to, pointer(from), bytes) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream) {
  return cuMemcpyDtoD(to, from, bytes);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = in_context(); bad != CUDA_SUCCESS) return bad;
  if (!is_mapped(to, count)) return CUDA_ERROR_INVALID_VALUE;
  std::memset(pointer(to), value, count);
  spend(count);
  return CUDA_SUCCESS;
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = in_context(); bad != CUDA_SUCCESS) return bad;
  if (to % 4 != 0 || !is_mapped(to, count * 4)) return CUDA_ERROR_INVALID_VALUE;
  auto* words = static_cast<unsigned*>(pointer(to));
  for (size_t i = 0; i < count; ++i) words[i] = value;
  spend(count * 4);
  return CUDA_SUCCESS;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = in_context(); bad != CUDA_SUCCESS) return bad;
  const auto found = find(address);
  if (found == allocations().end() || found->second.imported) return CUDA_ERROR_INVALID_VALUE;
  if (!state().spec.devices[static_cast<size_t>(current_device())].ipc) return CUDA_ERROR_NOT_SUPPORTED;
  Export exported;
  exported.pid = ::getpid();
  exported.fd = found->second.fd;
  exported.bytes = found->second.bytes;
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle, &exported, sizeof exported);
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = in_context(); bad != CUDA_SUCCESS) return bad;
  Export exported;
  std::memcpy(static_cast<void*>(&exported), &handle, sizeof exported);
  if (exported.magic != Export().magic) return CUDA_ERROR_INVALID_VALUE;
  if (exported.pid == ::getpid()) return CUDA_ERROR_INVALID_CONTEXT;  // as the real driver within one process
  const std::string path = "/proc/" + std::to_string(exported.pid) + "/fd/" + std::to_string(exported.fd);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return CUDA_ERROR_MAP_FAILED;
  return map(fd, exported.bytes, true, address);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = in_context(); bad != CUDA_SUCCESS) return bad;
  const auto found = allocations().find(address);
  if (found == allocations().end() || !found->second.imported) return CUDA_ERROR_INVALID_VALUE;
  return release(address);
}

int64_t fake_cuda_allocated_bytes() {
  const std::lock_guard lock(state().mutex);
  return allocated_bytes();
}
}
