#pragma once

#include <cuda.h>

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "gpu/driver.hpp"
#include "space/instance.hpp"

namespace jitune::gpu {

/// A trouble with the driver: the failure and whether the context survives it.
struct Trouble {
  CUresult code = CUDA_SUCCESS;
  std::string message;
  explicit operator bool() const { return code != CUDA_SUCCESS; }
};

/// A loaded module with one function, in the context that was current at load. Unloaded with the object unless keep()
/// was called (a module once launched in production stays: captured graphs hold its function).
class Module {
 public:
  Module() = default;
  Module(Module&& other) noexcept;
  Module& operator=(Module&& other) noexcept;
  ~Module();

  /// Loads `cubin` and finds `lowered_name`.
  Trouble load(const Driver& driver, std::string_view cubin, const std::string& lowered_name);

  /// Raises the function's limits as far as the geometry needs: dynamic shared memory above 48 KiB, clusters above 8.
  Trouble prepare(const space::Geometry& geometry);

  /// Registers, static shared and local memory as the driver sees them; max_blocks_per_sm at this geometry.
  Trouble facts(const space::Geometry& geometry, space::KernelFacts& facts) const;

  /// Launches. `params` holds one pointer per kernel parameter. Uses cuLaunchKernel, or cuLaunchKernelEx where cluster,
  /// cooperative or programmatic dependent launch is asked for.
  Trouble launch(const space::Geometry& geometry, CUstream stream, void** params) const;

  /// Address and size of a __device__ or __constant__ variable.
  Trouble symbol(const std::string& name, CUdeviceptr& address, size_t& bytes) const;

  CUfunction function() const { return function_; }
  void keep() { kept_ = true; }
  explicit operator bool() const { return function_ != nullptr; }

 private:
  const Driver* driver_ = nullptr;
  CUmodule module_ = nullptr;
  bool kept_ = false;
  CUfunction function_ = nullptr;
};

/// Launches `function` as Module::launch does: for callers that keep the bare function.
CUresult launch(const Driver& driver, CUfunction function, const space::Geometry& geometry, CUstream stream,
                void** params);

/// Encodes a TMA descriptor for `arg` over `base`. `element` is the type of the buffer that it describes.
Trouble encode_tensor_map(const Driver& driver, const space::ArgSpec& arg, Type element, CUdeviceptr base,
                          CUtensorMap& map);

}  // namespace jitune::gpu
