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
  /// `copy`: which set of the study's buffers, Buffers::kChecked or a copy's number.
  gpu::Trouble bind(const gpu::Driver& driver, const Candidate& candidate, const Buffers& buffers,
                    int copy = Buffers::kChecked);

  /// Copies the study's symbol contents into the module's variables. Enqueued on `stream`.
  /// `optional`: a variable that the module does not have is no trouble.
  static gpu::Trouble fill_symbols(const gpu::Driver& driver, const gpu::Module& module, const Buffers& buffers,
                                   CUstream stream, bool optional = false);

  /// One pointer for each kernel parameter; valid until the next bind.
  void** params() { return params_.data(); }

 private:
  void pass(const space::ArgSpec& arg, size_t index);
  std::vector<CUdeviceptr> pointers_;
  std::vector<CUtensorMap> maps_;
  std::vector<void*> params_;
};

}  // namespace jitune::measure
