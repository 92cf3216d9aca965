#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "base/fd.hpp"
#include "base/log.hpp"
#include "measure/protocol.hpp"
#include "pool/pool.hpp"

namespace jitune::tune {

/// The host's side of one GPU's measuring worker: sets it up, runs trials under deadlines, and after a death starts a
/// fresh one with the same buffers and reference. Used by one study at a time (begin waits for the other).
class Measurer {
 public:
  struct Options {
    std::string worker;
    std::string device_uuid;
    Log* log = nullptr;
  };
  explicit Measurer(Options options);
  ~Measurer();

  /// Starts the worker process now, so that its context is ready when the first artifact is. Does not wait.
  void warm_up();

  /// Takes the GPU for this study (one measurer per GPU on the machine: a lock file named by UUID, waited for until
  /// `deadline`), and sets up buffers. `reference` is the config whose outputs the others are compared with.
  struct Begun {
    bool ok = false;
    bool out_of_memory = false;
    std::string error;
    measure::TrialReply reference;  ///< how the reference itself did
  };
  Begun begin(const measure::Setup& setup, const measure::Candidate& reference, Clock::time_point deadline);

  /// Makes a later candidate the reference, where the first one failed.
  measure::TrialReply set_reference(const measure::Candidate& candidate, std::chrono::milliseconds limit);

  measure::TrialReply trial(const measure::Candidate& candidate, double bound_us, std::chrono::milliseconds limit);
  measure::RematchReply rematch(std::vector<measure::Candidate> candidates, int rounds, std::chrono::milliseconds limit);
  Result<space::KernelFacts> facts(const measure::FactsRequest& request);

  /// Ends the study: frees buffers (the worker ends) and lets go of the GPU.
  void end();

  /// False after a worker could not be killed or set up again: the study must end.
  bool usable() const { return usable_; }

 private:
  bool ensure_ready();
  measure::TrialReply run(const measure::TrialRequest& request, std::chrono::milliseconds limit);

  Options options_;
  std::unique_ptr<pool::Pool> pool_;
  std::mutex study_mutex_;
  std::unique_lock<std::mutex> study_lock_;
  UniqueFd device_lock_;
  measure::Setup setup_;
  std::optional<measure::Candidate> reference_;
  bool ready_ = false;
  bool usable_ = true;
  std::string setup_error_;
};

}  // namespace jitune::tune
