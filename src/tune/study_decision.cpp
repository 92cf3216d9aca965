#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "measure/duel.hpp"
#include "tune/study.hpp"

namespace jitune::tune {
namespace {

constexpr int kRematchRounds = 25;  // at most, those that do not count included
constexpr size_t kMaxFinalists = 8;
constexpr double kFinalistMargin = 1.03;  // finalists are within 3 % of the best

}  // namespace

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
    if (was_cancelled()) return;
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

void Study::log_finalists(const std::vector<size_t>& chosen, const std::vector<std::vector<double>>& series_us) {
  for (size_t i = 0; i < chosen.size(); ++i) {
    const auto summary = measure::summarise(series_us[i]);
    services_.log().debug("finalist", instance_.model().name(),
                          good_[chosen[i]].compiled.job.build.config + " " + std::to_string(summary.median_us) +
                              " us, median of " + std::to_string(summary.samples) + " rounds, deviation " +
                              std::to_string(summary.stddev_us));
  }
}

void Study::rematch() {
  if (measurer_->usable() && !was_cancelled()) add_old_finalists();
  if (good_.empty() || measurer_->device_lost()) return;  // times of a GPU that failed are not published
  const auto chosen = finalists();
  std::vector<std::vector<double>> series;
  int default_index = -1;
  double round_us = 0;
  for (size_t i = 0; i < chosen.size(); ++i) {
    if (default_good_ && chosen[i] == *default_good_) default_index = static_cast<int>(i);
    series.push_back({good_[chosen[i]].median_us});
    round_us += good_[chosen[i]].median_us;
  }
  if (chosen.size() > 1 && measurer_->usable() && !was_cancelled()) {
    std::vector<measure::Candidate> candidates;
    for (const size_t index : chosen) candidates.push_back(good_[index].candidate);
    const auto limit = std::chrono::milliseconds(static_cast<int64_t>(
        std::max(5000.0, 20 * kRematchRounds * launches_ * round_us / 1000) / request_.rationing.share));
    const auto started = Clock::now();
    auto reply = measurer_->rematch(std::move(candidates), request_.rationing.share, limit);
    outcome_.measure_ms += ms_since(started);
    outcome_.costs.rematch_ms += ms_since(started);
    if (reply.discarded > 0)
      services_.log().info("rounds_discarded", instance_.model().name(),
                           std::to_string(reply.discarded) +
                               " rounds of the rematch were repeated: the GPU's clock or speed changed within them");
    if (reply.ok && reply.launches > launches_)
      outcome_.costs.method += ", finalists x " + std::to_string(reply.launches);
    if (reply.ok && reply.samples_us.size() == chosen.size())
      series = std::move(reply.samples_us);
    else if (!was_cancelled())
      services_.log().warning(
          "rematch_failed", instance_.model().name(),
          "the finalists could not be measured again (" + reply.error + "); decided by their first times",
          request_.key.sha256);
  }
  log_finalists(chosen, series);
  const int winner = measure::choose(series, default_index, services_.options().policy.tie);
  if (winner < 0) return;
  auto median = [&](int index) { return measure::summarise(series[static_cast<size_t>(index)]).median_us; };
  const double default_us = default_index >= 0 ? median(default_index) : 0;
  outcome_.winner = winner_row(good_[chosen[static_cast<size_t>(winner)]], median(winner), default_us);
  if (outcome_.outcome.empty()) outcome_.outcome = winner == default_index ? "default_kept" : "won";
}

/// The note with what results were compared with, and a reference kernel's time to hold the winner's against.
std::string Study::stored_note() const {
  if (outcome_.reference.empty()) return outcome_.note;
  std::string text = "checked against " + outcome_.reference;
  std::array<char, 48> time{};
  std::snprintf(time.data(), time.size(), " (%.2f us)", outcome_.reference_us);
  if (outcome_.reference_us > 0) text += time.data();
  return outcome_.note.empty() ? text : outcome_.note + "; " + text;
}

void Study::publish() {
  report_disagreement();
  outcome_.costs.compile_ms = outcome_.compile_ms;
  outcome_.costs.drift = drift_.worst();
  outcome_.compilations = compiler_->compilations() - compilations_before_;
  if (outcome_.outcome.empty()) {
    outcome_.outcome = "no_valid_config";
    if (outcome_.note.empty())
      outcome_.note =
          outcome_.trials == 0 ? "no config satisfies the constraints" : "every config that was tried failed";
  }
  // What was measured beside an application and never again is not to last.
  const bool lasts = !(cancelled_ && request_.rationing.is_shared());
  auto end = services_.store().end_study(study_, lease_, {outcome_.outcome, stored_note(), outcome_.costs},
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
