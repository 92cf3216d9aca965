#pragma once

#include <cuda.h>

#include <string>
#include <vector>

#include "fake_cuda/loaded.hpp"
#include "gpu/driver.hpp"
#include "jitune/jitune.hpp"
#include "support/support.hpp"

namespace jitune::test {

/// `spec` with a GPU that only this process has, unless it names devices: one GPU is measured on by one process at a
/// time, and tests of another build tree may be running.
std::string with_own_gpu(const std::string& spec);

/// The fake driver in this process and in the measuring worker's, with a context current on this thread.
class FakeGpu {
 public:
  explicit FakeGpu(const std::string& spec);

  /// A buffer of `count` floats; freed with the object.
  float* buffer(size_t count, float value);
  std::vector<float> read(const float* data, size_t count) const;
  const fake_cuda::Loaded& fake() const;
  const gpu::Driver& driver() const { return *driver_; }
  ~FakeGpu();

 private:
  ScopedEnv library_path_, spec_;
  const gpu::Driver* driver_ = nullptr;
  std::vector<CUdeviceptr> buffers_;
};

/// Options with the build tree's worker, two compile workers and no stderr.
Options quiet_options(Track track, const std::string& database);

/// False, having said so, when there is no NVRTC here.
bool have_nvrtc();

}  // namespace jitune::test
