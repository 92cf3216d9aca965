#include <cstdio>
#include <thread>
#include <utility>

#include "jitune/scoped_inputs.hpp"
#include "runtime/caller_data.hpp"
#include "runtime/kernel_state.hpp"
#include "runtime/resolver.hpp"
#include "runtime/tuning_devices.hpp"
#include "tune/compiler.hpp"
#include "tune/measurer.hpp"
#include "tune/tune.hpp"

namespace jitune::runtime {
namespace {

constexpr std::chrono::milliseconds kPollWinner{50};  // while another process tunes
constexpr std::chrono::seconds kClaimAgain{1};        // its lease may have been let go of without a winner

std::chrono::milliseconds until(Clock::time_point deadline) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
}

}  // namespace

/// Starts the workers and gets the default config loaded, before the budget begins to count.
void Resolver::stand_by(const PlanKey& key, const UseMeanwhile& use_meanwhile) {
  if (auto compiler = services_->compiler()) (*compiler)->warm_up((*compiler)->width());
  if (auto measurer = services_->measurer(instance_->device().uuid)) (*measurer)->warm_up();
  auto config = instance_->default_config();
  if (!config) return;
  Answer answer = default_answer("it is being tuned");
  std::unique_ptr<Plan> plan;
  if (const std::string trouble = load_into(key, answer, plan); plan == nullptr) {
    tuner_.log().debug("default_unusable", kernel_.model().name(), trouble);
    return;
  }
  if (tuner_.while_tuned.load(std::memory_order_relaxed) == WhileTuned::default_config)
    use_meanwhile(std::move(plan));
  else
    standby_ = std::move(plan);
}

/// What Isolation::in_process measures in; a worker has a context of its own.
CUcontext Resolver::context_for_measuring() const {
  CUcontext context = nullptr;
  if (services_->options().in_process) (void)driver_.cuCtxGetCurrent(&context);
  return context;
}

/// Whether a study reads a caller's data: there are some, and they are of the problem that is measured.
bool Resolver::wants_data() const {
  return (!arguments_.empty() || ScopedInputs::any()) && instance_->representatives().problems.empty();
}

/// The GPUs of Options::tuning_devices; what is wrong with a name is told once.
std::vector<space::DeviceInfo> Resolver::devices_beside() const {
  auto found = find_tuning_devices(tuner_.settings().options.tuning_devices, instance_->device());
  for (const std::string& why : found.wrong)
    tuner_.log().warning("tuning_device", kernel_.model().name(), "Options::tuning_devices: " + why, why);
  return std::move(found.devices);
}

/// Takes what the background track needs, the caller's data as they are now above all.
void Resolver::tune_behind(bool resumes) {
  if (!tuner_.begin_tuning(key_->sha256)) {
    // Its result replaces this plan too, unless it ends just now: look again after a while.
    tuned_elsewhere_ = !resumes;
    why_default_ = "it is being tuned in the background";
    return;
  }
  BackgroundJob& job = behind_.emplace();
  job.kernel = kernel_.weak_from_this();
  job.problem = problem_;
  driver_.cuCtxGetCurrent(&job.context);
  job.instance = std::make_shared<const space::Instance>(*instance_);
  job.key = *key_;
  job.resumes = resumes;
  why_default_ = "it is being tuned in the background";
  if (!wants_data()) return;
  auto config = instance_->default_config();
  auto args =
      config ? instance_->args(*config, {1, 0, 0, 1}) : Result<std::vector<space::ArgSpec>>(Failure{config.error()});
  if (!args) return;
  auto data = CallerData::snapshot_from(driver_, stream_, kernel_.model().name(), *args, arguments_);
  if (!data) kernel_.raise(ErrorCode::bad_arguments, data.error());
  job.data = std::move(*data);
}

void Resolver::start_behind() {
  if (!behind_) return;
  tuner_.background().add(std::move(*behind_));
  behind_.reset();
}

Resolver::~Resolver() {
  if (behind_) tuner_.end_tuning(key_->sha256);  // the launch failed
}

/// Tunes within the first call's budget. Nothing: the default config serves, and why_default_ says why.
std::optional<Resolver::Answer> Resolver::tune(const PlanKey& key, const UseMeanwhile& use_meanwhile) {
  const auto budget = tuner_.settings().options.first_call_budget;
  const bool waits = tuner_.while_tuned.load(std::memory_order_relaxed) == WhileTuned::wait;
  if (budget.count() == 0) {
    why_default_ = "first_call_budget is 0";
    return std::nullopt;
  }
  if (!tuner_.begin_tuning(key_->sha256)) {
    // Another problem of the same bucket, or the same kernel defined twice.
    if (waits && tuner_.wait_tuned(key_->sha256, Clock::now() + budget)) {
      if (auto winner = services_->store().find_winner(key_->sha256); winner && *winner)
        return accept(**winner, "tuned by another thread");
    }
    tuned_elsewhere_ = true;
    why_default_ = "another thread is tuning this key";
    return std::nullopt;
  }
  struct Ended {
    TunerState& tuner;
    const std::string& key;
    ~Ended() { tuner.end_tuning(key); }
  } ended{tuner_, key_->sha256};

  stand_by(key, use_meanwhile);
  const auto deadline = Clock::now() + budget;
  tune::Request request;
  request.instance = &*instance_;
  request.key = *key_;
  request.budget = budget;
  request.force = track_ == Track::retune;
  request.cancelled = [this] { return !tuner_.may_tune(); };
  request.context = context_for_measuring();
  request.more_devices = devices_beside();
  for (const auto& bundle : tuner_.bundles())
    if (auto shipped = bundle.store->find_compatible(*key_); shipped && *shipped)
      if (auto config = space::parse_values((*shipped)->config)) request.first.push_back(std::move(*config));
  CallerData data;
  const bool has_data = wants_data();  // without, the stream is not waited for
  auto config = instance_->default_config();
  auto args =
      config ? instance_->args(*config, {1, 0, 0, 1}) : Result<std::vector<space::ArgSpec>>(Failure{config.error()});
  if (has_data && args) {
    auto exported = CallerData::export_from(driver_, stream_, kernel_.model().name(), *args, arguments_,
                                            services_->options().in_process);
    if (!exported) kernel_.raise(ErrorCode::bad_arguments, exported.error());
    data = std::move(*exported);
    request.data = data.sources();
    request.scalars = data.scalars();
  }
  tune::Outcome outcome = tune::tune(*services_, request);
  for (auto claim_at = Clock::now() + kClaimAgain; outcome.outcome == "held" && waits;) {
    // Ranks of one job: one tunes, the others wait and read the same row.
    if (Clock::now() >= deadline || !tuner_.may_tune()) break;
    std::this_thread::sleep_for(std::min(kPollWinner, until(deadline)));
    if (auto winner = services_->store().find_winner(key_->sha256); winner && *winner)
      return accept(**winner, "tuned by another process");
    if (Clock::now() < claim_at || until(deadline).count() <= 0) continue;
    claim_at = Clock::now() + kClaimAgain;
    request.budget = until(deadline);
    outcome = tune::tune(*services_, request);
  }
  tuner_.trials.fetch_add(outcome.trials, std::memory_order_relaxed);
  tuner_.compilations.fetch_add(outcome.compilations, std::memory_order_relaxed);
  tuned_elsewhere_ = outcome.outcome == "held";
  tuner_.log().info("tuned", kernel_.model().name(),
                    outcome.outcome + ": " + std::to_string(outcome.trials) + " trials" +
                        (outcome.note.empty() ? "" : "; " + outcome.note));
  if (!outcome.winner) {
    why_default_ = "tuning ended in " + outcome.outcome + (outcome.note.empty() ? "" : ": " + outcome.note);
    if (!tuned_elsewhere_) tuner_.log().warning("tuning_failed", kernel_.model().name(), why_default_, key_->sha256);
    return std::nullopt;
  }
  return tuned_answer(outcome);
}

std::optional<Resolver::Answer> Resolver::tuned_answer(const tune::Outcome& outcome) {
  if (outcome.outcome == "answered") return accept(*outcome.winner, "stored");
  auto answer = accept(*outcome.winner, "");
  if (!answer) return answer;
  char why[160];
  std::snprintf(why, sizeof why, "tuned in this process (%s): %d trials in %.1f s", outcome.outcome.c_str(),
                outcome.trials, outcome.wall_ms / 1000);
  answer->choice.source = Choice::Source::tuned;
  answer->choice.rule = "tuned";
  answer->choice.why = why;
  return answer;
}

}  // namespace jitune::runtime
