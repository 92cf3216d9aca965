#include <algorithm>
#include <utility>

#include "gpu/driver.hpp"
#include "runtime/kernel_state.hpp"
#include "runtime/nearest.hpp"
#include "runtime/resolver.hpp"
#include "tune/unfinished.hpp"

namespace jitune::runtime {

Resolver::Resolver(KernelState& kernel, const gpu::Driver& driver, CUstream stream, const Problem& problem,
                   std::span<const void* const> arguments, bool may_tune, bool capturing)
    : kernel_(kernel),
      tuner_(*kernel.tuner_),
      services_(tuner_.services()),
      driver_(driver),
      stream_(stream),
      problem_(problem),
      arguments_(arguments),
      may_tune_(may_tune),
      capturing_(capturing),
      track_(kernel.track_of(problem)) {
  if (services_ == nullptr)
    kernel.raise(ErrorCode::lifetime, "it is used after its Tuner was destroyed; keep the Tuner longer");
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

std::unique_ptr<Plan> Resolver::resolve(const PlanKey& key, const UseMeanwhile& use_meanwhile) {
  bind();
  if (!tuner_.settings().capture.empty()) capture_launch();
  std::optional<Answer> answer;
  if (track_ == Track::heuristic) {
    why_default_ = "the track is heuristic";
  } else if (const auto given = kernel_.given_config(problem_); !given.empty()) {
    answer = given_answer(given);
  } else {
    answer = look_up();
    (answer ? tuner_.hits : tuner_.misses).fetch_add(1, std::memory_order_relaxed);
    const bool wanted = track_ == Track::retune ? !answer || answer->choice.source != Choice::Source::pinned
                                                : track_ == Track::tune && !answer;
    const bool may_tune = may_tune_ && !capturing_ && tuner_.may_tune();
    if (wanted && may_tune) {
      if (auto tuned = tune(key, use_meanwhile)) answer = std::move(tuned);
    }
    if (track_ == Track::background && may_tune && (!answer || was_cut_short(*answer))) tune_behind(answer.has_value());
  }
  return choose(key, std::move(answer));
}

/// A config by hand, completed by the default one; a pinned winner goes before it.
Resolver::Answer Resolver::given_answer(const space::Config& given) {
  if (auto winner = services_->store().find_winner(key_->sha256); winner && *winner && (*winner)->pinned)
    if (auto answer = accept(**winner, "pinned, before the config given by hand"); answer) return std::move(*answer);
  Answer answer;
  if (auto config = instance_->default_config()) answer.config = std::move(*config);
  for (const auto& [name, value] : given) answer.config[name] = value;
  answer.choice = {Choice::Source::given, space::canonical(answer.config), 0, 0, "given by hand", "given"};
  if (const auto wrong = instance_->reject(answer.config))
    kernel_.raise(ErrorCode::no_runnable_config, "the config given by hand, " + answer.choice.config +
                                                     ", is not possible for this problem: " + *wrong);
  return answer;
}

/// Whether the study of a winner of this very key left something to try: it goes on behind the launches.
bool Resolver::was_cut_short(const Answer& answer) {
  return answer.choice.rule == "winner" && tune::is_unfinished(services_->store(), *key_, *instance_);
}

std::unique_ptr<Plan> Resolver::choose(const PlanKey& key, std::optional<Answer> answer) {
  if (answer && answer->choice.source == Choice::Source::given) return load(key, std::move(*answer));
  if (auto plan = answer ? try_load(key, std::move(*answer)) : nullptr) return plan;
  if (auto plan = track_ == Track::heuristic ? nullptr : nearest(key)) return plan;
  if (standby_ != nullptr) {
    standby_->explain(why_default_, tuned_elsewhere_);
    return std::move(standby_);
  }
  return load(key, default_answer(why_default_));
}

/// The plan of a config that is not the last resort; null, having said why, when it can't be used after all.
std::unique_ptr<Plan> Resolver::try_load(const PlanKey& key, Answer answer) {
  std::unique_ptr<Plan> plan;
  const std::string trouble = load_into(key, answer, plan);
  if (plan != nullptr) return plan;
  why_default_ = "config " + answer.choice.config + " can't be used: " + trouble;
  fallback_ = why_default_;
  tuner_.fallbacks.fetch_add(1, std::memory_order_relaxed);
  tuner_.log().warning("winner_unusable", kernel_.model().name(), why_default_ + "; another one is used", key_->sha256);
  return nullptr;
}

/// The winner of the nearest problem that was tuned, where its config is possible for this one too.
std::unique_ptr<Plan> Resolver::nearest(const PlanKey& key) {
  auto related = services_->store().find_related(*key_);
  if (!related) return nullptr;
  for (const auto& bundle : tuner_.bundles())
    if (auto shipped = bundle.store->find_related(*key_))
      related->insert(related->end(), std::make_move_iterator(shipped->begin()),
                      std::make_move_iterator(shipped->end()));
  const bool any_nvrtc = !tuner_.settings().options.strict &&
                         (track_ == Track::lookup || track_ == Track::background || key_->nvrtc.empty());
  for (const auto& row : nearest_first(std::move(*related), *key_, instance_->bucketed_problem(), any_nvrtc)) {
    auto config = space::parse_values(row.winner->config);
    if (!config || instance_->reject(*config)) continue;
    Answer answer;
    answer.config = std::move(*config);
    answer.choice = {Choice::Source::stored,
                     row.winner->config,
                     0,
                     0,
                     "the winner of the nearest tuned problem, " + row.key.problem + "; " + why_default_,
                     "nearest"};
    answer.is_miss = true;
    answer.provisional = tuned_elsewhere_;
    std::unique_ptr<Plan> plan;
    const std::string trouble = load_into(key, answer, plan);
    if (plan != nullptr) return plan;
    tuner_.log().debug("nearest_unusable", kernel_.model().name(), trouble);
    if (capturing_) break;  // its cubin is not at hand; the default config's may be
  }
  return nullptr;
}

/// The stored answer, if the track allows it to serve.
std::optional<Resolver::Answer> Resolver::look_up() {
  auto& store = services_->store();
  auto winner = store.find_winner(key_->sha256);
  if (winner && *winner && reasons_) return accept(**winner, reasons_->found, Choice::Source::tuned);
  if (winner && *winner) return accept(**winner, "stored");
  if (!winner) tuner_.log().warning("lookup_failed", kernel_.model().name(), winner.error(), key_->sha256);
  for (const auto& bundle : tuner_.bundles())
    if (auto shipped = bundle.store->find_winner(key_->sha256); shipped && *shipped)
      if (auto answer = accept(**shipped, "from " + bundle.path, Choice::Source::bundle)) return answer;
  if (auto answer = look_up_compatible()) return answer;
  // A launch is told at once, later ones of this problem are counted; prepare and choice leave a miss of no launches.
  auto miss = std::make_shared<Miss>(
      Miss{*key_, space::canonical(instance_->problem()), instance_->device().name, arguments_.empty() ? 0 : 1});
  if (auto told = store.record_miss(*key_, miss->problem, miss->device, kernel_.definition_text(), miss->told); !told) {
    tuner_.log().debug("miss_not_recorded", kernel_.model().name(), told.error());
    miss->told = 0;
  }
  miss_ = std::move(miss);
  why_default_ = reasons_ ? reasons_->no_winner : "no winner is stored for this problem";
  return std::nullopt;
}

/// A winner found with another NVRTC was verified then: good enough to serve, not to end the wish to tune.
std::optional<Resolver::Answer> Resolver::look_up_compatible() {
  const bool may_serve = track_ == Track::lookup || track_ == Track::background || key_->nvrtc.empty();
  if (tuner_.settings().options.strict || !may_serve) return std::nullopt;
  const auto why = [&](const store::WinnerRow& winner) {
    return "compatible: found with NVRTC " + winner.nvrtc +
           (key_->nvrtc.empty() ? ", none is installed here" : ", here is " + key_->nvrtc);
  };
  auto stored = services_->store().find_compatible(*key_);
  if (stored && *stored) return accept(**stored, why(**stored));
  for (const auto& bundle : tuner_.bundles())
    if (auto shipped = bundle.store->find_compatible(*key_); shipped && *shipped)
      if (auto answer = accept(**shipped, why(**shipped) + ", from " + bundle.path, Choice::Source::bundle))
        return answer;
  return std::nullopt;
}

/// Checks a stored winner against today's exact problem and device.
std::optional<Resolver::Answer> Resolver::accept(const store::WinnerRow& winner, std::string why,
                                                 Choice::Source source) {
  auto config = space::parse_values(winner.config);
  const std::string wrong = !config ? config.error() : instance_->reject(*config).value_or("");
  if (!wrong.empty()) return next_best("the winner " + winner.config + " does not fit this problem: " + wrong);
  Answer answer;
  answer.config = std::move(*config);
  answer.artifact = winner.artifact;
  const char* rule = source == Choice::Source::bundle ? "bundle" : source == Choice::Source::tuned ? "tuned" : "winner";
  answer.choice = {winner.pinned ? Choice::Source::pinned : source,
                   winner.config,
                   winner.median_us,
                   winner.default_us,
                   std::move(why),
                   winner.pinned                 ? "pinned"
                   : winner.nvrtc == key_->nvrtc ? rule
                                                 : "compatible"};
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
    answer.choice = {Choice::Source::stored,
                     trial.config,
                     trial.median_us,
                     trial.default_us,
                     "the fastest verified config that fits; " + why_not,
                     "next_best"};
    return answer;
  }
  return std::nullopt;
}

Resolver::Answer Resolver::default_answer(std::string why) {
  auto config = instance_->default_config();
  if (!config) kernel_.raise(ErrorCode::no_runnable_config, config.error());
  Answer answer;
  answer.choice = {Choice::Source::default_config,
                   space::canonical(*config),
                   0,
                   0,
                   std::move(why),
                   track_ == Track::heuristic ? "heuristic" : "default"};
  answer.config = std::move(*config);
  answer.provisional = tuned_elsewhere_;
  answer.is_miss = miss_ != nullptr;
  return answer;
}

}  // namespace jitune::runtime
