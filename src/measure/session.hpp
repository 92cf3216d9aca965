#pragma once

#include <memory>

#include "measure/protocol.hpp"

namespace jitune::measure {

/// What the measuring worker knows between requests: the GPU, the study's buffers and its reference.
/// Every request blocks until the GPU is done with it; the host's deadline is what ends a kernel that never returns.
class Session {
 public:
  Session();
  ~Session();

  /// Loads the driver and, where there is only one GPU to choose, makes its context: work that needs no request.
  void warm_up();

  /// Frees what an earlier setup made, then makes buffers for this study.
  SetupReply setup(const Setup& request);

  TrialReply trial(const TrialRequest& request);
  RematchReply rematch(const RematchRequest& request);
  Result<space::KernelFacts> facts(const FactsRequest& request);

  /// Whether the context or the study's data were destroyed: the process must end after its reply.
  bool lost() const { return lost_; }

 private:
  struct Study;
  std::unique_ptr<Study> study_;
  bool lost_ = false;
};

}  // namespace jitune::measure
