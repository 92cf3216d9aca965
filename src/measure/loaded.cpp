#include "measure/loaded.hpp"

namespace jitune::measure {

void GraphBatch::clear() {
  if (graph_ != nullptr) driver_->cuGraphExecDestroy(graph_);
  graph_ = nullptr;
  arguments_.clear();
}

gpu::Trouble GraphBatch::record(const gpu::Module& module, const Candidate& candidate, CUstream stream,
                                CUgraph& recorded) {
  // Relaxed: nothing that this thread does meanwhile is a mistake.
  if (auto bad = trouble(*driver_, "cuStreamBeginCapture",
                         driver_->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED)))
    return bad;
  gpu::Trouble refused;
  for (Arguments& arguments : arguments_) {
    refused = module.launch(candidate.geometry, stream, arguments.params());
    if (refused) break;
  }
  // The capture is ended in any case, or the stream would be of no use afterwards.
  auto bad = trouble(*driver_, "cuStreamEndCapture", driver_->cuStreamEndCapture(stream, &recorded));
  return refused ? refused : bad;
}

gpu::Trouble GraphBatch::build(const gpu::Driver& driver, const gpu::Module& module, const Candidate& candidate,
                               const Buffers& buffers, int launches, bool own_copies, CUstream stream) {
  driver_ = &driver;
  arguments_.resize(static_cast<size_t>(launches));
  for (size_t i = 0; i < arguments_.size(); ++i)
    if (auto bad = arguments_[i].bind(driver, candidate, buffers, own_copies ? static_cast<int>(i) : Buffers::kChecked))
      return bad;
  CUgraph recorded = nullptr;
  auto bad = record(module, candidate, stream, recorded);
  if (!bad) bad = trouble(driver, "cuGraphInstantiate", driver.cuGraphInstantiate(&graph_, recorded, 0));
  if (recorded != nullptr) driver.cuGraphDestroy(recorded);
  return bad;
}

gpu::Trouble GraphBatch::launch(CUstream stream) const {
  return trouble(*driver_, "cuGraphLaunch", driver_->cuGraphLaunch(graph_, stream));
}

bool has_graphs(const gpu::Driver& driver) {
  return driver.cuStreamBeginCapture != nullptr && driver.cuStreamEndCapture != nullptr &&
         driver.cuGraphInstantiate != nullptr && driver.cuGraphLaunch != nullptr &&
         driver.cuGraphExecDestroy != nullptr && driver.cuGraphDestroy != nullptr;
}

}  // namespace jitune::measure
