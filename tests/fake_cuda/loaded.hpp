#pragma once

#include <cstdint>
#include <string>

namespace fake_cuda {

/// The stand-in loaded into this process. `path` is the built libcuda.so.1.
class Loaded {
 public:
  /// Loads it, so that a later dlopen("libcuda.so.1") gives this one. Must come before anything asks for the driver.
  /// Throws std::runtime_error when that fails.
  explicit Loaded(const std::string& path);

  /// A new spec; sticky errors and counters are forgotten. Throws when the text is no JSON.
  void configure(const std::string& spec) const;
  int64_t allocated_bytes() const { return allocated_bytes_(); }
  int64_t modules() const { return modules_(); }
  int64_t launches() const { return launches_(); }
  int64_t waits() const { return waits_(); }
  void set_capturing(bool capturing) const { set_capturing_(capturing ? 1 : 0); }
  /// As if another thread captured: 1 a stream that the legacy stream waits for, 2 one that it does not; 0 ends it.
  void set_foreign_capture(int kind) const { set_foreign_capture_(kind); }
  /// Whether a call of this process has ended that capture.
  bool capture_spoiled() const { return capture_spoiled_() != 0; }

 private:
  void (*set_foreign_capture_)(int) = nullptr;
  int (*capture_spoiled_)() = nullptr;
  int (*configure_)(const char*) = nullptr;
  int64_t (*allocated_bytes_)() = nullptr;
  int64_t (*modules_)() = nullptr;
  int64_t (*launches_)() = nullptr;
  int64_t (*waits_)() = nullptr;
  void (*set_capturing_)(int) = nullptr;
};

}  // namespace fake_cuda
