#include "base/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/fd.hpp"

namespace jitune {

Result<SharedMemory> SharedMemory::create(size_t bytes) {
  static std::atomic<unsigned> serial{0};
  SharedMemory memory;
  const std::string name = "/jitune-" + std::to_string(::getpid()) + "-s" + std::to_string(serial++);
  const UniqueFd fd(::shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) return Failure{"cannot make shared memory '" + name + "': " + std::strerror(errno)};
  memory.name_ = name;
  memory.is_creator_ = true;
  const size_t size = std::max<size_t>(bytes, 1);
  if (const int code = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(size)); code != 0)
    return Failure{"cannot reserve " + std::to_string(size) + " bytes of shared memory: " + std::strerror(code)};
  void* mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (mapped == MAP_FAILED) return Failure{std::string("cannot map shared memory: ") + std::strerror(errno)};
  memory.data_ = static_cast<std::byte*>(mapped);
  memory.bytes_ = size;
  return memory;
}

Result<SharedMemory> SharedMemory::open(const std::string& name) {
  const UniqueFd fd(::shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0));
  if (!fd) return Failure{"the shared memory `" + name + "` cannot be opened: " + std::strerror(errno)};
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0 || status.st_size <= 0)
    return Failure{"the shared memory `" + name + "` cannot be examined: " + std::strerror(errno)};
  SharedMemory memory;
  const auto size = static_cast<size_t>(status.st_size);
  void* mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (mapped == MAP_FAILED) return Failure{std::string("cannot map shared memory: ") + std::strerror(errno)};
  memory.name_ = name;
  memory.data_ = static_cast<std::byte*>(mapped);
  memory.bytes_ = size;
  return memory;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : name_(std::move(other.name_)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      is_creator_(std::exchange(other.is_creator_, false)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  if (this == &other) return *this;
  close();
  name_ = std::move(other.name_);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  is_creator_ = std::exchange(other.is_creator_, false);
  return *this;
}

SharedMemory::~SharedMemory() {
  close();
}

void SharedMemory::close() noexcept {
  if (data_ != nullptr) ::munmap(data_, bytes_);
  if (is_creator_) ::shm_unlink(name_.c_str());
  data_ = nullptr;
  is_creator_ = false;
}

}  // namespace jitune
