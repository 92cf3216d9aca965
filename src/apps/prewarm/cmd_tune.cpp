#include <algorithm>
#include <cstdio>
#include <vector>

#include "apps/prewarm/commands.hpp"
#include "apps/prewarm/failures.hpp"
#include "apps/prewarm/table.hpp"
#include "apps/prewarm/text.hpp"
#include "base/json.hpp"
#include "tune/tune.hpp"
#include "tune/unfinished.hpp"

namespace jitune::prewarm {
namespace {

/// One kernel and problem, tuned.
struct Tuned {
  const Task* task = nullptr;
  key::TuningKey key;
  tune::Outcome outcome;
  Failures failures;  ///< of this run
};

bool is_good(const tune::Outcome& outcome) {
  const std::string& word = outcome.outcome;
  return word == "won" || word == "default_kept" || word == "answered" || (word == "budget" && outcome.winner);
}

/// What an outcome means to a person.
std::string outcome_text(const tune::Outcome& outcome) {
  const std::string& word = outcome.outcome;
  std::string text = word;
  if (word == "won") text = "tuned";
  if (word == "default_kept") text = "the default config is the fastest, within a tie";
  if (word == "answered") text = "tuned already (--force tunes it again)";
  if (word == "budget") text = "the budget is used up; a longer --budget goes on from here";
  if (word == "cancelled") text = "interrupted; the same command goes on from here";
  if (word == "out_of_memory") text = "the GPU's memory does not hold its buffers";
  if (word == "no_valid_config") text = "no config works";
  if (word == "error") text = "failed";
  if (word == "held") return outcome.note;
  return outcome.note.empty() || word == "answered" ? text : text + ": " + outcome.note;
}

std::string problem_report(const Tuned& tuned) {
  const tune::Outcome& outcome = tuned.outcome;
  std::string text = tuned.task->label() + "\n";
  text += "  " + outcome_text(outcome) + "\n";
  if (outcome.winner) {
    const store::WinnerRow& winner = *outcome.winner;
    text += "  winner   " + values_text(winner.config) + "   " + time_text(winner.median_us) + "\n";
    const auto fallback = tuned.task->instance.default_config();
    if (fallback)
      text += "  default  " + space::short_text(*fallback) + "   " +
              (winner.default_us > 0 ? time_text(winner.default_us) + "   " +
                                           ratio_text(winner.default_us, winner.median_us) + " the winner's time"
                                     : "no time is known: it failed, or was not measured with the winner") +
              "\n";
  }
  if (!outcome.reference.empty())
    text += "  checked against " + outcome.reference +
            (outcome.reference_us > 0 ? "   " + time_text(outcome.reference_us) : "") + "\n";
  text += tuned.failures.text();
  if (outcome.trials > 0)
    text += "  " + count_text(static_cast<uint64_t>(outcome.trials), "trial") + ": " + std::to_string(outcome.ok) +
            " ok, " + std::to_string(outcome.early_stopped) + " stopped early, " +
            (outcome.skipped > 0 ? std::to_string(outcome.skipped) + " skipped, " : std::string()) +
            std::to_string(outcome.failed) + " failed; " +
            count_text(static_cast<uint64_t>(outcome.compilations), "compilation") + "\n  " +
            duration_text(outcome.wall_ms) + " in all: compile " + duration_text(outcome.compile_ms) + ", measure " +
            duration_text(outcome.measure_ms) + ", overlapping; early stop saved " +
            duration_text(outcome.costs.saved_ms) + " of kernel time\n";
  return text + "\n";
}

std::string winners_table(const std::vector<Tuned>& all) {
  Table table({{"kernel"},
               {"problem"},
               {"winner"},
               {"time", Table::Align::right},
               {"default", Table::Align::right},
               {"ratio", Table::Align::right},
               {"outcome"}});
  for (const Tuned& tuned : all) {
    const auto& winner = tuned.outcome.winner;
    table.add({tuned.task->instance.model().name(), space::short_text(tuned.task->instance.problem()),
               winner ? values_text(winner->config) : "-", winner ? time_text(winner->median_us) : "-",
               winner ? time_text(winner->default_us) : "-",
               winner ? ratio_text(winner->default_us, winner->median_us) : "-", tuned.outcome.outcome});
  }
  return table.text();
}

/// JSON of a time, null where it is not known.
Json known_us(double us) {
  return us > 0 ? Json(us) : Json();
}

Json to_json(const Tuned& tuned) {
  const tune::Outcome& outcome = tuned.outcome;
  Json json{{"kernel", tuned.task->instance.model().name()},
            {"problem", Json::parse(space::canonical(tuned.task->instance.problem()))},
            {"key", tuned.key.sha256},
            {"outcome", outcome.outcome},
            {"note", outcome.note},
            {"winner", nullptr},
            {"trials",
             {{"total", outcome.trials},
              {"ok", outcome.ok},
              {"failed", outcome.failed},
              {"early_stopped", outcome.early_stopped},
              {"skipped", outcome.skipped}}},
            {"failures", tuned.failures.json()},
            {"compilations", outcome.compilations},
            {"reference", outcome.reference},
            {"reference_us", known_us(outcome.reference_us)},
            {"wall_ms", outcome.wall_ms},
            {"compile_ms", outcome.compile_ms},
            {"measure_ms", outcome.measure_ms},
            {"devices", outcome.devices},
            {"costs",
             {{"method", outcome.costs.method},
              {"wait_ms", outcome.costs.wait_ms},
              {"load_ms", outcome.costs.load_ms},
              {"check_ms", outcome.costs.check_ms},
              {"run_ms", outcome.costs.run_ms},
              {"rematch_ms", outcome.costs.rematch_ms},
              {"saved_ms", outcome.costs.saved_ms},
              {"drift", outcome.costs.drift}}}};
  if (const auto fallback = tuned.task->instance.default_config())
    json["default_config"] = Json::parse(space::canonical(*fallback));
  if (outcome.winner)
    json["winner"] = {{"config", Json::parse(outcome.winner->config, nullptr, false)},
                      {"median_us", known_us(outcome.winner->median_us)},
                      {"default_us", known_us(outcome.winner->default_us)}};
  return json;
}

void check_bounded(const std::vector<Task>& tasks, const Options& options) {
  if (options.budget.count() > 0 || options.trials > 0 || options.patience > 0) return;
  for (const Task& task : tasks)
    if (is_vast(task.instance))
      throw Stop(Exit::usage, task.label() +
                                  ": its space has more than 100000 configs; say how long to search, with "
                                  "--budget 10m or --trials 400 for instance");
}

Tuned tune_one(Session& session, tune::Services& services, const Task& task,
               const std::vector<space::DeviceInfo>& devices, const std::string& place) {
  Tuned tuned{&task, {}, {}, {}};
  Result<key::TuningKey> key = services.tuning_key(task.instance);
  if (!key) {
    tuned.outcome.outcome = "error";
    tuned.outcome.note = key.error();
    return tuned;
  }
  tuned.key = *key;
  tune::Request request;
  request.instance = &task.instance;
  request.key = *key;
  request.more_devices.assign(devices.begin() + 1, devices.end());
  request.budget = session.options().budget;
  request.force = session.options().force;
  request.resume = tune::is_unfinished(services.store(), *key, task.instance);
  request.default_reference = session.options().default_reference;
  request.seed = session.options().seed;
  const Options& options = session.options();
  request.search = {.strategy = options.strategy,
                    .command = options.strategy_command,
                    .trials = options.trials,
                    .improvement = options.improvement / 100,
                    .window = options.patience,
                    .surrogate = options.surrogate,
                    .xgboost = options.xgboost,
                    .measure_all = options.measure_all};
  if (task.data != nullptr)
    if (const auto fallback = task.instance.default_config())
      if (const auto args = task.instance.args(*fallback, {1, 0, 0, 1})) {
        request.data = task.data->sources(*args);
        request.scalars = task.data->scalars(*args);
      }
  request.cancelled = interrupted;
  request.on_trial = [&](const store::TrialRow& trial) {
    if (trial.status != "ok" && trial.status != "early_stopped" && trial.status != "skipped")
      tuned.failures.add(trial.status, trial.error, trial.config);
  };
  request.on_progress = [&](const tune::Progress& now) {
    session.progress().update({place + task.label(), now.total, static_cast<uint64_t>(now.done),
                               static_cast<uint64_t>(now.failed), now.best_us, now.default_us, now.elapsed_ms,
                               now.budget_ms, static_cast<uint64_t>(now.skipped)});
  };
  tuned.outcome = tune::tune(services, request);
  session.progress().clear();
  return tuned;
}

Exit exit_for(const std::vector<Tuned>& all) {
  size_t bad = 0, no_config = 0;
  for (const Tuned& tuned : all) {
    if (tuned.outcome.outcome == "no_valid_config") ++no_config;
    if (!is_good(tuned.outcome)) ++bad;
  }
  if (interrupted()) return Exit::interrupted;
  if (bad == 0) return Exit::ok;
  return no_config == all.size() ? Exit::no_valid_config : Exit::partly;
}

}  // namespace

Exit run_tune(Session& session) {
  const bool json = session.options().json;
  const bool from_database = session.options().from_misses;
  std::vector<Work> work;
  if (!session.options().captures.empty())
    work = load_captures(session.options());
  else if (!from_database)
    work = session.load();  // what is wrong with files is told before anything is opened
  const std::vector<space::DeviceInfo> devices = session.gpus();
  const space::DeviceInfo& device = devices.front();
  if (from_database) {
    const auto store = session.open_store();
    work = session.load_from(*store, device);
  }
  const std::vector<Task> tasks = session.tasks(work, device);
  check_bounded(tasks, session.options());
  const std::unique_ptr<tune::Services> services = session.open_services();
  if (!json)
    print("on " + (devices.size() > 1 ? std::to_string(devices.size()) + " x " : "") + device.name + " (" +
          device.arch() + "), database " + services->store().path() + "\n\n");

  std::vector<Tuned> all;
  for (size_t i = 0; i < tasks.size() && !interrupted(); ++i) {
    const std::string place =
        tasks.size() > 1 ? std::to_string(i + 1) + "/" + std::to_string(tasks.size()) + " " : std::string();
    all.push_back(tune_one(session, *services, tasks[i], devices, place));
    if (!json) print(problem_report(all.back()));
    std::fflush(stdout);
  }

  const Exit exit = exit_for(all);
  if (!json) {
    print(winners_table(all));
    if (all.size() < tasks.size()) print(std::to_string(tasks.size() - all.size()) + " more were not begun\n");
    return exit;
  }
  Json results = Json::array();
  for (const Tuned& tuned : all) results.push_back(to_json(tuned));
  print(Json{{"device", {{"name", device.name}, {"uuid", device.uuid}, {"arch", device.arch()}}},
             {"database", services->store().path()},
             {"nvrtc", services->nvrtc()->build},
             {"results", results},
             {"not_begun", tasks.size() - all.size()},
             {"exit_code", static_cast<int>(exit)}}
            .dump(2, ' ', false, Json::error_handler_t::replace) +
        "\n");
  return exit;
}

}  // namespace jitune::prewarm
