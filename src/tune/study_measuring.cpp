// How a study looks after its measurements: the GPU's speed, costs, second chances.
#include <algorithm>
#include <limits>
#include <utility>

#include "tune/study.hpp"

namespace jitune::tune {
namespace {

using measure::TrialStatus;

constexpr double kSecondChances = 0.05;  // of the trials
constexpr int kGroupsOfLane = 1000;      // more than a worker tells apart

}  // namespace

/// Times the lane's best config again now and then. A run that fails says nothing of the speed; its own trials went
/// well.
void Study::follow_drift(Lane& lane, Flight& flight) {
  if (!lane.anchor || !lane.drift.has_anchor() || !lane.measurer->usable()) return;
  if (!measure::DriftMonitor::due(lane.measured_ms, ++lane.trials_since_anchor)) return;
  auto& reply = flight.anchor_reply;
  reply = lane.measurer->trial(*lane.anchor, std::numeric_limits<double>::infinity(), {}, flight.limit);
  if (reply->status == TrialStatus::ok) lane.drift.note(measure::summarise(reply->samples_us).median_us);
  lane.trials_since_anchor = 0;
  lane.measured_ms = 0;
}

/// Beside an application: the pause that this use of its GPU costs.
void Study::used_gpu(const measure::TrialReply& reply) const {
  if (request_.rationing.after_measuring) request_.rationing.after_measuring(reply.check_ms + reply.run_ms);
}

void Study::note_costs(const measure::TrialReply& reply) {
  auto& costs = outcome_.costs;
  costs.load_ms += reply.load_ms;
  costs.check_ms += reply.check_ms;
  costs.run_ms += reply.run_ms;
  const auto summary = measure::summarise(reply.samples_us);
  if (summary.samples == 0) return;
  if (reply.status == TrialStatus::early_stopped) {
    const int left_out = services_.options().policy.max_samples - summary.samples;
    costs.saved_ms += std::max(0, left_out) * summary.median_us * launches_ / 1000;
  } else if (reply.status == TrialStatus::ok) {
    launches_ = std::max(1, reply.launches);
    costs.method = measure::to_string(reply.method);
    if (launches_ > 1) costs.method += " x " + std::to_string(launches_);
    if (services_.options().in_process) costs.method += ", in process";
    if (is_representative_) costs.method += ", " + places_text();
    if (also_launches_.empty()) also_launches_ = reply.also_launches;
  }
}

/// For the early-stop rule and for second chances.
void Study::note_seen(const space::Config& config, TrialStatus status, const measure::Summary& summary, double scale) {
  const bool stopped = status == TrialStatus::early_stopped;
  if (summary.samples == 0 || (!stopped && status != TrialStatus::ok)) return;
  measure::SeenTrial seen;
  for (const auto& [name, value] : config) {
    const std::string text = space::canonical({{name, value}});
    seen.values.push_back(value_ids_.emplace(text, static_cast<int>(value_ids_.size())).first->second);
  }
  seen.samples = summary.samples;
  seen.time_us = (stopped ? summary.min_us : summary.median_us) / scale;
  seen.stopped = stopped;
  seen_.emplace_back(config, std::move(seen));
}

/// Group 0 agrees with the reference; results that could not be told apart any more are counted as -1. Each GPU's
/// worker has numbers of its own.
void Study::note_group(const Lane& lane, const space::Config& config, const measure::TrialReply& reply) {
  const bool agrees = reply.status == TrialStatus::ok || reply.status == TrialStatus::early_stopped;
  if (!agrees && reply.status != TrialStatus::wrong_result) return;
  Group& group = groups_[agrees            ? 0
                         : reply.group > 0 ? reply.group + static_cast<int>(lane.number) * kGroupsOfLane
                                           : -1];
  if (group.configs++ == 0) group.example = space::short_text(config);
}

/// Without a default config that runs nobody knows who is right: who disagrees is told.
void Study::report_disagreement() {
  if (default_good_ || trusted_reference_ || groups_.size() < 2 || groups_.count(0) == 0) return;
  std::string text = "the results disagree and there is no reference to trust: " + std::to_string(groups_[0].configs) +
                     " as " + groups_[0].example + " (taken as the reference)";
  for (const auto& [number, group] : groups_)
    if (number != 0)
      text += ", " + std::to_string(group.configs) + (number > 0 ? " as " : " in still other ways, ") + group.example;
  services_.log().warning("results_disagree", instance_.model().name(), text, request_.key.sha256);
  outcome_.note += (outcome_.note.empty() ? "" : "; ") + text;
}

/// Configs that were given up after one or two samples, though those most like them are good, are measured once more.
/// So are those that were skipped for what is no doubt any more.
void Study::give_second_chances() {
  if (best_us_ <= 0 || !lanes_left()) return;
  const auto try_again = [this](const space::Config& config) {
    auto job = make_job(instance_, config, source_, compiler_->nvrtc().build);
    if (!job) return;
    auto compiled = compiler_->compile(std::move(*job));  // from the build cache
    if (!compiled.not_run && compiled.artifact.status == "ok") queue_.push_back({std::move(compiled)});
  };
  for (const auto& [config, promise] : skipped_)
    if (!doubts_.doubted(promise)) try_again(config);
  std::vector<measure::SeenTrial> trials;
  for (const auto& [config, seen] : seen_) trials.push_back(seen);
  const auto limit = static_cast<size_t>(kSecondChances * static_cast<double>(trials.size()));
  for (const size_t index : measure::second_chances(trials, best_us_, limit)) try_again(seen_[index].first);
  drain(true);
  queue_.clear();
}

}  // namespace jitune::tune
