#include "tune/study.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/hash.hpp"

namespace jitune::tune {
namespace {

using measure::TrialStatus;

constexpr double kExploreShare = 0.9;  // of the budget; the rest is for the rematch
constexpr int kRematchRounds = 9;
constexpr size_t kMaxFinalists = 8;
constexpr double kFinalistMargin = 1.03;  // finalists are within 3 % of the best
constexpr space::KernelFacts kAnyFacts{1, 0, 0, 1};
constexpr std::chrono::milliseconds kLeaseWithoutBudget{600'000};
constexpr std::chrono::milliseconds kFirstRunLimit{30'000};  // before any time is known

TrialStatus from_compile(const std::string& status) {
  if (status == "timeout") return TrialStatus::compile_timeout;
  if (status == "crash") return TrialStatus::compile_crash;
  return TrialStatus::compile_error;
}

bool is_violent(TrialStatus status) {
  return status == TrialStatus::run_timeout || status == TrialStatus::run_crash;
}

store::TrialRow row_of(const Compiled& compiled) {
  store::TrialRow row;
  row.config = compiled.job.build.config;
  row.build_sha256 = compiled.job.build.sha256;
  return row;
}

/// The first line of a compiler's log that says what is wrong.
std::string first_error(const std::string& log) {
  size_t begin = 0;
  while (begin < log.size()) {
    const size_t end = std::min(log.find('\n', begin), log.size());
    const std::string line = log.substr(begin, end - begin);
    if (line.find("error") != std::string::npos) return line;
    begin = end + 1;
  }
  return log.substr(0, std::min<size_t>(log.find('\n'), 400));
}

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
    : services_(services), request_(request), instance_(*request.instance) {
  explore_until_ = request_.budget.count() > 0
                       ? start_ + std::chrono::duration_cast<Clock::duration>(request_.budget * kExploreShare)
                       : Clock::time_point::max();
}

Study::~Study() {
  first_.reset();
  rest_.reset();
  if (measuring_) measurer_->end();
  if (!lease_.holder.empty()) (void)services_.store().release(lease_);
}

/// Ends the study without a decision.
bool Study::fail(std::string outcome, std::string note) {
  outcome_.outcome = std::move(outcome);
  outcome_.note = std::move(note);
  outcome_.wall_ms = elapsed_ms();
  if (study_ != 0) {
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
  auto measurer = services_.measurer(instance_.device().uuid);
  if (!measurer) return fail("error", measurer.error());
  auto source = services_.source_hash(instance_);
  if (!source) return fail("error", source.error());
  compiler_ = *compiler;
  measurer_ = *measurer;
  source_ = std::move(*source);
  compilations_before_ = compiler_->compilations();
  measurer_->warm_up();  // its context takes longer than the first compilation

  auto default_config = instance_.default_config();
  std::string default_trouble;
  if (default_config)
    default_config_ = std::move(*default_config);
  else
    default_trouble = default_config.error();

  facts_needed_ = instance_.launch_pattern().find("kernel.") != std::string::npos;
  read_history();
  std::vector<space::Config> known;
  for (const auto& [text, row] : history_)
    if (auto config = space::parse_values(text)) known.push_back(std::move(*config));
  if (default_config_) known.push_back(*default_config_);
  strategy_ = search::make_strategy(instance_.space(), request_.seed, known);

  first_ = std::make_unique<Compiler::Stream>(*compiler_);
  rest_ = std::make_unique<Compiler::Stream>(*compiler_);
  compiler_->warm_up(compiler_->width());
  first_->submit(utility_job(instance_.device().arch(), compiler_->nvrtc().build));
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
    auto config = space::parse_values(row.config);
    if (config && !instance_.reject(*config)) history_.insert_or_assign(row.config, std::move(row));
  }
}

bool Study::out_of_time() const {
  return Clock::now() >= explore_until_;
}

bool Study::was_cancelled() {
  if (outcome_.outcome.empty() && request_.cancelled && request_.cancelled()) outcome_.outcome = "cancelled";
  return outcome_.outcome == "cancelled";
}

Result<std::vector<space::ArgSpec>> Study::args_of(const space::Config& config, const space::KernelFacts& facts) const {
  auto args = instance_.args(config, facts);
  if (!args) return args;
  for (const auto& [index, bytes] : request_.scalars)
    if (index < args->size()) (*args)[index].scalar = bytes;
  return args;
}

Result<measure::Setup> Study::make_setup(const space::Config& config, const Compiled& utility) const {
  auto args = args_of(config, kAnyFacts);  // only scratch sizes depend on facts, and each trial brings its own
  if (!args) return args.failure();
  measure::Setup setup;
  setup.device_uuid = instance_.device().uuid;
  setup.args = std::move(*args);
  setup.data = request_.data;
  setup.seed = request_.seed;
  setup.policy = services_.options().policy;
  setup.utility_cubin = utility.artifact.cubin;
  return setup;
}

Result<measure::Candidate> Study::make_candidate(const Compiled& compiled) {
  const auto& artifact = compiled.artifact;
  space::KernelFacts facts{artifact.regs, artifact.static_smem_bytes, artifact.local_bytes, 0};
  if (facts_needed_ && measuring_) {
    // The grid or a scratch size depends on occupancy, which only the driver knows: ask with a grid of its own choice.
    facts.max_blocks_per_sm = 1;
    auto geometry = instance_.geometry(compiled.job.config, facts);
    if (!geometry) return geometry.failure();
    auto real = measurer_->facts({artifact.cubin, artifact.lowered_name, *geometry});
    if (!real) return real.failure();
    facts = *real;
  }
  auto geometry = instance_.geometry(compiled.job.config, facts);
  if (!geometry) return geometry.failure();
  auto args = args_of(compiled.job.config, facts);
  if (!args) return args.failure();
  return measure::Candidate{artifact.cubin, artifact.lowered_name, *geometry, std::move(*args)};
}

bool Study::measure_default() {
  // Both are there within one compile deadline of the first request; a retry after a crash may double it.
  const auto patience = Clock::now() + 2 * services_.options().compile_timeout + std::chrono::seconds(60);
  std::optional<Compiled> utility, standard;
  while (auto compiled = first_->next(patience)) {
    if (compiled->job.spec.source_name == "jitune_utility.cu")
      utility = std::move(compiled);
    else
      standard = std::move(compiled);
  }
  if (!utility || utility->artifact.status != "ok")
    return fail("error", "the measuring worker's own kernels could not be compiled: " +
                             (utility ? utility->artifact.log : "no answer from the compile workers"));
  const bool runnable = standard && standard->artifact.status == "ok";
  space::Config sizes_from;
  if (default_config_) {
    sizes_from = *default_config_;
  } else {
    auto any = instance_.space().list(1);
    if (any.empty()) return fail("no_valid_config", "no config satisfies the constraints; " + outcome_.note);
    sizes_from = any.front();
  }
  auto setup = make_setup(sizes_from, *utility);
  if (!setup) return fail("error", setup.error());

  const auto started = Clock::now();
  const auto wait_until = request_.budget.count() > 0 ? explore_until_ : Clock::now() + std::chrono::minutes(10);
  const auto begun = measurer_->begin(*setup, wait_until);
  outcome_.measure_ms += ms_since(started);
  if (!begun.ok) return fail(begun.out_of_memory ? "out_of_memory" : "error", begun.error);
  measuring_ = true;
  if (standard) handle(std::move(*standard));
  if (!runnable && default_config_)
    services_.log().warning("default_fails", instance_.model().name(),
                            "the default config does not compile; the first config that runs is the reference",
                            request_.key.sha256);
  return true;
}

/// Keeps the compile workers busy without compiling far ahead of what is measured.
void Study::refill() {
  const size_t wanted = 3 * static_cast<size_t>(compiler_->width());
  while (!space_used_up_ && rest_->pending() < wanted) {
    auto batch = strategy_->ask(wanted - rest_->pending());
    if (batch.empty()) space_used_up_ = true;
    for (auto& config : batch) {
      auto job = make_job(instance_, config, source_, compiler_->nvrtc().build);
      if (job) {
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
  while (!was_cancelled() && measurer_->usable()) {
    refill();
    auto compiled = rest_->next(explore_until_);
    if (!compiled) {
      if (rest_->pending() > 0 || !space_used_up_) outcome_.outcome = "budget";
      break;
    }
    handle(std::move(*compiled));
    if (out_of_time() && (rest_->pending() > 0 || !space_used_up_)) {
      outcome_.outcome = "budget";
      break;
    }
  }
  rest_.reset();  // cancels what is still being compiled
  if (!measurer_->usable() && outcome_.outcome.empty()) {
    outcome_.outcome = "error";
    outcome_.note = measurer_->trouble();
  }
}

/// One compiled config: measured when it compiled, a failed trial otherwise.
void Study::handle(Compiled compiled) {
  if (compiled.not_run) {
    outcome_.note = compiled.artifact.log;
    return;
  }
  outcome_.compile_ms = elapsed_ms() - outcome_.measure_ms > 0 ? elapsed_ms() : outcome_.compile_ms;
  if (compiled.artifact.status != "ok") {
    auto row = row_of(compiled);
    row.status = measure::to_string(from_compile(compiled.artifact.status));
    row.error = first_error(compiled.artifact.log);
    row.wall_ms = compiled.from_store ? 0 : compiled.artifact.compile_ms;
    add_row(std::move(row));
    return;
  }
  run(std::move(compiled));
}

std::chrono::milliseconds Study::run_limit() const {
  if (best_us_ <= 0) return kFirstRunLimit;
  const double samples = services_.options().policy.max_samples;
  return std::chrono::milliseconds(static_cast<int64_t>(std::max(1000.0, 20 * samples * best_us_ / 1000)));
}

void Study::run(Compiled compiled) {
  auto& store = services_.store();
  if (auto known = store.known_failure(compiled.job.build.sha256, request_.key.problem);
      !request_.force && known && *known) {
    auto row = row_of(compiled);
    row.status = **known;
    row.error = "not tried again: it ended so before";
    add_row(std::move(row));
    return;
  }
  const auto started = Clock::now();
  auto candidate = make_candidate(compiled);
  if (!candidate) {
    auto row = row_of(compiled);
    row.status = measure::to_string(TrialStatus::launch_error);
    row.error = candidate.error();
    add_row(std::move(row));
    return;
  }
  const double bound = best_us_ > 0 ? best_us_ : std::numeric_limits<double>::infinity();
  const auto reply = has_reference_ ? measurer_->trial(*candidate, bound, run_limit())
                                    : measurer_->set_reference(*candidate, kFirstRunLimit);
  outcome_.measure_ms += ms_since(started);
  if (is_violent(reply.status) && measurer_->usable())
    (void)store.record_failure(compiled.job.build.sha256, request_.key.problem, measure::to_string(reply.status),
                               reply.error);
  note_reply(std::move(compiled), std::move(*candidate), reply);
}

void Study::note_reply(Compiled compiled, measure::Candidate candidate, const measure::TrialReply& reply) {
  auto row = row_of(compiled);
  const auto summary = measure::summarise(reply.samples_us);
  TrialStatus status = reply.status;
  std::string error = reply.error;
  if (status == TrialStatus::ok && summary.samples == 0) {
    status = TrialStatus::launch_error;
    error = "every sample was zero, negative or not a number";
  }
  row.status = measure::to_string(status);
  row.error = error;
  row.samples = summary.samples;
  row.min_us = summary.min_us;
  row.median_us = summary.median_us;
  row.mean_us = summary.mean_us;
  row.stddev_us = summary.stddev_us;
  row.max_us = summary.max_us;
  row.first_us = reply.first_us;
  row.clock_mhz = reply.clock_mhz;
  row.shared_bytes = candidate.geometry.shared_bytes;
  row.wall_ms = reply.wall_ms + (compiled.from_store ? 0 : compiled.artifact.compile_ms);
  if (const int threads = instance_.device().max_threads_per_sm; threads > 0)
    row.occupancy =
        std::min(1.0, static_cast<double>(candidate.geometry.threads()) * reply.facts.max_blocks_per_sm / threads);

  const bool is_default = default_config_ && compiled.job.config == *default_config_;
  strategy_->tell(compiled.job.config, {status == TrialStatus::ok, summary.median_us});
  if (status == TrialStatus::ok) {
    has_reference_ = true;
    if (is_default) {
      default_us_ = summary.median_us;
      default_good_ = good_.size();
    }
    if (best_us_ <= 0 || summary.median_us < best_us_) {
      best_us_ = summary.median_us;
      best_config_ = space::short_text(compiled.job.config);
    }
    good_.push_back({std::move(compiled), std::move(candidate), summary.median_us, true});
  }
  row.default_us = default_us_;
  add_row(std::move(row));
}

void Study::add_row(store::TrialRow row) {
  ++outcome_.trials;
  if (row.status == "ok")
    ++outcome_.ok;
  else if (row.status == "early_stopped")
    ++outcome_.early_stopped;
  else
    ++outcome_.failed;
  row.study = study_;
  if (auto added = services_.store().add_trial(study_, lease_, row); !added)
    services_.log().warning("store_write", instance_.model().name(), "a trial could not be stored: " + added.error(),
                            request_.key.sha256);
  if (request_.on_trial) request_.on_trial(row);
  report();
}

void Study::report() {
  if (!request_.on_progress) return;
  Progress progress;
  progress.total = strategy_->total() == 0 ? 0 : strategy_->total() + (default_config_ ? 1 : 0);
  progress.done = outcome_.trials;
  progress.failed = outcome_.failed;
  progress.early_stopped = outcome_.early_stopped;
  progress.compiling = rest_ ? static_cast<int>(rest_->pending()) : 0;
  progress.best_us = best_us_;
  progress.best_config = best_config_;
  progress.default_us = default_us_;
  progress.elapsed_ms = elapsed_ms();
  progress.budget_ms = static_cast<double>(request_.budget.count());
  request_.on_progress(progress);
}

/// Good configs of earlier studies compete again: their times then, scaled by how the default config has changed since,
/// only say which of them are worth it.
void Study::add_old_finalists() {
  std::vector<std::pair<double, const store::TrialRow*>> ranked;
  for (const auto& [text, row] : history_) {
    if (row.status != "ok" || row.median_us <= 0) continue;
    const double scale = default_us_ > 0 && row.default_us > 0 ? default_us_ / row.default_us : 1;
    const double estimate = row.median_us * scale;
    if (best_us_ <= 0 || estimate <= best_us_ * kFinalistMargin) ranked.emplace_back(estimate, &row);
  }
  std::sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  if (ranked.size() > kMaxFinalists / 2) ranked.resize(kMaxFinalists / 2);
  for (const auto& [estimate, row] : ranked) {
    auto config = space::parse_values(row->config);
    if (!config || (default_config_ && *config == *default_config_)) continue;
    auto job = make_job(instance_, *config, source_, compiler_->nvrtc().build);
    if (!job) continue;
    auto compiled = compiler_->compile(std::move(*job));
    if (compiled.artifact.status == "ok") run(std::move(compiled));  // checked and timed again like any other
  }
}

std::vector<size_t> Study::finalists() {
  std::vector<size_t> chosen;
  for (size_t i = 0; i < good_.size(); ++i)
    if (good_[i].median_us <= best_us_ * kFinalistMargin) chosen.push_back(i);
  std::sort(chosen.begin(), chosen.end(), [&](size_t a, size_t b) { return good_[a].median_us < good_[b].median_us; });
  if (chosen.size() > kMaxFinalists) chosen.resize(kMaxFinalists);
  if (default_good_ && std::find(chosen.begin(), chosen.end(), *default_good_) == chosen.end())
    chosen.push_back(*default_good_);
  // Canonical order, so that ties are settled alike in every study.
  std::sort(chosen.begin(), chosen.end(), [&](size_t a, size_t b) {
    return good_[a].compiled.job.build.config < good_[b].compiled.job.build.config;
  });
  return chosen;
}

store::WinnerRow Study::winner_row(const Good& good, double median_us, double default_us) const {
  store::WinnerRow winner;
  winner.key_sha256 = request_.key.sha256;
  winner.config = good.compiled.job.build.config;
  winner.artifact = good.compiled.artifact;
  winner.median_us = median_us;
  winner.default_us = default_us;
  winner.decided_at = unix_now();
  winner.study = study_;
  winner.nvrtc = request_.key.nvrtc;
  return winner;
}

void Study::rematch() {
  if (measurer_->usable() && outcome_.outcome != "cancelled") add_old_finalists();
  if (good_.empty()) return;
  const auto chosen = finalists();
  std::vector<std::vector<double>> series;
  int default_index = -1;
  double round_us = 0;
  for (size_t i = 0; i < chosen.size(); ++i) {
    if (default_good_ && chosen[i] == *default_good_) default_index = static_cast<int>(i);
    series.push_back({good_[chosen[i]].median_us});
    round_us += good_[chosen[i]].median_us;
  }
  if (chosen.size() > 1 && measurer_->usable()) {
    std::vector<measure::Candidate> candidates;
    for (const size_t index : chosen) candidates.push_back(good_[index].candidate);
    const auto limit =
        std::chrono::milliseconds(static_cast<int64_t>(std::max(5000.0, 20 * kRematchRounds * round_us / 1000)));
    const auto started = Clock::now();
    auto reply = measurer_->rematch(std::move(candidates), kRematchRounds, limit);
    outcome_.measure_ms += ms_since(started);
    if (reply.ok && reply.samples_us.size() == chosen.size())
      series = std::move(reply.samples_us);
    else
      services_.log().warning(
          "rematch_failed", instance_.model().name(),
          "the finalists could not be measured again (" + reply.error + "); decided by their first times",
          request_.key.sha256);
  }
  const int winner = measure::choose(series, default_index, services_.options().policy.tie);
  if (winner < 0) return;
  auto median = [&](int index) { return measure::summarise(series[static_cast<size_t>(index)]).median_us; };
  const double default_us = default_index >= 0 ? median(default_index) : 0;
  outcome_.winner = winner_row(good_[chosen[static_cast<size_t>(winner)]], median(winner), default_us);
  if (outcome_.outcome.empty()) outcome_.outcome = winner == default_index ? "default_kept" : "won";
}

void Study::publish() {
  outcome_.compilations = compiler_->compilations() - compilations_before_;
  if (outcome_.outcome.empty()) {
    outcome_.outcome = "no_valid_config";
    if (outcome_.note.empty())
      outcome_.note =
          outcome_.trials == 0 ? "no config satisfies the constraints" : "every config that was tried failed";
  }
  auto end = services_.store().end_study(study_, lease_, {outcome_.outcome, outcome_.note}, outcome_.winner);
  if (!end) {
    services_.log().warning("store_write", instance_.model().name(),
                            "the study's end could not be stored: " + end.error(), request_.key.sha256);
  } else {
    lease_ = {};
  }
  outcome_.wall_ms = elapsed_ms();
}

}  // namespace jitune::tune
