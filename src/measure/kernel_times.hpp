#pragma once

#include <memory>
#include <string>

#include "base/dynamic_library.hpp"
#include "gpu/module.hpp"

namespace jitune::measure {

/// Times of single kernels as the GPU's own records hold them, from CUPTI's activity interface: without the launch
/// latency that events around a kernel contain. Loaded at run time, for the life of the process; one object at a time,
/// used by one thread.
class KernelTimes {
 public:
  /// Looks for libcupti beside NVRTC (`toolkit_dir`), where toolkits and NVIDIA's Python wheels keep it, and on the
  /// loader's path. Needs a current context. The failure says what was tried and what to do.
  static Result<std::unique_ptr<KernelTimes>> open(const std::string& toolkit_dir);
  KernelTimes(const KernelTimes&) = delete;
  KernelTimes& operator=(const KernelTimes&) = delete;
  ~KernelTimes();

  /// Drops the records of all that ran so far. The stream must be idle.
  gpu::Trouble forget();

  /// The duration of the kernel that began last since forget(). The stream must be idle; waits for its record, at most
  /// 100 ms.
  gpu::Trouble latest(double& us);

 private:
  KernelTimes() = default;
  gpu::Trouble flush();

  int (*flush_all_)(unsigned) = nullptr;
  int (*disable_)(int) = nullptr;
};

}  // namespace jitune::measure
