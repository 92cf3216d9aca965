#pragma once

#include <cstddef>
#include <new>
#include <string>
#include <vector>

#include "jitune/error.hpp"

namespace jitune {

/// While it lives, studies that this thread makes read these buffers instead of the launch's own and instead of fills:
///
///     const jitune::ScopedInputs inputs({{.name = "x", .data = x, .bytes = n * sizeof(float)}});
///     kernel.prepare(problem, stream);  // tunes with x
///
/// Scopes nest: the innermost that knows an argument gives it; in one scope an entry for the kernel goes before one for
/// every kernel. Only `in` and `inout` args are looked up, and names that a kernel does not have are passed over, so
/// one scope serves many kernels. A launch itself never uses these buffers, and neither does a study of another thread,
/// whose result may be what this thread's launch gets.
///
/// Lifetime: device memory of the context that is current in the launch; it must stay valid, and written by work that
/// is complete or queued on the launch's stream, until the scope ends. It is copied, never written. One that is smaller
/// than the arg makes the launch throw Error{bad_arguments}. Thread-safety: belongs to the thread that made it, which
/// must also destroy it; a local variable does both.
class JITUNE_API ScopedInputs {
 public:
  struct Input {
    std::string name;         ///< of the argument
    const void* data;         ///< a device address
    size_t bytes;             ///< readable from there on
    std::string kernel = {};  ///< "": every kernel
  };

  explicit ScopedInputs(std::vector<Input> inputs);
  ~ScopedInputs();
  ScopedInputs(const ScopedInputs&) = delete;
  ScopedInputs& operator=(const ScopedInputs&) = delete;
  static void* operator new(size_t) = delete;  // one that moves between threads or outlives its scope is a mistake

  /// Whether this thread is in a scope. For the library.
  static bool any() noexcept;
  /// What this thread's scopes give for an argument, or null. For the library.
  static const Input* find(const std::string& kernel, const std::string& name) noexcept;

 private:
  std::vector<Input> inputs_;
  const ScopedInputs* outer_;
};

}  // namespace jitune
