#pragma once

#include <string>
#include <vector>

#include "gpu/driver.hpp"
#include "gpu/module.hpp"
#include "kernel_references.hpp"
#include "measure/device_memory.hpp"
#include "space/instance.hpp"
#include "store/store.hpp"

namespace jitune::test {

/// One problem of a kernel on the current context's GPU: buffers between guard zones, inputs, and what must come out.
/// Constructor and check() throw std::runtime_error when the GPU can't be used any more.
class KernelOnGpu {
 public:
  /// Allocates, fills, and computes the reference.
  KernelOnGpu(const gpu::Driver& driver, const space::Instance& instance, const space::Config& any_config);

  /// Runs a compiled config a few times and looks at everything it wrote. "" when all is right, else what is wrong.
  std::string check(const space::Config& config, const store::ArtifactRow& artifact);

 private:
  struct Buffer {
    measure::DeviceMemory memory;
    CUdeviceptr data = 0;
  };

  void need(const gpu::Trouble& trouble) const;
  void need(const char* what, CUresult result) const;
  void reset(uint32_t poison);
  std::string launch(const space::Config& config, gpu::Module& module);
  std::string damaged_guards();
  std::string wrong_outputs(uint32_t poison);
  std::string compare(const Expected& expected) const;

  const gpu::Driver& driver_;
  const space::Instance& instance_;
  std::vector<HostArg> args_;
  std::vector<Buffer> buffers_;
  std::vector<Expected> expected_;
  std::vector<uint8_t> got_;  ///< the output that is looked at
  uint64_t runs_ = 0;
};

}  // namespace jitune::test
