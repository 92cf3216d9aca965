#include <algorithm>
#include <cmath>
#include <cstdio>
#include <thread>

#include "apps/prewarm/commands.hpp"
#include "apps/prewarm/replay_files.hpp"
#include "apps/prewarm/table.hpp"
#include "base/files.hpp"
#include "base/json.hpp"
#include "search/xgboost.hpp"
#include "tune/study.hpp"

namespace jitune::prewarm {
namespace {

constexpr uint64_t kDefaultBudget = 200;

/// What the runs on one recording gave.
struct Replayed {
  const search::RecordedSpace* recorded = nullptr;
  std::vector<search::ReplayRun> runs;
};

std::string decimals(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

search::RecordedSpace from_database(Session& session, const std::string& prefix) {
  const auto store = session.open_store();
  const auto keys = store->find_keys(prefix);
  if (!keys) throw Stop(Exit::database, keys.error());
  if (keys->size() != 1)
    throw Stop(Exit::usage, "--from-database " + prefix + ": " +
                                (keys->empty() ? "no key begins so" : "several keys begin so; give more of it"));
  const auto trials = store->trials_of(keys->front().key.sha256);
  if (!trials) throw Stop(Exit::database, trials.error());
  std::vector<search::RecordedSpace::Row> rows;
  for (const store::TrialRow& trial : *trials) {
    search::Told told = tune::told_of(trial);
    // Another search, with another best at that time, might have measured it to the end.
    if (told.fate == search::Fate::early_stopped && told.time_us > 0) told.fate = search::Fate::ok;
    if (auto config = space::parse_values(trial.config)) rows.push_back({std::move(*config), told});
  }
  auto recorded = recorded_from_rows(keys->front().key.kernel, std::move(rows));
  if (!recorded) throw Stop(Exit::usage, "--from-database " + prefix + ": " + recorded.error());
  return std::move(*recorded);
}

std::vector<search::RecordedSpace> load_recordings(Session& session) {
  const Options& options = session.options();
  std::vector<search::RecordedSpace> all;
  for (const std::string& path : options.files) {
    auto recorded = read_recorded(path);
    if (!recorded) throw Stop(Exit::usage, recorded.error());
    all.push_back(std::move(*recorded));
  }
  if (!options.from_database.empty()) all.push_back(from_database(session, options.from_database));
  if (all.empty()) throw Stop(Exit::usage, "which recording? Give a file, or a key with --from-database");
  for (const search::RecordedSpace& recorded : all)
    if (recorded.optimum_us() <= 0)
      throw Stop(Exit::no_valid_config, recorded.name() + ": none of its configs worked, there is nothing to find");
  return all;
}

std::vector<size_t> marks(uint64_t budget) {
  std::vector<size_t> list;
  for (const size_t mark : {20UL, 50UL, 100UL, 200UL, 400UL, 800UL})
    if (mark < budget) list.push_back(mark);
  list.push_back(budget);
  return list;
}

double mean_proposal_ms(const std::vector<search::ReplayRun>& runs) {
  double sum = 0;
  for (const search::ReplayRun& run : runs) sum += run.proposal_ms;
  return sum / static_cast<double>(runs.size());
}

Json to_json(const Replayed& replayed, uint64_t budget) {
  Json f = Json::object(), share = Json::object();
  for (const size_t mark : marks(budget)) {
    f[std::to_string(mark)] = search::mean_f(replayed.runs, mark);
    share[std::to_string(mark)] = search::share_within(replayed.runs, 1 / 1.05, mark);
  }
  const double median = search::median_to_5_percent(replayed.runs, -1);
  return {{"recording", replayed.recorded->name()},
          {"configs", replayed.recorded->rows()},
          {"within_5_percent", replayed.recorded->count_within(1.05)},
          {"optimum_us", replayed.recorded->optimum_us()},
          {"f", f},
          {"share_within_5_percent", share},
          {"median_evaluations_to_5_percent", median < 0 ? Json() : Json(median)},
          {"proposal_ms", mean_proposal_ms(replayed.runs)}};
}

void print_table(const std::vector<Replayed>& all, const Options& options) {
  std::vector<Table::Column> columns{{"recording"}, {"configs", Table::Align::right}};
  for (const size_t mark : marks(options.trials))
    columns.push_back({"f(" + std::to_string(mark) + ")", Table::Align::right});
  for (const char* name : {"within 5 %", "to 5 %", "ms a proposal"}) columns.push_back({name, Table::Align::right});
  Table table(columns);
  for (const Replayed& replayed : all) {
    std::vector<std::string> cells{replayed.recorded->name(), std::to_string(replayed.recorded->rows())};
    for (const size_t mark : marks(options.trials)) cells.push_back(decimals(search::mean_f(replayed.runs, mark), 3));
    cells.push_back(decimals(100 * search::share_within(replayed.runs, 1 / 1.05, options.trials), 0) + " %");
    const double median = search::median_to_5_percent(replayed.runs, INFINITY);
    cells.push_back(std::isfinite(median) ? decimals(median, 0) : ">" + std::to_string(options.trials));
    cells.push_back(decimals(mean_proposal_ms(replayed.runs), 3));
    table.add(std::move(cells));
  }
  print(table.text());
}

}  // namespace

Exit run_replay(Session& session) {
  Options options = session.options();
  if (options.trials == 0) options.trials = kDefaultBudget;
  const std::vector<search::RecordedSpace> recordings = load_recordings(session);
  if (!options.export_path.empty()) {
    if (recordings.size() != 1) throw Stop(Exit::usage, "--export writes one recording; give one");
    const std::string origin = options.from_database.empty() ? options.files.front() : "jitune database";
    if (auto written = write_file_atomically(options.export_path, write_replay_csv(recordings.front(), "", origin));
        !written)
      throw Stop(Exit::partly, written.error());
    return Exit::ok;
  }
  search::ReplayOptions replay;
  replay.strategy.name = options.strategy;
  if (options.surrogate == "xgboost") {
    const auto library = search::load_xgboost(options.xgboost);
    if (!library) throw Stop(Exit::usage, library.error());
    replay.strategy.xgboost = *library;
  }
  replay.strategy.trials = options.trials;
  replay.budget = options.trials;
  replay.batch = options.batch;
  replay.noise = options.noise / 100;
  const size_t threads = std::max(1U, std::thread::hardware_concurrency());
  std::vector<Replayed> all;
  for (const search::RecordedSpace& recorded : recordings)
    all.push_back({&recorded, search::replay_seeds(recorded, replay, 1, options.seeds, threads)});
  if (!options.json) {
    print("strategy " + options.strategy +
          (options.surrogate == "forest" ? std::string() : " on " + options.surrogate) + ", seeds 1 to " +
          std::to_string(options.seeds) + ", batches of " + std::to_string(options.batch) + "\n");
    print_table(all, options);
    return Exit::ok;
  }
  Json results = Json::array();
  for (const Replayed& replayed : all) results.push_back(to_json(replayed, options.trials));
  print(Json{{"strategy", options.strategy},
             {"surrogate", options.surrogate},
             {"first_seed", 1},
             {"seeds", options.seeds},
             {"batch", options.batch},
             {"budget", options.trials},
             {"results", results}}
            .dump(2) +
        "\n");
  return Exit::ok;
}

}  // namespace jitune::prewarm
