#pragma once

#include <vector>

#include "gpu/module.hpp"
#include "measure/buffers.hpp"
#include "measure/protocol.hpp"

namespace jitune::measure {

/// A candidate's kernel parameters, bound to the study's buffers. The Candidate must outlive it.
class Arguments {
 public:
  /// Encodes tensor maps and collects pointers and scalars in the kernel's order.
  gpu::Trouble bind(const gpu::Driver& driver, const Candidate& candidate, const Buffers& buffers);

  /// Copies the study's symbol contents into the module's variables. Enqueued on `stream`.
  static gpu::Trouble fill_symbols(const gpu::Driver& driver, const gpu::Module& module, const Buffers& buffers,
                                   CUstream stream);

  /// One pointer for each kernel parameter; valid until the next bind.
  void** params() { return params_.data(); }

 private:
  std::vector<CUdeviceptr> pointers_;
  std::vector<CUtensorMap> maps_;
  std::vector<void*> params_;
};

/// A candidate whose module is loaded and whose arguments are bound.
struct Loaded {
  const Candidate* candidate = nullptr;
  gpu::Module module;
  Arguments arguments;

  gpu::Trouble launch(CUstream stream) { return module.launch(candidate->geometry, stream, arguments.params()); }
};

}  // namespace jitune::measure
