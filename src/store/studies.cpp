#include <cmath>

#include "store/rows.hpp"
#include "store/text.hpp"

namespace jitune::store {
namespace {

/// A figure that is 0 when it is not known.
std::optional<double> known(double value) {
  return value == 0 ? std::nullopt : std::optional(value);
}

const char* const kTrialColumns =
    "c.params, t.build_sha256, t.status, t.samples, t.min_us, t.median_us, t.mean_us, t.stddev_us, t.max_us, "
    "t.first_us, "
    "t.clock_mhz, t.occupancy, t.default_us, t.shared_bytes, t.wall_ms, t.stop, t.error, "
    "t.study_id";

TrialRow read_trial(Statement& row) {
  TrialRow trial;
  trial.config = row.text();
  trial.build_sha256 = row.text();
  trial.status = row.text();
  trial.samples = row.small();
  trial.min_us = row.real();
  trial.median_us = row.real();
  trial.mean_us = row.real();
  trial.stddev_us = row.real();
  trial.max_us = row.real();
  trial.first_us = row.real();
  trial.clock_mhz = row.small();
  trial.occupancy = row.real();
  trial.default_us = row.real();
  trial.shared_bytes = row.integer();
  trial.wall_ms = row.real();
  trial.stop = row.text();
  trial.error = row.text();
  trial.study = row.integer();
  return trial;
}

}  // namespace

int64_t insert_study(Database& database, int64_t key_id, const StudyRow& study, const ProcessId& process, int64_t now) {
  database
      .prepare(
          "INSERT INTO studies (key_id, started_at, strategy, seed, budget_ms, space, default_config, device_name, "
          "device_uuid, driver, host, pid, jitune, artifacts_before) "
          "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,(SELECT coalesce(max(artifact_id), 0) FROM artifacts))")
      .bind(key_id, now, clean_text(study.strategy), static_cast<int64_t>(study.seed), study.budget_ms, study.space,
            study.default_config, clean_text(study.device.name), clean_text(study.device.uuid),
            clean_text(study.device.driver), clean_text(process.host), process.pid, JITUNE_VERSION)
      .run();
  return database.last_id();
}

void insert_trial(Database& database, int64_t study, const TrialRow& trial, int64_t now) {
  const bool timed = trial.samples > 0;
  const auto time = [&](double value) { return timed ? std::optional(value) : std::nullopt; };
  database
      .prepare(
          "INSERT INTO trials (key_id, study_id, config_id, artifact_id, build_sha256, status, samples, min_us, "
          "median_us, mean_us, stddev_us, max_us, first_us, clock_mhz, occupancy, default_us, shared_bytes, wall_ms, "
          "stop, error, at) VALUES ((SELECT key_id FROM studies WHERE study_id = ?1), ?1, ?2, "
          "(SELECT artifact_id FROM artifacts WHERE build_sha256 = ?3), ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, "
          "?13, "
          "?14, ?15, ?16, ?17, ?18, ?19)")
      .bind(study, ensure_config(database, trial.config), trial.build_sha256, trial.status, trial.samples,
            time(trial.min_us), time(trial.median_us), time(trial.mean_us), time(trial.stddev_us), time(trial.max_us),
            known(trial.first_us), trial.clock_mhz, known(trial.occupancy), known(trial.default_us), trial.shared_bytes,
            trial.wall_ms, clean_text(trial.stop), clean_text(trial.error), now)
      .run();
}

void close_study(Database& database, int64_t study, const StudyEnd& end, int64_t now) {
  const StudyEnd::Costs& costs = end.costs;
  database
      .prepare(
          "UPDATE studies SET ended_at = max(started_at, ?), outcome = ?, note = ?, method = ?, compile_ms = ?, "
          "wait_ms = ?, load_ms = ?, check_ms = ?, run_ms = ?, rematch_ms = ?, saved_ms = ?, drift = ?, "
          "reference = ?, reference_us = ? WHERE study_id = ?")
      .bind(now, end.outcome, clean_text(end.note), clean_text(costs.method), costs.compile_ms, costs.wait_ms,
            costs.load_ms, costs.check_ms, costs.run_ms, costs.rematch_ms, costs.saved_ms, costs.drift,
            clean_text(end.reference), known(end.reference_us), study)
      .run();
}

std::optional<StudyView> view_study(Database& database, int64_t study) {
  Statement row = database.prepare(
      "SELECT strategy, seed, budget_ms, space, default_config, device_name, device_uuid, driver, "
      "coalesce(outcome, ''), note, method, compile_ms, wait_ms, load_ms, check_ms, run_ms, rematch_ms, saved_ms, "
      "drift, reference, coalesce(reference_us, 0), started_at, coalesce(ended_at, 0) FROM studies WHERE study_id = ?");
  if (!row.bind(study).next()) return std::nullopt;
  StudyView view;
  view.row.study = study;
  view.row.strategy = row.text();
  view.row.seed = static_cast<uint64_t>(row.integer());
  view.row.budget_ms = row.integer();
  view.row.space = row.text();
  view.row.default_config = row.text();
  view.row.device.name = row.text();
  view.row.device.uuid = row.text();
  view.row.device.driver = row.text();
  view.end.outcome = row.text();
  view.end.note = row.text();
  StudyEnd::Costs& costs = view.end.costs;
  costs.method = row.text();
  for (double* ms : {&costs.compile_ms, &costs.wait_ms, &costs.load_ms, &costs.check_ms, &costs.run_ms,
                     &costs.rematch_ms, &costs.saved_ms, &costs.drift})
    *ms = row.real();
  view.end.reference = row.text();
  view.end.reference_us = row.real();
  view.started_at = row.integer();
  view.ended_at = row.integer();
  return view;
}

int64_t key_of_study(Database& database, int64_t study, std::string& key_sha256) {
  Statement row =
      database.prepare("SELECT k.key_id, k.key_sha256 FROM studies s JOIN keys k USING (key_id) WHERE s.study_id = ?");
  if (!row.bind(study).next()) return 0;
  const int64_t key_id = row.integer();
  key_sha256 = row.text();
  return key_id;
}

void drop_losers_cubins(Database& database, int64_t study) {
  database
      .prepare(
          "DELETE FROM cubins WHERE cubin_sha256 IN (SELECT a.cubin_sha256 FROM trials t JOIN artifacts a USING "
          "(artifact_id) WHERE t.study_id = ?1) AND NOT EXISTS (SELECT 1 FROM artifacts a WHERE "
          "a.cubin_sha256 = cubins.cubin_sha256 AND ("
          "a.artifact_id <= (SELECT artifacts_before FROM studies WHERE study_id = ?1) "
          "OR EXISTS (SELECT 1 FROM winners w WHERE w.artifact_id = a.artifact_id) "
          "OR EXISTS (SELECT 1 FROM trials o WHERE o.artifact_id = a.artifact_id AND o.study_id <> ?1)))")
      .bind(study)
      .run();
}

std::vector<TrialRow> latest_trials(Database& database, const std::string& key_sha256) {
  static const std::string sql =
      std::string("SELECT ") + kTrialColumns +
      " FROM (SELECT max(t.trial_id) AS newest FROM trials t JOIN keys k USING (key_id) WHERE k.key_sha256 = ? "
      "GROUP BY t.config_id) JOIN trials t ON t.trial_id = newest JOIN configs c USING (config_id) ORDER BY t.trial_id";
  Statement row = database.prepare(sql.c_str());
  row.bind(key_sha256);
  std::vector<TrialRow> rows;
  while (row.next()) rows.push_back(read_trial(row));
  return rows;
}

std::vector<TrialRow> trials_of_study(Database& database, int64_t study) {
  static const std::string sql =
      std::string("SELECT ") + kTrialColumns +
      " FROM trials t JOIN configs c USING (config_id) WHERE t.study_id = ? ORDER BY t.trial_id";
  Statement row = database.prepare(sql.c_str());
  row.bind(study);
  std::vector<TrialRow> rows;
  while (row.next()) rows.push_back(read_trial(row));
  return rows;
}

}  // namespace jitune::store
