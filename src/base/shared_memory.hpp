#pragma once

#include <cstddef>
#include <string>

#include "base/result.hpp"

namespace jitune {

/// A POSIX shared memory object, mapped for reading and writing; its creator removes the name when it goes. Movable.
class SharedMemory {
 public:
  /// A fresh one of `bytes` zeros (at least one byte). Its memory is reserved: where /dev/shm is too small this fails,
  /// instead of a later write.
  static Result<SharedMemory> create(size_t bytes);
  /// Maps another process's, all of it.
  static Result<SharedMemory> open(const std::string& name);

  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  const std::string& name() const { return name_; }  ///< for shm_open: `/jitune-PID-N`
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void close() noexcept;
  std::string name_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  bool is_creator_ = false;
};

}  // namespace jitune
