#include <algorithm>
#include <utility>

#include "space/occupancy.hpp"
#include "tune/study.hpp"

namespace jitune::tune {
namespace {

using measure::TrialStatus;

TrialStatus from_compile(const std::string& status) {
  if (status == "timeout") return TrialStatus::compile_timeout;
  if (status == "crash") return TrialStatus::compile_crash;
  return TrialStatus::compile_error;
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

store::TrialRow Study::row_of(const Compiled& compiled) {
  store::TrialRow row;
  row.config = compiled.job.build.config;
  row.build_sha256 = compiled.job.build.sha256;
  return row;
}

Result<std::vector<space::ArgSpec>> Study::args_of(const Place& place, const space::Config& config,
                                                   const space::KernelFacts& facts) const {
  auto args = place.instance.args(config, facts);
  if (!args || is_representative_) return args;
  for (const auto& [index, bytes] : request_.scalars)
    if (index < args->size()) (*args)[index].scalar = bytes;
  return args;
}

Result<measure::Candidate> Study::make_candidate(const Compiled& compiled, Measurer* measurer) const {
  auto candidate = candidate_at(places_.front(), compiled, measurer);
  for (size_t i = 1; candidate && i < places_.size(); ++i) {
    auto other = candidate_at(places_[i], compiled, measurer);
    if (!other) return Failure{"at " + places_[i].text + ": " + other.error()};
    candidate->also.push_back(std::move(*other));
  }
  return candidate;
}

Result<measure::Candidate> Study::candidate_at(const Place& place, const Compiled& compiled, Measurer* measurer) const {
  const auto& artifact = compiled.artifact;
  space::KernelFacts facts{artifact.regs, artifact.static_smem_bytes, artifact.local_bytes, 0};
  if (facts_needed_) {
    // The grid or a scratch size depends on occupancy, which only the driver knows: ask with a grid of its own choice.
    facts.max_blocks_per_sm = 1;
    auto geometry = place.instance.geometry(compiled.job.config, facts);
    if (!geometry) return geometry.failure();
    auto real = measurer->facts({artifact.cubin, artifact.lowered_name, *geometry});
    if (!real) return real.failure();
    facts = *real;
  }
  auto geometry = place.instance.geometry(compiled.job.config, facts);
  if (!geometry) return geometry.failure();
  auto args = args_of(place, compiled.job.config, facts);
  if (!args) return args.failure();
  return measure::Candidate{artifact.cubin, artifact.lowered_name, *geometry, std::move(*args)};
}

/// One compiled config: sent to the lane when it compiled, a failed trial otherwise.
void Study::handle(Lane& lane, Compiled compiled) {
  if (compiled.not_run) {
    outcome_.note = compiled.artifact.log;
    no_workers_ = true;
    return;
  }
  if (!compiled.from_store) outcome_.compile_ms = elapsed_ms();
  if (compiled.artifact.status != "ok") {
    auto row = row_of(compiled);
    row.status = measure::to_string(from_compile(compiled.artifact.status));
    row.error = first_error(compiled.artifact.log);
    row.wall_ms = compiled.from_store ? 0 : compiled.artifact.compile_ms;
    add_row(std::move(row));
    return;
  }
  if (!refused(compiled) && !skipped(compiled)) start_trial(lane, {std::move(compiled)});
}

std::chrono::milliseconds Study::run_limit() const {
  return run_deadline(services_.options().policy.max_samples * launches_ * best_us_, quickest_ms_);
}

/// Whether it is not to be run: it ended badly before, which becomes its trial.
bool Study::refused(const Compiled& compiled) {
  if (request_.force) return false;
  const auto known = services_.store().known_failure(compiled.job.build.sha256, request_.key.problem);
  if (!known || !*known) return false;
  auto row = row_of(compiled);
  row.status = **known;
  row.error = "not tried again: it ended so before";
  add_row(std::move(row));
  return true;
}

/// What is known of how fast it can be; nothing where its launch can't be computed.
Promise Study::promise_of(const Compiled& compiled, int64_t* shared_bytes) const {
  const auto& artifact = compiled.artifact;
  const space::KernelFacts facts{artifact.regs, artifact.static_smem_bytes, artifact.local_bytes, 1};
  const auto geometry = instance_.geometry(compiled.job.config, facts);
  if (!geometry) return {};
  if (shared_bytes != nullptr) *shared_bytes = geometry->shared_bytes;
  return {space::occupancy(instance_.device(), *geometry, facts), artifact.spill_bytes};
}

/// Whether it is not to be run because it can hardly win, which becomes its trial.
bool Study::skipped(const Compiled& compiled) {
  const bool is_default = default_config_ && compiled.job.config == *default_config_;
  if (request_.search.measure_all || is_default) return false;
  auto row = row_of(compiled);
  const Promise promise = promise_of(compiled, &row.shared_bytes);
  row.error = doubts_.why_skip(promise);
  if (row.error.empty()) return false;
  row.status = measure::to_string(TrialStatus::skipped);
  row.occupancy = promise.occupancy;
  row.wall_ms = compiled.from_store ? 0 : compiled.artifact.compile_ms;
  row.default_us = default_us_;
  skipped_.emplace_back(compiled.job.config, promise);
  add_row(std::move(row));
  return true;
}

void Study::note_reply(Lane& lane, Flight& flight) {
  const Compiled& compiled = flight.item.compiled;
  const measure::TrialReply& reply = flight.reply;
  auto row = row_of(compiled);
  auto samples_us = reply.samples_us;
  if (request_.rationing.is_shared()) measure::drop_foreign_slices(samples_us);
  const auto summary = measure::summarise(samples_us);
  TrialStatus status = reply.status;
  std::string error = reply.error;
  if (status == TrialStatus::ok && summary.samples == 0) {
    status = TrialStatus::launch_error;
    error = "every sample was zero, negative or not a number";
  }
  row.status = measure::to_string(status);
  row.stop = reply.stop;
  row.error = error;
  row.samples = summary.samples;
  row.min_us = summary.min_us / lane.offset;  // all rows of a study are in the first GPU's time
  row.median_us = summary.median_us / lane.offset;
  row.mean_us = summary.mean_us / lane.offset;
  row.stddev_us = summary.stddev_us / lane.offset;
  row.max_us = summary.max_us / lane.offset;
  row.first_us = reply.first_us;
  row.clock_mhz = reply.clock_mhz;
  const space::Geometry& geometry = flight.candidate->geometry;
  row.shared_bytes = geometry.shared_bytes;
  row.wall_ms = reply.wall_ms + (compiled.from_store ? 0 : compiled.artifact.compile_ms);
  if (const int threads = instance_.device().max_threads_per_sm; threads > 0)
    row.occupancy = std::min(1.0, static_cast<double>(geometry.threads()) * reply.facts.max_blocks_per_sm / threads);

  if (status == TrialStatus::ok || status == TrialStatus::early_stopped) early_stop_->note(samples_us);
  note_group(lane, compiled.job.config, reply);
  const bool is_default = default_config_ && compiled.job.config == *default_config_;
  if (is_default && trusted_reference_ && status == TrialStatus::wrong_result) note_wrong_default(error);
  note_seen(compiled.job.config, status, summary, flight.scale);
  if (status == TrialStatus::ok || status == TrialStatus::early_stopped) {
    const Promise promise = promise_of(compiled);
    if (is_default) doubts_.set_default(promise);
    doubts_.note(promise, summary.median_us / flight.scale);
  }
  const double scale = flight.scale / lane.offset;  // the row's
  if (status == TrialStatus::ok) note_good(lane, flight, summary, summary.median_us / flight.scale);
  row.default_us = default_us_;
  add_row(std::move(row), scale);
}

/// A config that ran and was right, with its time as on the first GPU when the study began.
void Study::note_good(Lane& lane, Flight& flight, const measure::Summary& summary, double us) {
  if (quickest_ms_ <= 0 || flight.reply.wall_ms < quickest_ms_) quickest_ms_ = flight.reply.wall_ms;
  const bool is_default = default_config_ && flight.item.compiled.job.config == *default_config_;
  if (is_default) {
    default_us_ = us;
    default_good_ = good_.size();
  }
  if (best_us_ <= 0 || us < best_us_) {
    best_us_ = us;
    best_samples_ = summary.samples;
    best_config_ = space::short_text(flight.item.compiled.job.config);
  }
  if (!lane.anchor || us < lane.anchor_us) set_anchor(lane, flight.candidate, summary.median_us, us);
  good_.push_back({std::move(flight.item.compiled), flight.candidate, us, lane.number});
  if (!yardstick_) found_yardstick(lane, good_.back(), flight.reply, is_default);
}

/// Counts a trial and tells the search; write_rows() stores it when no GPU waits for its next config.
void Study::add_row(store::TrialRow row, double scale) {
  ++outcome_.trials;
  if (row.status == "ok")
    ++outcome_.ok;
  else if (row.status == "early_stopped")
    ++outcome_.early_stopped;
  else if (row.status == "skipped")
    ++outcome_.skipped;
  else
    ++outcome_.failed;
  row.study = study_;
  tell_search(row, scale);
  unwritten_.push_back(std::move(row));
}

void Study::write_rows() {
  for (const auto& row : std::exchange(unwritten_, {})) {
    if (auto added = services_.store().add_trial(study_, lease_, row); !added)
      services_.log().warning("store_write", instance_.model().name(), "a trial could not be stored: " + added.error(),
                              request_.key.sha256);
    else
      lease_lost_ |= !*added;
    if (request_.on_trial) request_.on_trial(row);
    report();
  }
}

void Study::report() {
  if (!request_.on_progress) return;
  Progress progress;
  progress.total = strategy_->total() == 0 ? 0 : strategy_->total() + (default_config_ ? 1 : 0);
  if (const uint64_t most = request_.search.trials; most > 0 && (progress.total == 0 || progress.total > most))
    progress.total = most;
  progress.done = outcome_.trials;
  progress.failed = outcome_.failed;
  progress.early_stopped = outcome_.early_stopped;
  progress.skipped = outcome_.skipped;
  progress.compiling = rest_ ? static_cast<int>(rest_->pending()) : 0;
  progress.best_us = best_us_;
  progress.best_config = best_config_;
  progress.default_us = default_us_;
  progress.elapsed_ms = elapsed_ms();
  progress.budget_ms = static_cast<double>(request_.budget.count());
  request_.on_progress(progress);
}

}  // namespace jitune::tune
