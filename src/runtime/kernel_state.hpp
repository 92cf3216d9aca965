#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "jitune/kernel.hpp"
#include "runtime/modules.hpp"
#include "runtime/plan_table.hpp"
#include "runtime/striped_counter.hpp"
#include "runtime/tuner_state.hpp"
#include "space/instance.hpp"

namespace jitune::runtime {

/// What a kernel's launches share.
class KernelState : public std::enable_shared_from_this<KernelState> {
 public:
  KernelState(std::shared_ptr<TunerState> tuner, KernelDefinition definition);

  const space::Model& model() const { return *model_; }
  const std::shared_ptr<const space::Model>& shared_model() const { return model_; }

  // Problems: names and words to numbers and back.
  Problem make_problem(std::initializer_list<std::pair<const char*, Value>> values);
  void set(Problem& problem, const char* name, const Value& value);
  void set_config(Problem& problem, std::initializer_list<std::pair<const char*, Value>> config);
  space::ProblemValues values_of(const Problem& problem);

  /// The plan for a problem in the current context, made if there is none. Throws as UntypedKernel::launch does.
  /// `arguments` may be empty: tuning then uses fills.
  Plan& plan(CUstream stream, const Problem& problem, std::span<const void* const> arguments, bool may_tune);

  /// After plan(): loads the default config too, for the track `heuristic` and for a winner that goes away. Costs
  /// nothing where that was done before, and is left out in a capture and for configs given by hand.
  void prepare_default(CUstream stream, const Problem& problem, const Plan& chosen);

  Study study(const Problem& problem, const StudyOptions& options);
  std::vector<CompiledConfig> compile(const Problem& problem, const std::vector<std::string>& configs);

  void launch(CUstream stream, const Problem& problem, std::span<const void* const> arguments);
  void set_symbol(const std::string& name, const void* data, size_t bytes);

  /// What the choice says after a study behind the launches.
  struct Reasons {
    std::string found;      ///< of the winner; "": that it was stored
    std::string no_winner;  ///< of the default config
  };
  /// Makes the plan of a problem in `context` again, and those of others of its key, after that was tuned: launches go
  /// on with the old ones meanwhile. Never throws: what goes wrong is logged, the old plan stays.
  void refresh(const Problem& problem, CUcontext context, const std::string& key_sha256, const Reasons& reasons);

  /// The kernel's owner lets go of it: what it has not told the store yet is told.
  void end() noexcept;

  /// Tells the store of launches that found no winner since it was told last. Waits for the store.
  void tell_misses(store::Store& store);

  [[noreturn]] void raise(ErrorCode code, const std::string& message) const;

 private:
  friend class Resolver;
  static uint64_t context_number(const gpu::Driver& driver) noexcept;
  Plan* known_plan(const Problem& problem, bool may_tune) const noexcept;
  [[noreturn]] void raise_launch(CUresult code, const std::string& what) const;
  [[noreturn, gnu::noinline]] void raise_launch(CUresult code, const Plan& plan) const;
  [[gnu::noinline]] void launch_any(Plan* chosen, CUstream stream, const Problem& problem,
                                    std::span<const void* const> arguments);
  Track track_of(const Problem& problem) const noexcept {
    const auto& settings = tuner_->settings();
    if (settings.always_heuristic) return Track::heuristic;
    return problem.track_ ? *problem.track_ : settings.options.track;
  }
  void check_usable(const Problem& problem) const;
  const std::string& definition_text();
  Plan& make_plan(const gpu::Driver& driver, CUstream stream, const Problem& problem,
                  std::span<const void* const> arguments, bool may_tune, bool capturing, const PlanKey& key);
  Plan* take_turn(const PlanKey& key, const Problem& problem);
  void end_turn(const PlanKey& key);
  Problem problem_of(const PlanKey& key);
  bool has_param(const std::string& name) const;
  space::Config given_config(const Problem& problem);
  void tell_choice(const Plan& plan, const Problem& problem, double wall_ms, double stall_ms,
                   const std::string& fallback);

  std::shared_ptr<TunerState> tuner_;
  std::shared_ptr<const space::Model> model_;
  size_t caller_args_ = 0;
  std::atomic<const gpu::Driver*> driver_{nullptr};
  PackedCounters counters_;  // of plans' misses
  PlanTable plans_;
  Modules modules_;
  std::mutex making_mutex_;  // of making_
  std::condition_variable made_;
  std::vector<PlanKey> making_;  // plans that a thread is making, while others of the same problem wait
  std::mutex mutex_;             // of what follows
  std::vector<std::string> words_;
  std::vector<space::Config> configs_;                       // given by hand
  std::map<std::string, std::string, std::less<>> symbols_;  // set_symbol's latest data
  std::once_flag definition_once_;
  std::string definition_text_;
};

}  // namespace jitune::runtime
