#pragma once

#include <string>
#include <utility>

#include "base/result.hpp"

namespace jitune {

/// A library loaded with dlopen. Closed with the object unless `keep` was called.
class DynamicLibrary {
 public:
  DynamicLibrary() = default;
  DynamicLibrary(DynamicLibrary&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  DynamicLibrary& operator=(DynamicLibrary&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~DynamicLibrary();

  /// `path` may be a bare name that the system's loader searches for. The failure holds the loader's own words.
  static Result<DynamicLibrary> open(const std::string& path);

  /// The address of `name`, or null.
  void* find(const char* name) const;

  /// Leaves the library loaded for the life of the process.
  void keep() { handle_ = nullptr; }

 private:
  void* handle_ = nullptr;
};

}  // namespace jitune
