#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <semaphore>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "base/log.hpp"
#include "base/shared_memory.hpp"
#include "measure/protocol.hpp"
#include "measure/session.hpp"
#include "pool/pool.hpp"

namespace jitune::tune {

/// The host's side of one GPU's measuring worker: sets it up, runs trials under deadlines, and after a death starts a
/// fresh one with the same buffers and reference. Used by one study at a time (begin waits for the other).
class Measurer {
 public:
  struct Options {
    std::string worker;
    std::string device_uuid;
    bool keep_worker = false;  ///< between studies: for a program that does nothing else with the GPU
    bool in_process = false;   ///< no worker: requests are answered here, in the study's context, without deadlines
    Log* log = nullptr;
  };
  explicit Measurer(Options options);
  ~Measurer();

  /// In process: the context of the next study, made current on whatever thread measures.
  void use_context(void* context) { context_ = context; }

  /// Starts the worker process now, so that its context is ready when the first artifact is. Does not wait.
  void warm_up();

  /// Takes the GPU for this study (one measurer per GPU on the machine: a lock file named by UUID, waited for until
  /// `deadline`), and sets up buffers.
  struct Begun {
    bool ok = false;
    bool out_of_memory = false;
    std::string error;
  };
  /// `cancelled` is asked while anything of this study is waited for, on the thread that waits; once true, the worker
  /// is killed and no other used.
  Begun begin(const measure::Setup& setup, Clock::time_point deadline, std::function<bool()> cancelled = {});

  /// Samples are to be taken as another GPU of the study takes them. Before the reference. `also`: launches at the
  /// setup's other problems.
  void pin_method(measure::Policy::Method method, int launches, const std::vector<int>& also);

  /// Ends what runs on another thread: the worker is killed. In process nothing can end it.
  void cancel() {
    const std::lock_guard lock(pool_mutex_);
    pool_->cancel_all();
  }

  /// Runs a candidate and, if it is good, makes its outputs what later ones are compared with. One with an `order` is a
  /// reference kernel, no config: it does not decide how samples are taken.
  measure::TrialReply set_reference(const measure::Candidate& candidate, std::chrono::milliseconds limit);

  /// Copies what configs read at one of the setup's problems into shared memory of ours: `offsets` by arg, -1 for none.
  Result<void> read_inputs(const SharedMemory& memory, const std::vector<int64_t>& offsets, int problem);

  /// Outputs that this process computed are what later ones are compared with. Kept for fresh workers.
  struct HostOutputs {
    SharedMemory first;
    std::optional<SharedMemory> second;  ///< over another poison, where elements were left unwritten
    std::vector<int64_t> offsets;        ///< by arg, in both; -1: no output
    uint32_t first_poison = 0, second_poison = 0;
  };
  using AllHostOutputs = std::vector<HostOutputs>;  ///< by the setup's problem
  Result<void> set_reference(std::shared_ptr<const AllHostOutputs> outputs);

  /// `margins`: how far behind `bound_us` it may be after sample 1, 2, ...; empty: it is sampled to the end.
  measure::TrialReply trial(const measure::Candidate& candidate, double bound_us, std::vector<double> margins,
                            std::chrono::milliseconds limit);
  /// From now on wrong results are sorted into groups that agree: the reference is none to trust.
  void sort_wrong_results(bool wanted) { sort_wrong_results_ = wanted; }

  measure::RematchReply rematch(const measure::RematchRequest& request, std::chrono::milliseconds limit);
  Result<space::KernelFacts> facts(const measure::FactsRequest& request);

  /// Ends the study: lets go of the GPU and, unless the worker is kept, frees its memory by ending it.
  void end();

  /// Workers started so far. Between studies, or from the thread that measures.
  int spawned() const { return pool_->spawned() + (spare_ ? spare_->spawned() : 0); }

  /// False after a worker could not be killed or set up again: the study must end.
  bool usable() const { return usable_; }
  /// The GPU itself failed: what was measured on it is not to be published.
  bool device_lost() const { return device_lost_; }
  const std::string& trouble() const { return setup_error_; }  ///< why not

 private:
  std::unique_ptr<pool::Pool> make_pool() const;
  void prepare_spare();
  void use_spare();
  pool::Reply call_here(const Json& request);
  bool restart();
  bool ensure_ready();
  Result<void> move_data(const measure::HostDataRequest& request);
  Result<void> send_host_outputs();
  void pin(measure::TrialRequest& request) const;
  pool::Reply call(Json request, std::chrono::milliseconds limit);
  bool was_cancelled() const { return cancelled_ && cancelled_(); }
  void replace_worker();
  void let_go();
  measure::TrialReply run(const measure::TrialRequest& request, std::chrono::milliseconds limit);

  Options options_;
  void* context_ = nullptr;
  std::unique_ptr<measure::Session> session_;  // in process
  std::mutex pool_mutex_;                      // for which one is pool_; spare_ belongs to the thread that measures
  std::unique_ptr<pool::Pool> pool_;           // of one worker, as is spare_: with a context and nothing else
  std::unique_ptr<pool::Pool> spare_;
  bool has_spare_ = false;         // spare_ has its worker
  int64_t free_bytes_ = 0;         // of GPU memory, beside the study's
  std::binary_semaphore turn_{1};  // of studies; no mutex, for a study may begin on one thread and end on another
  bool in_study_ = false;
  UniqueFd device_lock_;
  measure::Setup setup_;
  std::optional<measure::Candidate> reference_;
  std::shared_ptr<const AllHostOutputs> host_outputs_;
  bool ready_ = false;
  bool usable_ = true;
  bool sort_wrong_results_ = false;
  bool method_pinned_ = false;
  bool device_lost_ = false;
  std::string setup_error_;
  std::function<bool()> cancelled_;
};

}  // namespace jitune::tune
