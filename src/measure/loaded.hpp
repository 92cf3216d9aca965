#pragma once

#include <memory>
#include <vector>

#include "measure/arguments.hpp"

namespace jitune::measure {

/// Launches of one candidate as one CUDA graph, each over a copy of the study's buffers of its own, so that none finds
/// in L2 what another one left. The candidate's module must outlive it.
class GraphBatch {
 public:
  GraphBatch() = default;
  GraphBatch(const GraphBatch&) = delete;
  GraphBatch& operator=(const GraphBatch&) = delete;
  ~GraphBatch() { clear(); }

  /// Records `launches` of them. With `own_copies` launch i uses copy i of the buffers, else all use the one set that
  /// is checked.
  gpu::Trouble build(const gpu::Driver& driver, const gpu::Module& module, const Candidate& candidate,
                     const Buffers& buffers, int launches, bool own_copies, CUstream stream);
  gpu::Trouble launch(CUstream stream) const;
  void clear();
  explicit operator bool() const { return graph_ != nullptr; }

 private:
  gpu::Trouble record(const gpu::Module& module, const Candidate& candidate, CUstream stream, CUgraph& recorded);

  const gpu::Driver* driver_ = nullptr;
  CUgraphExec graph_ = nullptr;
  std::vector<Arguments> arguments_;  // by launch
};

/// Whether this driver has what GraphBatch needs.
bool has_graphs(const gpu::Driver& driver);

/// A candidate whose module is loaded and whose arguments are bound.
struct Loaded {
  const Candidate* candidate = nullptr;
  gpu::Module module;
  Arguments arguments;
  GraphBatch batch;                           // goes before the module
  std::vector<std::unique_ptr<Loaded>> also;  // at the study's other problems

  gpu::Trouble launch(CUstream stream) { return module.launch(candidate->geometry, stream, arguments.params()); }
};

}  // namespace jitune::measure
