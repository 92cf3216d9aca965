#pragma once

#include <memory>
#include <string>
#include <vector>

#include "measure/protocol.hpp"

namespace jitune::measure {

class Workbench;

/// What the measuring worker knows between requests: the GPU, the study's buffers and its reference.
/// Every request blocks until the GPU is done with it; the host's deadline is what ends a kernel that never returns.
class Session {
 public:
  /// `in_process`: a part of the application, in the context that is current whenever it is called.
  explicit Session(bool in_process = false);
  ~Session();

  /// Loads the driver and makes the context of this GPU, or, where none is named, of the only one there is: work that
  /// needs no request.
  void warm_up(const std::string& device_uuid);

  /// Frees what an earlier setup made, then makes buffers for this study.
  SetupReply setup(const Setup& request);

  TrialReply trial(const TrialRequest& request);
  RematchReply rematch(const RematchRequest& request);
  Result<space::KernelFacts> facts(const FactsRequest& request);
  HostDataReply host_data(const HostDataRequest& request);

  /// Whether the context or the study's data were destroyed: the process must end after its reply.
  bool lost() const { return lost_; }

 private:
  TrialReply trial_at(size_t problem, const TrialRequest& request);
  std::vector<std::unique_ptr<Workbench>> study_;  // by problem
  std::vector<double> weights_;
  std::vector<std::string> texts_;
  const bool in_process_;
  bool lost_ = false;
};

}  // namespace jitune::measure
