#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "measure/duel.hpp"
#include "tune/study.hpp"

namespace jitune::tune {
namespace {

using measure::TrialStatus;

constexpr int kRematchRounds = 25;   // that may be slow, those that do not count included
constexpr size_t kOldFinalists = 4;  // of earlier studies

}  // namespace

/// Good configs of earlier studies compete again: their times then, scaled by how the default config has changed since,
/// only say which of them are worth it.
void Study::add_old_finalists() {
  std::vector<std::pair<double, const store::TrialRow*>> ranked;
  for (const auto& [text, row] : history_) {
    if (row.status != "ok" || row.median_us <= 0) continue;
    const double scale = default_us_ > 0 && row.default_us > 0 ? default_us_ / row.default_us : 1;
    const double estimate = row.median_us * scale;
    if (best_us_ <= 0 || estimate <= best_us_ * measure::kFinalistMargin) ranked.emplace_back(estimate, &row);
  }
  std::sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  if (ranked.size() > kOldFinalists) ranked.resize(kOldFinalists);
  for (const auto& [estimate, row] : ranked) {
    if (was_cancelled()) return;
    auto config = space::parse_values(row->config);
    if (!config || (default_config_ && *config == *default_config_)) continue;
    auto job = make_job(instance_, *config, source_, compiler_->nvrtc().build);
    if (!job) continue;
    auto compiled = compiler_->compile(std::move(*job));
    Lane* lane = judge();
    if (lane == nullptr) return;
    if (compiled.artifact.status == "ok") run_on(*lane, std::move(compiled));  // checked and timed like any other
  }
}

/// The configs near the best of their own GPU: how GPUs compare is known of the yardstick only.
std::vector<size_t> Study::finalists() const {
  std::map<size_t, std::vector<size_t>> by_lane;
  for (size_t i = 0; i < good_.size(); ++i)
    if (!good_[i].failed) by_lane[good_[i].lane].push_back(i);
  std::vector<size_t> chosen;
  for (auto& [lane, own] : by_lane) {
    keep_best(own);
    chosen.insert(chosen.end(), own.begin(), own.end());
  }
  return chosen;
}

/// Of configs whose times are one GPU's: the few best ones, and the default config, in canonical order, so that ties
/// are settled alike in every study.
void Study::keep_best(std::vector<size_t>& chosen) const {
  std::vector<double> times_us;
  for (const size_t index : chosen) times_us.push_back(good_[index].median_us);
  std::vector<size_t> kept;
  for (const size_t place : measure::choose_finalists(times_us)) kept.push_back(chosen[place]);
  for (const size_t index : chosen)
    if (default_good_ == index && std::find(kept.begin(), kept.end(), index) == kept.end()) kept.push_back(index);
  chosen = std::move(kept);
  std::sort(chosen.begin(), chosen.end(), [&](size_t a, size_t b) {
    return good_[a].compiled.job.build.config < good_[b].compiled.job.build.config;
  });
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

void Study::log_finalists(const std::vector<size_t>& chosen, const std::vector<std::vector<double>>& series_us) {
  for (size_t i = 0; i < chosen.size(); ++i) {
    const auto summary = measure::summarise(series_us[i]);
    services_.log().debug("finalist", instance_.model().name(),
                          good_[chosen[i]].compiled.job.build.config + " " + std::to_string(summary.median_us) +
                              " us, median of " + std::to_string(summary.samples) + " rounds, deviation " +
                              std::to_string(summary.stddev_us));
  }
}

/// Finalists that another GPU measured run on this one first: they must be right here too, and one GPU's times are
/// compared with that GPU's alone.
void Study::check_again(Lane& lane, std::vector<size_t>& chosen) {
  std::erase_if(chosen, [&](size_t index) {
    Good& good = good_[index];
    if (good.lane == lane.number || lane.state == Lane::State::ended) return false;
    const double scale = lane.scale();
    measure::TrialReply reply;
    // The default config's time is wanted in any case.
    const bool to_the_end = default_good_ == index;
    const double bound = to_the_end ? std::numeric_limits<double>::infinity() : bound_on(lane) * scale;
    const auto margins = to_the_end ? std::vector<double>() : early_stop_->margins(best_samples_);
    const auto work = [&](Lane& there) { reply = there.measurer->trial(*good.candidate, bound, margins, run_limit()); };
    lanes_.start(lane.number, work, [](Lane&) {});
    lanes_.finish(lane.number);
    note_costs(reply);
    if (!lane.measurer->usable()) {
      end_lane(lane, lane.measurer->trouble());
      return false;
    }
    const auto summary = measure::summarise(reply.samples_us);
    if (reply.status == TrialStatus::early_stopped) return true;
    if (reply.status == TrialStatus::ok && summary.samples > 0) {
      good.median_us = summary.median_us / scale;
      good.lane = lane.number;
      return false;
    }
    good.failed = true;
    auto row = row_of(good.compiled);
    row.status = measure::to_string(reply.status);
    row.error = "on another GPU of the study, where it was to be compared: " + reply.error;
    add_row(std::move(row));
    return true;
  });
}

/// False: the lane was lost meanwhile, or the rematch could not be done.
bool Study::rematch_on(Lane& lane, const std::vector<size_t>& chosen, std::vector<std::vector<double>>& series_us) {
  double round_us = 0;
  measure::RematchRequest request;
  request.share = request_.rationing.share;
  for (const size_t index : chosen) {
    if (default_good_ == index) request.default_index = static_cast<int>(request.candidates.size());
    request.candidates.push_back(*good_[index].candidate);
    round_us += good_[index].median_us;
  }
  const auto limit = std::chrono::milliseconds(
      static_cast<int64_t>(std::max(5000.0, 20 * kRematchRounds * launches_ * round_us / 1000) / request.share));
  const auto started = Clock::now();
  measure::RematchReply reply;
  lanes_.start(
      lane.number, [&](Lane& there) { reply = there.measurer->rematch(request, limit); }, [](Lane&) {});
  lanes_.finish(lane.number);
  outcome_.costs.rematch_ms += ms_since(started);
  if (reply.discarded > 0)
    services_.log().info("rounds_discarded", instance_.model().name(),
                         std::to_string(reply.discarded) +
                             " rounds of the rematch were repeated: the GPU's clock or speed changed within them");
  if (reply.ok && reply.launches > launches_)
    outcome_.costs.method += ", finalists x " + std::to_string(reply.launches);
  if (reply.ok && reply.samples_us.size() == chosen.size()) {
    series_us = std::move(reply.samples_us);
    return true;
  }
  if (was_cancelled()) return false;
  services_.log().warning("rematch_failed", instance_.model().name(),
                          "the finalists could not be measured again (" + reply.error + ")", request_.key.sha256);
  if (!lane.measurer->usable()) end_lane(lane, lane.measurer->trouble());
  return false;
}

std::vector<std::vector<double>> Study::time_finalists(std::vector<size_t>& chosen) {
  std::vector<std::vector<double>> series;
  for (Lane* lane = judge(); lane != nullptr && !was_cancelled(); lane = judge()) {
    chosen = finalists();
    check_again(*lane, chosen);
    if (lane->state == Lane::State::ended) continue;
    keep_best(chosen);
    if (chosen.size() > 1 && rematch_on(*lane, chosen, series)) return series;
    if (lane->state != Lane::State::ended) break;
  }
  if (chosen.empty()) keep_best(chosen = finalists());
  for (const size_t index : chosen) series.push_back({good_[index].median_us});
  return series;
}

void Study::rematch() {
  if (judge() != nullptr && !was_cancelled()) add_old_finalists();
  if (good_.empty()) return;
  std::vector<size_t> chosen;
  const auto series = time_finalists(chosen);
  if (judge() == nullptr && lost_device_) return;  // times of a GPU that failed are not published
  log_finalists(chosen, series);
  int default_index = -1;
  for (size_t i = 0; i < chosen.size(); ++i)
    if (default_good_ && chosen[i] == *default_good_) default_index = static_cast<int>(i);
  const int winner = measure::choose(series, default_index, services_.options().policy.tie);
  if (winner < 0) return;
  auto median = [&](int index) { return measure::summarise(series[static_cast<size_t>(index)]).median_us; };
  const double default_us = default_index >= 0 ? median(default_index) : 0;
  outcome_.winner = winner_row(good_[chosen[static_cast<size_t>(winner)]], median(winner), default_us);
  if (outcome_.outcome.empty()) outcome_.outcome = winner == default_index ? "default_kept" : "won";
}

void Study::publish() {
  report_disagreement();
  write_rows();
  outcome_.costs.compile_ms = outcome_.compile_ms;
  for (size_t i = 0; i < lanes_.size(); ++i)
    outcome_.costs.drift = std::max(outcome_.costs.drift, lanes_[i].drift.worst());
  outcome_.measure_ms = lanes_.busy_ms();
  outcome_.compilations = compiler_->compilations() - compilations_before_;
  if (outcome_.outcome.empty()) {
    outcome_.outcome = "no_valid_config";
    if (outcome_.note.empty())
      outcome_.note =
          outcome_.trials == 0 ? "no config satisfies the constraints" : "every config that was tried failed";
  }
  // What was measured beside an application and never again is not to last.
  const bool lasts = !(cancelled_ && request_.rationing.is_shared());
  auto end = services_.store().end_study(
      study_, lease_, {outcome_.outcome, outcome_.note, outcome_.costs, outcome_.reference, outcome_.reference_us},
      lasts ? outcome_.winner : std::nullopt);
  if (!end) {
    services_.log().warning("store_write", instance_.model().name(),
                            "the study's end could not be stored: " + end.error(), request_.key.sha256);
  } else {
    lease_ = {};
  }
  outcome_.wall_ms = elapsed_ms();
}

}  // namespace jitune::tune
