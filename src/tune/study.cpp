#include "tune/study.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/hash.hpp"

namespace jitune::tune {
namespace {

using measure::TrialStatus;

constexpr double kManyConfigs = 2000;  // more are hardly tried in one study
constexpr double kExploreShare = 0.9;  // of the budget; the rest is for the rematch
constexpr std::chrono::milliseconds kLookForCancel{50};
constexpr const char* kLeaseLost = "another process has taken the key over: there was no progress here for too long";
constexpr space::KernelFacts kAnyFacts{1, 0, 0, 1};
constexpr std::chrono::milliseconds kLeaseWithoutBudget{600'000};

}  // namespace

CompileJob utility_job(const std::string& arch, const std::string& nvrtc_build) {
  CompileJob job;
  job.kernel = "jitune utility kernels";
  job.spec.source_text = measure::utility_source();
  job.spec.source_name = "jitune_utility.cu";
  job.spec.entry = "jitune_fill";  // any one of them: the worker finds them all by name
  job.spec.arch = arch;
  job.source.sha256 = sha256_hex(job.spec.source_text);
  job.build = key::make_build_key(job.source, job.spec, {}, nvrtc_build);
  return job;
}

Study::Study(Services& services, const Request& request)
    : services_(services),
      request_(request),
      places_(places_of(services, request)),
      is_representative_(!places_.front().text.empty()),
      instance_(places_.front().instance) {
  explore_until_ = request_.budget.count() > 0
                       ? start_ + std::chrono::duration_cast<Clock::duration>(request_.budget * kExploreShare)
                       : Clock::time_point::max();
  lanes_.set_look([this] { (void)was_cancelled(); });
}

Study::~Study() {
  lanes_.set_wake({});
  first_.reset();
  rest_.reset();
  give_up_ = true;
  for (size_t i = 0; i < lanes_.size(); ++i)
    if (!lanes_.is_idle(i)) lanes_[i].measurer->cancel();
  lanes_.stop();
  for (size_t i = 0; i < lanes_.size(); ++i)
    if (lanes_[i].held) lanes_[i].measurer->end();
  if (!lease_.holder.empty()) (void)services_.store().release(lease_);
}

/// Ends the study without a decision.
bool Study::fail(std::string outcome, std::string note) {
  const bool cancelled = was_cancelled();
  outcome_.outcome = cancelled ? "cancelled" : std::move(outcome);
  outcome_.note = cancelled ? (lease_lost_ ? kLeaseLost : "") : std::move(note);
  outcome_.wall_ms = elapsed_ms();
  outcome_.measure_ms = lanes_.busy_ms();
  if (study_ != 0) {
    write_rows();
    (void)services_.store().end_study(study_, lease_, {outcome_.outcome, outcome_.note}, std::nullopt);
    lease_ = {};
  }
  return false;
}

bool Study::claim() {
  const auto budget = request_.budget.count() > 0 ? request_.budget : kLeaseWithoutBudget;
  auto claim = services_.store().claim(request_.key, budget, request_.force || request_.resume);
  if (!claim) return fail("error", "the key could not be claimed in the database: " + claim.error());
  if (claim->state == store::Claim::State::held)
    return fail("held", "another process is tuning this key: " + claim->holder_text);
  if (claim->state == store::Claim::State::answered) {
    auto winner = services_.store().find_winner(request_.key.sha256);
    if (winner) outcome_.winner = std::move(*winner);
    return fail("answered", "a winner is stored already");
  }
  lease_ = claim->lease;
  return true;
}

bool Study::prepare() {
  auto compiler = services_.compiler();
  if (!compiler) return fail("error", compiler.error());
  auto source = services_.source_hash(instance_);
  if (!source) return fail("error", source.error());
  compiler_ = *compiler;
  source_ = std::move(*source);
  compilations_before_ = compiler_->compilations();
  if (auto open = open_lanes(); !open) return fail("error", open.error());

  auto default_config = instance_.default_config();
  std::string default_trouble = default_config ? refused_at(*default_config) : default_config.error();
  if (default_trouble.empty()) default_config_ = std::move(*default_config);

  facts_needed_ = instance_.needs_kernel_facts();
  read_history();
  if (auto ready = prepare_search(); !ready) return fail("error", ready.error());

  const measure::Policy& policy = services_.options().policy;
  early_stop_.emplace(measure::EarlyStop::Rules{
      .fixed = policy.margins,
      .lost_best = policy.lost_best,
      .looks = policy.max_samples,
      .configs =
          strategy_->total() > 0 ? std::min(static_cast<double>(strategy_->total()), kManyConfigs) : kManyConfigs});
  // Making a precompiled header delays one result by about a half. It is the default config's only where there is no
  // other worker to do it, for everything waits for that.
  const bool many = instance_.space().list(4).size() == 4;
  first_ = std::make_unique<Compiler::Stream>(*compiler_, many && compiler_->width() == 1);
  rest_ = std::make_unique<Compiler::Stream>(*compiler_, many);
  compiler_->warm_up(compile_width());
  first_->submit(utility_job(instance_.device().arch(), compiler_->nvrtc().build));
  if (!submit_reference()) return false;
  if (default_config_) {
    auto job = make_job(instance_, *default_config_, source_, compiler_->nvrtc().build);
    if (job)
      first_->submit(std::move(*job));
    else
      default_trouble = job.error();
  }
  if (!default_trouble.empty()) {
    outcome_.note = "no default config: " + default_trouble;
    services_.log().warning("no_default_config", instance_.model().name(), default_trouble, request_.key.sha256);
  }

  store::StudyRow row;
  row.strategy = strategy_->name();
  row.seed = request_.seed;
  row.budget_ms = request_.budget.count();
  row.space = instance_.space_definition();
  row.default_config = default_config_ ? space::canonical(*default_config_) : "{}";
  row.device = instance_.device();
  auto study = services_.store().begin_study(request_.key, row);
  if (!study) return fail("error", "the study could not be written to the database: " + study.error());
  study_ = *study;
  refill();  // the workers have something to do while the default config is measured
  return true;
}

/// Trials of earlier studies of this key: what was tried need not be tried again, unless everything is to be.
void Study::read_history() {
  if (request_.force) return;
  auto rows = services_.store().trials_of(request_.key.sha256);
  if (!rows) return;
  for (auto& row : *rows) {
    // A deadline shorter than the user's is no lasting verdict: it is in no table of failures, and gets another chance.
    if (row.status == measure::to_string(TrialStatus::compile_timeout)) {
      const auto known = services_.store().known_failure(row.build_sha256, "");
      if (known && !*known) continue;
    }
    if (request_.search.measure_all && row.status == measure::to_string(TrialStatus::skipped)) continue;
    auto config = space::parse_values(row.config);
    if (config && !instance_.reject(*config) && refused_at(*config).empty())
      history_.insert_or_assign(row.config, std::move(row));
  }
}

/// The problems at which configs are measured. An entry of tune_at that comes to nothing is told once.
std::vector<Study::Place> Study::places_of(Services& services, const Request& request) {
  auto found = request.instance->representatives();
  for (const std::string& why : found.left_out)
    services.log().warning("tune_at", request.instance->model().name(), why, request.key.sha256 + why);
  std::vector<Place> places;
  for (auto& each : found.problems)
    places.push_back({std::move(each.instance), each.weight, space::short_text(each.set)});
  if (places.empty()) places.push_back({*request.instance, 1, ""});
  return places;
}

/// Why a config that is possible at the first place is not at another one; "" where it is.
std::string Study::refused_at(const space::Config& config) const {
  for (size_t i = 1; i < places_.size(); ++i)
    if (const auto why = places_[i].instance.reject(config)) return "not possible at " + places_[i].text + ": " + *why;
  return "";
}

/// `mean over rows=4096 (2), rows=3000 (1)`; "" for a problem of its own.
std::string Study::places_text() const {
  std::string text;
  for (const Place& place : places_) {
    std::array<char, 32> weight{};
    std::snprintf(weight.data(), weight.size(), " (%g)", place.weight);
    text += (text.empty() ? "" : ", ") + place.text + weight.data();
  }
  return is_representative_ ? "mean over " + text : "";
}

bool Study::out_of_time() const {
  return Clock::now() >= explore_until_;
}

bool Study::was_cancelled() {
  // Without the lease another process tunes the key, and what is found here would be dropped.
  if (!cancelled_ && (lease_lost_ || (request_.cancelled && request_.cancelled()))) cancelled_ = give_up_ = true;
  if (cancelled_ && outcome_.outcome.empty()) outcome_.outcome = "cancelled";
  if (lease_lost_) outcome_.note = kLeaseLost;
  return cancelled_;
}

/// As Stream::next, but a study that was cancelled does not wait.
std::optional<Compiled> Study::next(Compiler::Stream& stream, Clock::time_point deadline) {
  while (!was_cancelled()) {
    const auto look_at = std::min(deadline, Clock::now() + kLookForCancel);
    if (auto compiled = stream.next(look_at)) return compiled;
    if (Clock::now() >= deadline || stream.pending() == 0) break;
  }
  return std::nullopt;
}

int Study::compile_width() const {
  const int most = request_.rationing.compile_width;
  return most > 0 ? std::min(most, compiler_->width()) : compiler_->width();
}

Result<measure::Setup> Study::make_setup(const space::Config& config, const Compiled& utility) const {
  measure::Setup setup;
  setup.device_uuid = instance_.device().uuid;
  for (const Place& place : places_) {
    auto args = args_of(place, config, kAnyFacts);  // only scratch sizes depend on facts, and each trial brings its own
    if (!args) return args.failure();
    if (&place == &places_.front())
      setup.args = std::move(*args);
    else
      setup.also.push_back({place.text, place.weight, std::move(*args), 0});
  }
  setup.text = places_.front().text;
  setup.weight = places_.front().weight;
  if (!is_representative_) setup.data = request_.data;
  setup.seed = request_.seed;
  setup.policy = services_.options().policy;
  setup.utility_cubin = utility.artifact.cubin;
  setup.toolkit_dir = std::filesystem::path(compiler_->nvrtc().path).parent_path().string();
  return setup;
}

bool Study::measure_default() {
  // Both are there within one compile deadline of the first request; a retry after a crash may double it.
  const auto patience = Clock::now() + 2 * services_.options().compile_timeout + std::chrono::seconds(60);
  std::optional<Compiled> utility, standard, reference;
  while (auto compiled = next(*first_, patience)) {
    if (compiled->job.spec.source_name == "jitune_utility.cu")
      utility = std::move(compiled);
    else if (compiled->job.build.sha256 == reference_build_)
      reference = std::move(compiled);
    else
      standard = std::move(compiled);
  }
  if (!utility || utility->artifact.status != "ok")
    return fail("error", "the measuring worker's own kernels could not be compiled: " +
                             (utility ? utility->artifact.log : "no answer from the compile workers"));
  const bool runnable = standard && standard->artifact.status == "ok";
  const auto sizes_from = any_config();
  if (!sizes_from) return fail("no_valid_config", "no config satisfies the constraints; " + outcome_.note);
  auto setup = make_setup(*sizes_from, *utility);
  if (!setup) return fail("error", setup.error());
  if (!begin_lanes(*setup)) return false;
  if (!run_reference(std::move(reference)) || !run_host_reference()) return false;
  if (standard) {
    handle(lanes_[0], std::move(*standard));
    lanes_.finish(0);
    write_rows();
  }
  if (!runnable && default_config_)
    services_.log().warning("default_fails", instance_.model().name(),
                            trusted_reference_
                                ? "the default config does not compile"
                                : "the default config does not compile; the first config that runs is the reference",
                            request_.key.sha256);
  return true;
}

/// Keeps the compile workers busy without compiling far ahead of what is measured.
void Study::refill() {
  const auto width = static_cast<size_t>(compile_width());
  // A search that learns is asked no further ahead than the workers need to stay busy.
  const bool rationed = request_.rationing.compile_width > 0;  // what is in flight runs at a time
  const size_t wanted = rationed ? width : strategy_->adaptive() ? width + 2 : 3 * width;
  while (!space_used_up_ && rest_->pending() < wanted) {
    const size_t room = wanted - rest_->pending();
    auto batch = strategy_->ask(request_.search.trials > 0 ? std::min(room, trials_left()) : room);
    asked_ += batch.size();
    if (batch.empty()) space_used_up_ = true;
    for (auto& config : batch) {
      const std::string refused = refused_at(config);
      auto job = make_job(instance_, config, source_, compiler_->nvrtc().build);
      if (!refused.empty()) {
        store::TrialRow row;
        row.config = space::canonical(config);
        row.status = measure::to_string(TrialStatus::skipped);
        row.error = refused;
        add_row(std::move(row));
      } else if (job) {
        rest_->submit(std::move(*job));
      } else {
        store::TrialRow row;
        row.config = space::canonical(config);
        row.status = measure::to_string(TrialStatus::compile_error);
        row.error = job.error();
        add_row(std::move(row));
      }
    }
  }
}

void Study::explore() {
  lanes_.set_wake([this] { rest_->wake(); });
  for (lanes_.collect(); !was_cancelled() && lanes_left(); lanes_.collect()) {
    if (no_workers_) {  // the rest would fare alike, and nothing would be known about any of it
      outcome_.outcome = "error";
      break;
    }
    if (!meter_.used_up(elapsed_ms() / 1000).empty()) break;
    if (out_of_time() && (rest_->pending() > 0 || !queue_.empty() || !space_used_up_)) {
      outcome_.outcome = "budget";
      break;
    }
    if (!step()) break;
  }
  lanes_.set_wake({});
  rest_.reset();  // cancels what is still being compiled
  drain(outcome_.outcome.empty());
  queue_.clear();
  if (outcome_.outcome.empty() || outcome_.outcome == "budget") give_second_chances();
}

}  // namespace jitune::tune
