#pragma once

#include "base/shared_memory.hpp"
#include "measure/check.hpp"
#include "measure/samples.hpp"

namespace jitune::measure {

/// Everything of one study on the GPU at one problem: buffers, reference, timer. What a request does, step by step.
/// Blocks until the GPU is done.
class Workbench {
 public:
  /// `stream` becomes its own. `memory_bytes`: what it may take beyond the buffers.
  Workbench(const gpu::Driver& driver, Setup&& setup, CUstream_st* stream, int64_t memory_bytes);
  Workbench(const Workbench&) = delete;
  Workbench& operator=(const Workbench&) = delete;

  /// `first`: of several problems the first one's, with which it shares what there can be but one of.
  gpu::Trouble prepare(int64_t l2_bytes, const Workbench* first = nullptr);

  /// Another problem of the study, for rematch(): a round's time of a candidate is the mean by weight. It must outlive
  /// this object's last rematch.
  void add_problem(Workbench& other, double weight) { also_.push_back({&other, weight}); }
  void set_weight(double weight) { weight_ = weight; }

  /// Loads, checks and times one candidate. `finding` says what the checks found; status, samples and costs go to
  /// `reply`.
  gpu::Trouble trial(const TrialRequest& request, TrialReply& reply, Finding& finding);

  /// Times the candidates in rounds. On trouble, `failed` is the candidate that it came from.
  gpu::Trouble rematch(const RematchRequest& request, RematchReply& reply, size_t& failed);

  /// Copies data to or from the host's shared memory. Waits.
  gpu::Trouble host_data(const HostDataRequest& request, const SharedMemory& memory);

  const gpu::Driver& driver() const { return driver_; }

 private:
  struct Stream {
    const gpu::Driver* driver = nullptr;
    CUstream handle = nullptr;
    Stream() = default;
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    ~Stream() {
      if (handle != nullptr) driver->cuStreamDestroy(handle);
    }
  };

  gpu::Trouble load(const Candidate& candidate, Loaded& loaded);
  gpu::Trouble fit_scratch_everywhere(const Candidate& candidate);
  gpu::Trouble load_everywhere(const Candidate& candidate, Loaded& loaded);
  gpu::Trouble sample_everywhere(Loaded& loaded, double& us);
  gpu::Trouble use_kernel_times();
  gpu::Trouble warm_up();
  gpu::Trouble time_reference(Loaded& loaded, TrialReply& reply);
  gpu::Trouble choose_method(Loaded& loaded, const TrialReply& reply);
  gpu::Trouble take_samples(Loaded& loaded, const TrialRequest& request, TrialReply& reply);
  gpu::Trouble sample_for_a_time(Loaded& loaded, TrialReply& reply);
  gpu::Trouble load_finalists(const RematchRequest& request, std::vector<Loaded>& loaded, size_t& failed);
  gpu::Trouble sample_first(std::vector<Loaded>& loaded, size_t& failed, double& best_us);
  gpu::Trouble is_hopeless(Loaded& loaded, const TrialRequest& request, TrialReply& reply, bool& hopeless);

  // Destroyed in reverse order: the stream last.
  const gpu::Driver& driver_;
  Setup setup_;
  int64_t memory_bytes_;
  Stream stream_;
  Utility utility_;
  Buffers buffers_;
  std::unique_ptr<KernelTimes> kernel_times_;
  Timer timer_;
  Checker checker_;
  ClockGate clock_gate_;
  uint64_t rematches_ = 0;
  struct Other {
    Workbench* bench;
    double weight;
  };
  std::vector<Other> also_;
  double weight_ = 1;
  bool first_trial_ = true;
  bool method_chosen_ = false;
};

}  // namespace jitune::measure
