#include <algorithm>
#include <ctime>
#include <map>
#include <optional>
#include <vector>

#include "apps/prewarm/commands.hpp"
#include "apps/prewarm/rows.hpp"
#include "apps/prewarm/table.hpp"
#include "apps/prewarm/text.hpp"

namespace jitune::prewarm {
namespace {

std::string utc_text(int64_t seconds) {
  if (seconds <= 0) return "-";
  const std::time_t time = seconds;
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  char text[32];
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts));
}

std::string percent_text(double share) {
  return std::to_string(static_cast<int>(100 * share + 0.5)) + " %";
}

/// Good ones first, fastest first; then those stopped early, then failures by their status.
void sort_trials(std::vector<store::TrialRow>& trials) {
  const auto rank = [](const store::TrialRow& trial) {
    return trial.status == "ok" ? 0 : trial.status == "early_stopped" ? 1 : trial.status == "skipped" ? 2 : 3;
  };
  std::stable_sort(trials.begin(), trials.end(), [&](const store::TrialRow& a, const store::TrialRow& b) {
    if (rank(a) != rank(b)) return rank(a) < rank(b);
    if (rank(a) < 2 && a.median_us != b.median_us) return a.median_us < b.median_us;
    return a.status != b.status ? a.status < b.status : a.config < b.config;
  });
}

using Artifacts = std::map<std::string, store::ArtifactRow>;

Artifacts artifacts_of(store::Store& store, const std::vector<store::TrialRow>& trials) {
  std::vector<std::string> builds;
  for (const store::TrialRow& trial : trials)
    if (!trial.build_sha256.empty()) builds.push_back(trial.build_sha256);
  Artifacts artifacts;
  for (store::ArtifactRow& artifact : must(store.find_artifacts(builds)))
    artifacts.emplace(artifact.build_sha256, std::move(artifact));
  return artifacts;
}

std::string trials_text(const std::vector<store::TrialRow>& trials, const Artifacts& artifacts) {
  Table table({{"status"},
               {"median", Table::Align::right},
               {"min", Table::Align::right},
               {"stddev", Table::Align::right},
               {"samples", Table::Align::right},
               {"regs", Table::Align::right},
               {"spills", Table::Align::right},
               {"shared", Table::Align::right},
               {"occupancy", Table::Align::right},
               {"clock", Table::Align::right},
               {"stop"},
               {"config"},
               {"error"}});
  for (const store::TrialRow& trial : trials) {
    const auto found = artifacts.find(trial.build_sha256);
    const bool built = found != artifacts.end() && found->second.status == "ok";
    const std::string error = trial.error.substr(0, trial.error.find('\n'));
    table.add({trial.status, time_text(trial.median_us), time_text(trial.min_us), time_text(trial.stddev_us),
               std::to_string(trial.samples), built ? std::to_string(found->second.regs) : "-",
               built ? std::to_string(found->second.spill_bytes) : "-",
               built ? std::to_string(trial.shared_bytes + found->second.static_smem_bytes) : "-",
               trial.occupancy > 0 ? percent_text(trial.occupancy) : "-",
               trial.clock_mhz > 0 ? std::to_string(trial.clock_mhz) + " MHz" : "-",
               trial.stop.empty() ? "-" : trial.stop, values_text(trial.config),
               error.size() > 100 ? error.substr(0, 97) + "..." : error});
  }
  return table.text(2);
}

Json trials_json(const std::vector<store::TrialRow>& trials, const Artifacts& artifacts) {
  Json list = Json::array();
  for (const store::TrialRow& trial : trials) {
    Json json{{"config", parsed(trial.config)}, {"status", trial.status},
              {"samples", trial.samples},       {"median_us", trial.median_us},
              {"min_us", trial.min_us},         {"mean_us", trial.mean_us},
              {"max_us", trial.max_us},         {"stddev_us", trial.stddev_us},
              {"first_us", trial.first_us},     {"default_us", trial.default_us},
              {"clock_mhz", trial.clock_mhz},   {"stop", trial.stop},
              {"occupancy", trial.occupancy},   {"dynamic_smem_bytes", trial.shared_bytes},
              {"error", trial.error},           {"study", trial.study},
              {"build", trial.build_sha256}};
    if (const auto found = artifacts.find(trial.build_sha256); found != artifacts.end()) {
      json["registers"] = found->second.regs;
      json["spill_bytes"] = found->second.spill_bytes;
      json["static_smem_bytes"] = found->second.static_smem_bytes;
      json["compile_ms"] = found->second.compile_ms;
    }
    list.push_back(json);
  }
  return list;
}

std::string winner_text(const store::KeyRow& row) {
  if (!row.winner)
    return "no winner" + (row.last_outcome.empty() ? "" : "; its last study ended with " + row.last_outcome) + "\n";
  const store::WinnerRow& winner = *row.winner;
  std::string text = "winner  " + values_text(winner.config) + "\n  " + time_text(winner.median_us) +
                     ", default config " + time_text(winner.default_us) + ", " +
                     ratio_text(winner.default_us, winner.median_us) + "; decided " + utc_text(winner.decided_at) +
                     (winner.pinned ? "; pinned" : "") + "\n";
  if (!winner.artifact) return text + "  no cubin is stored: it will be compiled when it is needed\n";
  const store::ArtifactRow& artifact = *winner.artifact;
  return text + "  " + std::to_string(artifact.regs) + " registers, " + std::to_string(artifact.spill_bytes) +
         " bytes of spills, " + bytes_text(artifact.static_smem_bytes) + " of static shared memory\n  " +
         artifact.lowered_name + "\n";
}

/// The newest study of the key: that of its winner, or one that has trials.
std::optional<store::StudyView> last_study(store::Store& store, const store::KeyRow& row,
                                           const std::vector<store::TrialRow>& trials) {
  int64_t newest = row.winner ? row.winner->study : 0;
  for (const store::TrialRow& trial : trials) newest = std::max(newest, trial.study);
  return newest > 0 ? must(store.find_study(newest)) : std::nullopt;
}

/// What the study's time went to. Compiling overlaps the rest.
std::string study_text(const store::StudyView& study) {
  const store::StudyEnd::Costs& costs = study.end.costs;
  std::string text = "study   " + std::to_string(study.row.study) + ", " + utc_text(study.started_at) + ": " +
                     (study.end.outcome.empty() ? "running, or died" : study.end.outcome) +
                     (study.end.note.empty() ? "" : "; " + study.end.note) + "\n  " + study.row.strategy + ", seed " +
                     std::to_string(study.row.seed);
  if (!costs.method.empty()) text += ", samples by " + costs.method;
  if (!study.end.reference.empty())
    text += "; checked against " + study.end.reference +
            (study.end.reference_us > 0 ? ", which takes " + time_text(study.end.reference_us) : "");
  text += "\n  compile " + duration_text(costs.compile_ms) + " (overlapping), wait for the GPU " +
          duration_text(costs.wait_ms) + ", load " + duration_text(costs.load_ms) + ", check " +
          duration_text(costs.check_ms) + ", run " + duration_text(costs.run_ms) + ", rematch " +
          duration_text(costs.rematch_ms) + "\n  early stop saved " + duration_text(costs.saved_ms) +
          " of kernel time; the GPU's speed changed by " + percent_text(costs.drift) + " at most\n";
  return text;
}

Json study_json(const store::StudyView& study) {
  const store::StudyEnd::Costs& costs = study.end.costs;
  return {{"study", study.row.study},
          {"outcome", study.end.outcome},
          {"note", study.end.note},
          {"strategy", study.row.strategy},
          {"seed", study.row.seed},
          {"budget_ms", study.row.budget_ms},
          {"started_at", study.started_at},
          {"ended_at", study.ended_at},
          {"method", costs.method},
          {"compile_ms", costs.compile_ms},
          {"wait_ms", costs.wait_ms},
          {"load_ms", costs.load_ms},
          {"check_ms", costs.check_ms},
          {"run_ms", costs.run_ms},
          {"rematch_ms", costs.rematch_ms},
          {"saved_ms", costs.saved_ms},
          {"drift", costs.drift},
          {"reference", study.end.reference},
          {"reference_us", study.end.reference_us > 0 ? Json(study.end.reference_us) : Json()}};
}

}  // namespace

Exit run_show(Session& session) {
  const std::unique_ptr<store::Store> store = session.open_store();
  const store::KeyRow row = find_key(*store, session.options().key);
  std::vector<store::TrialRow> trials = must(store->trials_of(row.key.sha256));
  sort_trials(trials);
  const Artifacts artifacts = artifacts_of(*store, trials);
  const std::optional<store::StudyView> study = last_study(*store, row, trials);
  if (session.options().json) {
    Json json = row_json(row);
    json["trials"] = trials_json(trials, artifacts);
    if (study) json["study"] = study_json(*study);
    print(document(json));
    return Exit::ok;
  }
  std::string text = "key\n";
  for (const auto& [name, value] : key_fields(row.key)) {
    const std::string label(name);
    text += "  " + label + std::string(22 - label.size(), ' ') + (value.empty() ? "-" : value) + "\n";
  }
  text += "\n" + winner_text(row) + (study ? study_text(*study) : "") + "\n" + count_text(trials.size(), "trial") +
          (row.device_name.empty() ? "" : " on " + row.device_name) + "\n";
  print(text + (trials.empty() ? "" : trials_text(trials, artifacts)));
  return Exit::ok;
}

}  // namespace jitune::prewarm
