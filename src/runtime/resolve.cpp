#include <algorithm>
#include <cstdio>
#include <utility>

#include "gpu/driver.hpp"
#include "runtime/caller_data.hpp"
#include "runtime/kernel_state.hpp"
#include "tune/compiler.hpp"
#include "tune/tune.hpp"

namespace jitune::runtime {
namespace {

std::string microseconds(double us) {
  char text[48];
  std::snprintf(text, sizeof text, "%.2f us", us);
  return text;
}

/// Lets module loading happen while some stream is being captured.
class RelaxedCapture {
 public:
  RelaxedCapture(const gpu::Driver& driver, bool capturing) : driver_(driver), active_(capturing) {
    if (active_) driver_.cuThreadExchangeStreamCaptureMode(&mode_);
  }
  ~RelaxedCapture() {
    if (active_) driver_.cuThreadExchangeStreamCaptureMode(&mode_);
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const gpu::Driver& driver_;
  bool active_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace

Resolver::Resolver(KernelState& kernel, const gpu::Driver& driver, CUstream stream, const Problem& problem,
                   std::span<const void* const> arguments, bool may_tune)
    : kernel_(kernel),
      tuner_(*kernel.tuner_),
      services_(tuner_.services()),
      driver_(driver),
      stream_(stream),
      problem_(problem),
      arguments_(arguments),
      may_tune_(may_tune),
      track_(kernel.track_of(problem)) {
  if (services_ == nullptr)
    kernel.raise(ErrorCode::lifetime, "it is used after its Tuner was destroyed; keep the Tuner longer");
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  capturing_ = driver.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/// Binds the definition to this problem and the context's device, and computes the key.
void Resolver::bind() {
  CUdevice device = 0;
  if (const CUresult code = driver_.cuCtxGetDevice(&device); code != CUDA_SUCCESS)
    kernel_.raise(ErrorCode::launch_failed, driver_.describe("asking for the context's device", code));
  auto info = tuner_.device_of(device);
  if (!info) kernel_.raise(ErrorCode::launch_failed, info.error());
  auto instance = space::Instance::bind(kernel_.model_, kernel_.values_of(problem_), *info);
  if (!instance) kernel_.raise(ErrorCode::bad_problem, instance.error());
  instance_ = std::move(*instance);
  auto key = services_->tuning_key(*instance_);
  if (!key) kernel_.raise(ErrorCode::no_runnable_config, key.error());
  key_ = std::move(*key);
}

std::unique_ptr<Plan> Resolver::resolve(const PlanKey& key) {
  bind();
  std::optional<Answer> answer;
  if (track_ == Track::heuristic) {
    why_default_ = "the track is heuristic";
  } else {
    answer = look_up();
    (answer ? tuner_.hits : tuner_.misses).fetch_add(1, std::memory_order_relaxed);
    const bool wanted = track_ == Track::retune ? !answer || answer->choice.source != Choice::Source::pinned
                                                : track_ == Track::tune && !answer;
    if (wanted && may_tune_ && !capturing_) {
      if (auto tuned = tune()) answer = std::move(tuned);
    }
  }
  if (answer) {
    std::unique_ptr<Plan> plan;
    const std::string trouble = load_into(key, *answer, plan);
    if (plan) return plan;
    if (capturing_) kernel_.raise(ErrorCode::not_prepared, "the stream is being captured into a graph and " + trouble);
    tuner_.log().warning(
        "winner_unusable", kernel_.model().name(),
        "config " + answer->choice.config + " can't be used: " + trouble + "; the default config is used",
        key_->sha256);
    why_default_ = "the stored config can't be used: " + trouble;
  }
  return load(key, default_answer(why_default_));
}

/// The stored answer, if the track allows it to serve.
std::optional<Resolver::Answer> Resolver::look_up() {
  auto& store = services_->store();
  auto winner = store.find_winner(key_->sha256);
  if (winner && *winner) return accept(**winner, "stored");
  if (!winner) tuner_.log().warning("lookup_failed", kernel_.model().name(), winner.error(), key_->sha256);
  // A winner found with another NVRTC was verified then: good enough to serve, not to end the wish to tune.
  const bool may_serve = track_ == Track::lookup || key_->nvrtc.empty();
  if (!tuner_.settings().options.strict && may_serve) {
    auto compatible = store.find_compatible(*key_);
    if (compatible && *compatible) return accept(**compatible, "found with NVRTC " + (*compatible)->nvrtc);
  }
  // A launch is told at once, later ones of this problem are counted; prepare and choice leave a miss of no launches.
  auto miss = std::make_shared<Miss>(
      Miss{*key_, space::canonical(instance_->problem()), instance_->device().name, arguments_.empty() ? 0 : 1});
  if (auto told = store.record_miss(*key_, miss->problem, miss->device, kernel_.definition_text(), miss->told); !told) {
    tuner_.log().debug("miss_not_recorded", kernel_.model().name(), told.error());
    miss->told = 0;
  }
  miss_ = std::move(miss);
  why_default_ = "no winner is stored for this problem";
  return std::nullopt;
}

/// Checks a stored winner against today's exact problem and device.
std::optional<Resolver::Answer> Resolver::accept(const store::WinnerRow& winner, std::string why) {
  auto config = space::parse_values(winner.config);
  const std::string wrong = !config ? config.error() : instance_->reject(*config).value_or("");
  if (!wrong.empty()) return next_best("the winner " + winner.config + " does not fit this problem: " + wrong);
  Answer answer;
  answer.config = std::move(*config);
  answer.artifact = winner.artifact;
  answer.choice = {winner.pinned ? Choice::Source::pinned : Choice::Source::stored, winner.config, winner.median_us,
                   winner.default_us, std::move(why)};
  return answer;
}

/// A bucket's winner may be impossible for the exact problem: the fastest verified trial that is possible serves.
std::optional<Resolver::Answer> Resolver::next_best(const std::string& why_not) {
  why_default_ = why_not;
  auto trials = services_->store().trials_of(key_->sha256);
  if (!trials) return std::nullopt;
  std::erase_if(*trials, [](const store::TrialRow& trial) { return trial.status != "ok"; });
  std::sort(trials->begin(), trials->end(), [](const auto& a, const auto& b) { return a.median_us < b.median_us; });
  for (const auto& trial : *trials) {
    auto config = space::parse_values(trial.config);
    if (!config || instance_->reject(*config)) continue;
    Answer answer;
    answer.config = std::move(*config);
    answer.choice = {Choice::Source::stored, trial.config, trial.median_us, trial.default_us,
                     "the fastest verified config that fits; " + why_not};
    return answer;
  }
  return std::nullopt;
}

/// Tunes within the first call's budget. Nothing: the default config serves, and why_default_ says why.
std::optional<Resolver::Answer> Resolver::tune() {
  const auto budget = tuner_.settings().options.first_call_budget;
  if (budget.count() == 0) {
    why_default_ = "first_call_budget is 0";
    return std::nullopt;
  }
  if (!tuner_.begin_tuning(key_->sha256)) {
    tuned_elsewhere_ = true;
    why_default_ = "another thread is tuning this key";
    return std::nullopt;
  }
  struct Ended {
    TunerState& tuner;
    const std::string& key;
    ~Ended() { tuner.end_tuning(key); }
  } ended{tuner_, key_->sha256};

  tune::Request request;
  request.instance = &*instance_;
  request.key = *key_;
  request.budget = budget;
  request.force = track_ == Track::retune;
  request.cancelled = [this] { return !tuner_.is_open(); };
  CallerData data;
  if (!arguments_.empty()) {
    auto config = instance_->default_config();
    auto args =
        config ? instance_->args(*config, {1, 0, 0, 1}) : Result<std::vector<space::ArgSpec>>(Failure{config.error()});
    if (args) {
      auto exported = CallerData::export_from(driver_, stream_, *args, arguments_);
      if (!exported) kernel_.raise(ErrorCode::bad_arguments, exported.error());
      data = std::move(*exported);
      request.data = data.sources();
      request.scalars = data.scalars();
    }
  }
  auto outcome = tune::tune(*services_, request);
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
  if (outcome.outcome == "answered") return accept(*outcome.winner, "stored");
  auto answer = accept(*outcome.winner, "");
  if (!answer) return answer;
  char why[160];
  std::snprintf(why, sizeof why, "tuned in this process (%s): %d trials in %.1f s", outcome.outcome.c_str(),
                outcome.trials, outcome.wall_ms / 1000);
  answer->choice.source = Choice::Source::tuned;
  answer->choice.why = why;
  return answer;
}

Resolver::Answer Resolver::default_answer(std::string why) {
  auto config = instance_->default_config();
  if (!config) kernel_.raise(ErrorCode::no_runnable_config, config.error());
  Answer answer;
  answer.choice = {Choice::Source::default_config, space::canonical(*config), 0, 0, std::move(why)};
  answer.config = std::move(*config);
  answer.provisional = tuned_elsewhere_;
  return answer;
}

std::unique_ptr<Plan> Resolver::load(const PlanKey& key, Answer answer) {
  std::unique_ptr<Plan> plan;
  const std::string trouble = load_into(key, answer, plan);
  if (!plan)
    kernel_.raise(
        capturing_ ? ErrorCode::not_prepared : ErrorCode::no_runnable_config,
        (capturing_ ? "the stream is being captured into a graph and nothing is loaded for this problem; call "
                      "prepare before the capture: "
                    : "not even the default config can be used: ") +
            trouble);
  return plan;
}

/// Gets the artifact (compiling it where it is not at hand), loads it and makes the plan. Returns what went wrong.
std::string Resolver::load_into(const PlanKey& key, Answer& answer, std::unique_ptr<Plan>& plan) {
  auto& services = *services_;
  if (!answer.artifact || answer.artifact->cubin.empty()) {
    if (capturing_) return "its cubin is not in the database";
    auto compiler = services.compiler();
    if (!compiler) return compiler.error();
    auto source = services.source_hash(*instance_);
    if (!source) return source.error();
    auto job = tune::make_job(*instance_, answer.config, *source, (*compiler)->nvrtc().build);
    if (!job) return job.error();
    const int before = (*compiler)->compilations();
    auto compiled = (*compiler)->compile(std::move(*job));
    tuner_.compilations.fetch_add((*compiler)->compilations() - before, std::memory_order_relaxed);
    if (compiled.artifact.status != "ok")
      return "it does not compile (" + compiled.artifact.status + "):\n" + compiled.artifact.log;
    answer.artifact = std::move(compiled.artifact);
  }
  const auto& artifact = *answer.artifact;
  const RelaxedCapture relaxed(driver_, capturing_);
  Plan::Making making;
  making.key = key;
  making.driver = &driver_;
  auto loaded = kernel_.modules_.get(driver_, key.context, artifact);
  if (loaded.trouble) return loaded.trouble.message;
  making.module = loaded.module;

  space::KernelFacts facts{artifact.regs, artifact.static_smem_bytes, artifact.local_bytes, 1};
  auto geometry = instance_->geometry(answer.config, facts);
  if (!geometry) return geometry.error();
  if (auto trouble = kernel_.modules_.prepare(*making.module, *geometry)) return trouble.message;
  if (instance_->launch_pattern().find("kernel.") != std::string::npos) {
    // Occupancy is known only now; the grid may depend on it.
    if (auto trouble = making.module->facts(*geometry, facts)) return trouble.message;
    geometry = instance_->geometry(answer.config, facts);
    if (!geometry) return geometry.error();
  }
  auto args = instance_->args(answer.config, facts);
  if (!args) return args.error();
  making.geometry = *geometry;
  making.args = std::move(*args);
  if (!arguments_.empty()) {
    if (auto checked = check_buffers(driver_, making.args, arguments_); !checked)
      kernel_.raise(ErrorCode::bad_arguments, checked.error());
  }
  if (answer.choice.time_us > 0 && answer.choice.why.empty()) answer.choice.why = microseconds(answer.choice.time_us);
  making.choice = answer.choice;
  making.provisional = answer.provisional;
  if (answer.choice.source == Choice::Source::default_config) making.miss = miss_;
  making.track = may_tune_ && !capturing_ ? track_ : Track::lookup;
  auto made = std::make_unique<Plan>(std::move(making));
  if (!capturing_) {
    if (auto reserved = made->reserve(stream_); reserved.code != CUDA_SUCCESS)
      return driver_.describe(reserved.what, reserved.code);
  }
  const std::lock_guard lock(kernel_.mutex_);
  for (const auto& [name, bytes] : kernel_.symbols_)
    if (auto trouble = made->set_symbol(name, bytes.data(), bytes.size())) return trouble.message;
  plan = std::move(made);
  return "";
}

}  // namespace jitune::runtime
