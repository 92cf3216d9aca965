#include <algorithm>
#include <cstdio>
#include <ctime>
#include <map>
#include <vector>

#include "apps/prewarm/commands.hpp"
#include "apps/prewarm/table.hpp"
#include "apps/prewarm/text.hpp"
#include "base/json.hpp"

namespace jitune::prewarm {
namespace {

constexpr size_t kKeyDigits = 12;  // of a key, in tables

template <class T>
T must(Result<T> result) {
  if (!result) throw Stop(Exit::database, result.error());
  return std::move(result).value();
}

std::string utc_text(int64_t seconds) {
  if (seconds <= 0) return "-";
  const std::time_t time = seconds;
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  char text[32];
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts));
}

Json parsed(const std::string& json) {
  return json.empty() ? Json() : Json::parse(json, nullptr, false);
}

std::string document(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json winner_json(const store::KeyRow& row) {
  if (!row.winner) return nullptr;
  const store::WinnerRow& winner = *row.winner;
  Json json{{"config", parsed(winner.config)},
            {"median_us", winner.median_us},
            {"default_us", winner.default_us},
            {"pinned", winner.pinned},
            {"decided_at", winner.decided_at}};
  if (winner.artifact)
    json["artifact"] = {{"lowered_name", winner.artifact->lowered_name},
                        {"registers", winner.artifact->regs},
                        {"spill_bytes", winner.artifact->spill_bytes},
                        {"static_smem_bytes", winner.artifact->static_smem_bytes},
                        {"cubin_sha256", winner.artifact->cubin_sha256}};
  return json;
}

/// The fields of a key as people read them, in the key's own order.
std::vector<std::pair<const char*, std::string>> key_fields(const key::TuningKey& key) {
  return {{"kernel", key.kernel},
          {"variant", key.variant},
          {"problem", key.problem},
          {"entry", key.entry},
          {"options", key.options},
          {"source_sha256", key.source_sha256},
          {"launch_sha256", key.launch_sha256},
          {"arch", key.arch},
          {"cc", std::to_string(key.cc)},
          {"sm_count", std::to_string(key.sm_count)},
          {"memory_gib", std::to_string(key.memory_gib)},
          {"l2_bytes", std::to_string(key.l2_bytes)},
          {"max_clock_mhz", std::to_string(key.max_clock_mhz)},
          {"max_memory_clock_mhz", std::to_string(key.max_memory_clock_mhz)},
          {"nvrtc", key.nvrtc},
          {"policy", key.policy},
          {"environment", key.environment},
          {"callables", key.callables},
          {"schema", std::to_string(key.schema)},
          {"sha256", key.sha256}};
}

Json row_json(const store::KeyRow& row) {
  Json fields = Json::object();
  for (const auto& [name, value] : key_fields(row.key)) fields[name] = value;
  fields["problem"] = parsed(row.key.problem);
  return {{"key", row.key.sha256},    {"fields", fields},           {"winner", winner_json(row)},
          {"trials", row.trials},     {"ok_trials", row.ok_trials}, {"last_outcome", row.last_outcome},
          {"device", row.device_name}};
}

std::string list_text(const std::vector<store::KeyRow>& rows) {
  Table table({{"key"},
               {"kernel"},
               {"problem"},
               {"winner"},
               {"time", Table::Align::right},
               {"default", Table::Align::right},
               {"ratio", Table::Align::right},
               {"trials", Table::Align::right},
               {"arch"},
               {"NVRTC"},
               {"last study"},
               {"device"}});
  for (const store::KeyRow& row : rows) {
    const auto& winner = row.winner;
    table.add({row.key.sha256.substr(0, kKeyDigits), row.key.kernel, values_text(row.key.problem),
               winner ? values_text(winner->config) + (winner->pinned ? " (pinned)" : "") : "-",
               winner ? time_text(winner->median_us) : "-", winner ? time_text(winner->default_us) : "-",
               winner ? ratio_text(winner->default_us, winner->median_us) : "-",
               std::to_string(row.ok_trials) + "/" + std::to_string(row.trials), row.key.arch, row.key.nvrtc,
               row.last_outcome, row.device_name});
  }
  return table.text();
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
               values_text(trial.config), error.size() > 100 ? error.substr(0, 97) + "..." : error});
  }
  return table.text(2);
}

Json trials_json(const std::vector<store::TrialRow>& trials, const Artifacts& artifacts) {
  Json list = Json::array();
  for (const store::TrialRow& trial : trials) {
    Json json{{"config", parsed(trial.config)},
              {"status", trial.status},
              {"samples", trial.samples},
              {"median_us", trial.median_us},
              {"min_us", trial.min_us},
              {"mean_us", trial.mean_us},
              {"max_us", trial.max_us},
              {"stddev_us", trial.stddev_us},
              {"first_us", trial.first_us},
              {"default_us", trial.default_us},
              {"clock_mhz", trial.clock_mhz},
              {"occupancy", trial.occupancy},
              {"dynamic_smem_bytes", trial.shared_bytes},
              {"error", trial.error},
              {"study", trial.study},
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

store::KeyRow find_key(store::Store& store, const std::string& prefix) {
  if (prefix.find_first_not_of("0123456789abcdef") != std::string::npos || prefix.size() > 64)
    throw Stop(Exit::usage, "'" + prefix +
                                "' is not the beginning of a key: keys are hexadecimal digits, as "
                                "`jit-prewarm list` prints them");
  const std::vector<store::KeyRow> rows = must(store.find_keys(prefix));
  if (rows.empty())
    throw Stop(Exit::usage,
               "no key in " + store.path() + " begins with " + prefix + "; `jit-prewarm list` prints them");
  if (rows.size() > 1) {
    std::string text = std::to_string(rows.size()) + " keys begin with " + prefix + "; give more digits:";
    for (const store::KeyRow& row : rows)
      text += "\n  " + row.key.sha256 + "  " + row.key.kernel + " " + values_text(row.key.problem);
    throw Stop(Exit::usage, text);
  }
  return rows[0];
}

}  // namespace

Exit run_list(Session& session) {
  const std::unique_ptr<store::Store> store = session.open_store();
  const std::string& kernel = session.options().kernel;
  const std::vector<store::KeyRow> rows = must(store->list(kernel));
  if (session.options().json) {
    Json keys = Json::array();
    for (const store::KeyRow& row : rows) keys.push_back(row_json(row));
    print(document({{"database", store->path()}, {"keys", keys}}));
    return Exit::ok;
  }
  if (!rows.empty()) {
    print(list_text(rows));
    return Exit::ok;
  }
  const store::Store::Health health = must(store->health());
  print("nothing is tuned yet" + (kernel.empty() ? std::string() : " of kernel '" + kernel + "'") + " in " +
        store->path() + "; it holds " + count_text(static_cast<uint64_t>(health.artifacts), "artifact") + "\n");
  return Exit::ok;
}

Exit run_show(Session& session) {
  const std::unique_ptr<store::Store> store = session.open_store();
  const store::KeyRow row = find_key(*store, session.options().key);
  std::vector<store::TrialRow> trials = must(store->trials_of(row.key.sha256));
  sort_trials(trials);
  const Artifacts artifacts = artifacts_of(*store, trials);
  if (session.options().json) {
    Json json = row_json(row);
    json["trials"] = trials_json(trials, artifacts);
    print(document(json));
    return Exit::ok;
  }
  std::string text = "key\n";
  for (const auto& [name, value] : key_fields(row.key)) {
    const std::string label(name);
    text += "  " + label + std::string(22 - label.size(), ' ') + (value.empty() ? "-" : value) + "\n";
  }
  text += "\n" + winner_text(row) + "\n" + count_text(trials.size(), "trial") +
          (row.device_name.empty() ? "" : " on " + row.device_name) + "\n";
  print(text + (trials.empty() ? "" : trials_text(trials, artifacts)));
  return Exit::ok;
}

}  // namespace jitune::prewarm
