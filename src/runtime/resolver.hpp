#pragma once

#include <cuda.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "jitune/study.hpp"
#include "runtime/background.hpp"
#include "runtime/kernel_state.hpp"
#include "tune/tune.hpp"

namespace jitune::runtime {

/// Makes the plan of one problem: looks up, tunes if it may, else takes the default config; compiles and loads.
/// Lives for one slow-path call.
class Resolver {
 public:
  Resolver(KernelState& kernel, const gpu::Driver& driver, CUstream stream, const Problem& problem,
           std::span<const void* const> arguments, bool may_tune, bool capturing);

  /// Throws Error{no_runnable_config, not_prepared, bad_problem, launch_failed}.
  /// `use_meanwhile` gets the default config's plan for other launches of this problem when tuning takes long.
  using UseMeanwhile = std::function<void(std::unique_ptr<Plan>)>;
  std::unique_ptr<Plan> resolve(const PlanKey& key, const UseMeanwhile& use_meanwhile);

  /// The plan of the default config for the track `heuristic`, made where that costs no surprise: from the build cache,
  /// or compiled where `may_compile`. Null, and a line in the log, where it can't be had. Never throws an Error.
  std::unique_ptr<Plan> default_plan(const PlanKey& key, bool may_compile);

  /// For resolve() after a study behind the launches: what the choice says, and that it is not to be made again.
  void explain(const KernelState::Reasons& reasons) { reasons_ = reasons; }

  /// A study by hand, see Tuner::tune, and what a plan of its winner may be made by afterwards.
  Study study(const StudyOptions& options);
  /// See Tuner::compile.
  std::vector<CompiledConfig> compile(const std::vector<std::string>& configs);
  const std::string& key_sha256() const { return key_->sha256; }
  /// Why a config that was to be used could not be; "" where none failed.
  const std::string& fallback() const { return fallback_; }

  /// Begins the study that resolve() found to be wanted behind the launch. After its plan is in use.
  void start_behind();
  ~Resolver();

 private:
  struct Answer {
    space::Config config;
    std::optional<store::ArtifactRow> artifact;
    Choice choice;
    bool provisional = false;
    bool is_miss = false;  ///< no winner of this very key
  };
  void bind();
  Answer given_answer(const space::Config& given);
  std::vector<space::DeviceInfo> more_devices(const std::vector<std::string>& names) const;
  std::vector<space::DeviceInfo> devices_beside() const;
  bool wants_data() const;
  void capture_launch();
  std::optional<Answer> look_up();
  std::optional<Answer> look_up_compatible();
  std::optional<Answer> accept(const store::WinnerRow& winner, std::string why,
                               Choice::Source source = Choice::Source::stored);
  std::optional<Answer> next_best(const std::string& why_not);
  std::unique_ptr<Plan> try_load(const PlanKey& key, Answer answer);
  std::unique_ptr<Plan> nearest(const PlanKey& key);
  void stand_by(const PlanKey& key, const UseMeanwhile& use_meanwhile);
  std::optional<Answer> tune(const PlanKey& key, const UseMeanwhile& use_meanwhile);
  bool was_cut_short(const Answer& answer);
  void tune_behind(bool resumes);
  std::unique_ptr<Plan> choose(const PlanKey& key, std::optional<Answer> answer);
  CUcontext context_for_measuring() const;
  std::optional<Answer> tuned_answer(const tune::Outcome& outcome);
  Answer default_answer(std::string why);
  std::unique_ptr<Plan> load(const PlanKey& key, Answer answer);
  std::optional<store::ArtifactRow> stored_artifact(const space::Config& config);
  std::string device_limit(const gpu::Module& module, const space::Geometry& geometry) const;
  std::string load_into(const PlanKey& key, Answer& answer, std::unique_ptr<Plan>& plan);

  KernelState& kernel_;
  TunerState& tuner_;
  std::shared_ptr<tune::Services> services_;
  const gpu::Driver& driver_;
  CUstream stream_;
  const Problem& problem_;
  std::span<const void* const> arguments_;
  bool may_tune_;
  bool capturing_;
  Track track_;
  std::optional<space::Instance> instance_;
  std::optional<key::TuningKey> key_;
  std::shared_ptr<const Miss> miss_;
  std::unique_ptr<Plan> standby_;  // the default config, loaded before tuning began
  std::string why_default_, fallback_;
  std::optional<KernelState::Reasons> reasons_;
  std::optional<BackgroundJob> behind_;
  bool tuned_elsewhere_ = false;
  bool reserves_ = true;  // scratch memory is allocated with the plan
};

}  // namespace jitune::runtime
