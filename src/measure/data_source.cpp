#include "measure/data_source.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/fd.hpp"
#include "measure/device_memory.hpp"

namespace jitune::measure {
namespace {

/// A host-side trouble in the driver's clothes: nothing happened to the context.
gpu::Trouble refused(std::string message) {
  return {CUDA_ERROR_INVALID_VALUE, std::move(message)};
}

gpu::Trouble copy_from_fd(const gpu::Driver& driver, const UniqueFd& fd, const std::string& what, CUdeviceptr to,
                          int64_t bytes) {
  if (!fd) return refused(what + " cannot be opened: " + std::strerror(errno));
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return refused(what + " cannot be examined: " + std::strerror(errno));
  if (status.st_size < bytes)
    return refused(what + " holds " + std::to_string(status.st_size) + " bytes, " + std::to_string(bytes) +
                   " are needed");
  void* mapped = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ, MAP_SHARED, fd.get(), 0);
  if (mapped == MAP_FAILED) return refused(what + " cannot be mapped: " + std::strerror(errno));
  CUresult result = driver.cuMemcpyHtoD(to, mapped, static_cast<size_t>(bytes));
  // From pageable memory the call may return while the last piece is still on its way.
  if (result == CUDA_SUCCESS) result = driver.cuCtxSynchronize();
  ::munmap(mapped, static_cast<size_t>(bytes));
  return trouble(driver, ("copying " + what).c_str(), result);
}

}  // namespace

gpu::Trouble copy_from_ipc(const gpu::Driver& driver, const DataSource& source, CUdeviceptr to, int64_t bytes) {
  CUipcMemHandle handle{};
  if (source.ipc_handle.size() != sizeof handle)
    return refused("a CUDA IPC handle has " + std::to_string(source.ipc_handle.size()) + " bytes, not 64");
  std::memcpy(&handle, source.ipc_handle.data(), sizeof handle);
  CUdeviceptr mapped = 0;
  if (auto bad = trouble(driver, "mapping the caller's buffer over CUDA IPC",
                         driver.cuIpcOpenMemHandle(&mapped, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)))
    return bad;
  CUdeviceptr base = 0;
  size_t mapped_bytes = 0;
  CUresult result = driver.cuMemGetAddressRange(&base, &mapped_bytes, mapped);
  if (result == CUDA_SUCCESS && source.offset + bytes > static_cast<int64_t>(mapped_bytes)) {
    driver.cuIpcCloseMemHandle(mapped);
    return refused("the caller's allocation has " + std::to_string(mapped_bytes) + " bytes, " +
                   std::to_string(source.offset + bytes) + " are needed");
  }
  result = driver.cuMemcpyDtoD(to, mapped + static_cast<CUdeviceptr>(source.offset), static_cast<size_t>(bytes));
  // A copy within the device may return before it is done, and the mapping must outlive it.
  if (result == CUDA_SUCCESS) result = driver.cuCtxSynchronize();
  const CUresult closed = driver.cuIpcCloseMemHandle(mapped);
  return trouble(driver, "copying the caller's buffer", result != CUDA_SUCCESS ? result : closed);
}

gpu::Trouble copy_from_shared_memory(const gpu::Driver& driver, const std::string& name, CUdeviceptr to,
                                     int64_t bytes) {
  const UniqueFd fd(::shm_open(name.c_str(), O_RDONLY | O_CLOEXEC, 0));
  return copy_from_fd(driver, fd, "the shared memory `" + name + "`", to, bytes);
}

gpu::Trouble copy_from_file(const gpu::Driver& driver, const std::string& path, CUdeviceptr to, int64_t bytes) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return copy_from_fd(driver, fd, "the file `" + path + "`", to, bytes);
}

}  // namespace jitune::measure
