#include <algorithm>
#include <map>
#include <stdexcept>

#include "jitune/reference_data.hpp"
#include "store/sqlite.hpp"
#include "tune/compiler.hpp"
#include "tune/fixture.hpp"

using namespace jitune;
using test::Bench;

namespace {

// Template arguments are BLOCK and ITEMS: 128 x 4 takes 40 us, the default 64 x 1 takes 100 us.
constexpr const char* kPlain = R"({"kernels": [{"match": "scale<", "time_us": 100, "spread": 0, "noise": 0.001,
  "factors": [{"64": 1.0, "128": 0.5, "256": 0.7}, {"1": 1.0, "2": 0.9, "4": 0.8}]}]})";

std::map<std::string, store::TrialRow> trials(Bench& bench, const std::string& key) {
  auto rows = bench.services().store().trials_of(key);
  REQUIRE(rows.ok());
  std::map<std::string, store::TrialRow> by_config;
  for (auto& row : *rows) by_config[row.config] = row;
  return by_config;
}

}  // namespace

TEST_CASE("a study tries the whole space, finds the fastest config and stores it with its cubin") {
  if (!test::have_nvrtc()) return;
  Bench bench(kPlain);
  int told = 0;
  const auto outcome = bench.tune(Bench::scale(), [&](tune::Request& request) {
    request.on_progress = [&](const tune::Progress& progress) {
      ++told;
      CHECK(progress.total == 9);
      CHECK(progress.done == told);
    };
  });
  REQUIRE_MESSAGE(outcome.outcome == "won", outcome.note);
  CHECK(outcome.trials == 9);
  CHECK(outcome.failed == 0);
  CHECK(told == 9);
  CHECK(outcome.compilations == 10);  // nine configs and the worker's own kernels
  REQUIRE(outcome.winner.has_value());
  CHECK(outcome.winner->config == R"({"BLOCK":128,"ITEMS":4})");
  CHECK(outcome.winner->median_us == doctest::Approx(40).epsilon(0.02));
  CHECK(outcome.winner->default_us == doctest::Approx(100).epsilon(0.02));

  const auto key = bench.request(Bench::scale()).key.sha256;
  auto stored = bench.services().store().find_winner(key);
  REQUIRE(stored.ok());
  REQUIRE(stored->has_value());
  CHECK((*stored)->config == outcome.winner->config);
  REQUIRE((*stored)->artifact.has_value());
  CHECK((*stored)->artifact->cubin.substr(1, 3) == "ELF");
  const auto rows = trials(bench, key);
  CHECK(rows.size() == 9);
  CHECK(rows.at(R"({"BLOCK":64,"ITEMS":1})").status == "ok");
  // The slowest can't have been sampled to the end: its first sample is far above the best.
  int early = 0;
  for (const auto& [config, row] : rows) early += row.status == "early_stopped" ? 1 : 0;
  CHECK(early == outcome.early_stopped);
}

TEST_CASE("the next process finds the answer and starts nothing") {
  if (!test::have_nvrtc()) return;
  Bench bench(kPlain);
  REQUIRE(bench.tune(Bench::scale()).outcome == "won");
  bench.reopen();
  const auto again = bench.tune(Bench::scale());
  REQUIRE(again.outcome == "answered");
  REQUIRE(again.winner.has_value());
  CHECK(again.winner->config == R"({"BLOCK":128,"ITEMS":4})");
  CHECK(again.trials == 0);
  CHECK(bench.services().workers_started() == 0);
}

TEST_CASE("a default config that is as good as any stays") {
  if (!test::have_nvrtc()) return;
  Bench bench(R"({"kernels": [{"match": "scale<", "time_us": 50, "spread": 0, "noise": 0.002}]})");
  const auto outcome = bench.tune(Bench::scale());
  REQUIRE_MESSAGE(outcome.outcome == "default_kept", outcome.note);
  REQUIRE(outcome.winner.has_value());
  CHECK(outcome.winner->config == R"({"BLOCK":64,"ITEMS":1})");
}

TEST_CASE("a space that grows by one value costs only the new configs") {
  if (!test::have_nvrtc()) return;
  Bench bench(kPlain);
  REQUIRE(bench.tune(Bench::scale()).trials == 9);
  auto grown = Bench::scale();
  grown.params[1].values.emplace_back(8);
  bench.reopen();
  const auto outcome = bench.tune(grown, [](tune::Request& request) { request.resume = true; });
  REQUIRE_MESSAGE(outcome.outcome == "won", outcome.note);
  REQUIRE(outcome.winner.has_value());
  CHECK(outcome.winner->config == R"({"BLOCK":128,"ITEMS":4})");  // found then, measured again now
  // Three new configs, the default config as reference, and for the rematch the old winner, with the two old configs
  // that are near the best of the new ones where they were measured to the end then.
  CHECK(outcome.trials >= 5);
  CHECK(outcome.trials <= 7);
}

TEST_CASE("a study that was cancelled goes on where it stopped") {
  if (!test::have_nvrtc()) return;
  Bench bench(kPlain);
  int done = 0;
  const auto first = bench.tune(Bench::scale(), [&](tune::Request& request) {
    request.on_trial = [&](const store::TrialRow&) { ++done; };
    request.cancelled = [&] { return done >= 4; };
  });
  REQUIRE(first.outcome == "cancelled");
  CHECK(first.trials >= 4);
  CHECK(first.trials <= 5);  // the one that is being measured while the fourth is told
  bench.reopen();
  const auto second = bench.tune(Bench::scale(), [](tune::Request& request) { request.resume = true; });
  REQUIRE_MESSAGE(second.outcome == "won", second.note);
  CHECK(second.winner->config == R"({"BLOCK":128,"ITEMS":4})");
  const auto rows = trials(bench, bench.request(Bench::scale()).key.sha256);
  CHECK(rows.size() == 9);
  CHECK(second.trials <= 11 - first.trials);  // the new ones, the default config, at most one old finalist
}

TEST_CASE("a perf_model function that throws is told once, and the study goes on without it") {
  if (!test::have_nvrtc()) return;
  Bench bench(kPlain);
  auto definition = Bench::scale();
  definition.perf_model = PerfModel{.function = [](const std::map<std::string, Value>& values) -> double {
    if (values.at("BLOCK").as_int() > 64) throw std::runtime_error("no such block");
    return 1;
  }};
  const auto outcome = bench.tune(definition);
  CHECK(outcome.outcome == "won");
  CHECK(outcome.trials == 9);
  CHECK(bench.logged("perf_model") == 1);
}

TEST_CASE("configs that fill little of an SM are skipped when others like them have lost, and said so") {
  if (!test::have_nvrtc()) return;
  Bench bench(R"({"kernels": [{"match": "scale<", "time_us": 100, "spread": 0, "noise": 0.001,
    "factors": [{"64": 1.0, "128": 0.5}, {}, {"0": 1.0, "150000": 1.5}]}]})");
  auto definition = Bench::scale();
  definition.source_text.replace(0, std::string("template <int BLOCK, int ITEMS>").size(),
                                 "template <int BLOCK, int ITEMS, int SHARED>");
  definition.entry = "scale<{BLOCK}, {ITEMS}, {SHARED}>";
  definition.params = {
      {"BLOCK", {64, 128}}, {"ITEMS", {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}}, {"SHARED", {0, 150000}}};
  definition.require = {"SHARED > 0 ? BLOCK == 64 : ITEMS == 1"};
  definition.launch.shared_bytes = "SHARED";
  definition.defaults = {{.config = {{"BLOCK", "64"}, {"ITEMS", "1"}, {"SHARED", "0"}}}};
  int told = 0, seen = 0;
  const auto outcome = bench.tune(definition, [&](tune::Request& request) {
    request.on_progress = [&](const tune::Progress& progress) { told = progress.skipped; };
    request.on_trial = [&](const store::TrialRow& row) { seen += row.status == "skipped"; };
  });
  REQUIRE_MESSAGE(outcome.outcome == "won", outcome.note);
  CHECK(outcome.winner->config == R"({"BLOCK":128,"ITEMS":1,"SHARED":0})");
  CHECK(outcome.trials == 16);
  // Fourteen are in doubt. Twelve of them run, and one more each time that the fast config is not known yet.
  CHECK(outcome.skipped >= 1);
  CHECK(outcome.skipped <= 2);
  CHECK(outcome.failed == 0);
  CHECK(outcome.ok + outcome.early_stopped + outcome.skipped == 16);
  CHECK(told == outcome.skipped);
  CHECK(seen == outcome.skipped);
  int stored = 0;
  for (const auto& [config, row] : trials(bench, bench.request(definition).key.sha256)) {
    if (row.status != "skipped") continue;
    ++stored;
    CHECK(row.error.find("its occupancy is 0.031; of 12 configs with more (below 0.250), the best is ") !=
          std::string::npos);
    CHECK(row.occupancy == doctest::Approx(64 / 2048.0));
    CHECK(row.shared_bytes == 150000);
    CHECK(row.samples == 0);
  }
  CHECK(stored == outcome.skipped);

  // They stay skipped for the next study, until somebody wants all of them.
  const auto again = bench.tune(definition, [](tune::Request& request) { request.resume = true; });
  CHECK(again.skipped == 0);
  CHECK(again.trials <= 4);
  const auto all = bench.tune(definition, [](tune::Request& request) {
    request.resume = true;
    request.search.measure_all = true;
  });
  CHECK(all.skipped == 0);
  for (const auto& [config, row] : trials(bench, bench.request(definition).key.sha256)) CHECK(row.status != "skipped");
}

TEST_CASE("the author's perf_model decides which configs a short study tries") {
  if (!test::have_nvrtc()) return;
  Bench bench(kPlain);
  auto definition = Bench::scale();
  definition.perf_model = PerfModel{.expression = "BLOCK == 256 ? ITEMS : 1000", .top_k = 2};
  const auto outcome = bench.tune(definition, [](tune::Request& request) { request.search.trials = 3; });
  CHECK(outcome.trials == 3);
  const auto rows = trials(bench, bench.request(Bench::scale()).key.sha256);  // of the same key as without it
  CHECK(rows.contains(R"({"BLOCK":64,"ITEMS":1})"));
  CHECK(rows.contains(R"({"BLOCK":256,"ITEMS":1})"));
  CHECK(rows.contains(R"({"BLOCK":256,"ITEMS":2})"));
}

TEST_CASE("the budget ends a study; what was verified until then is the answer") {
  if (!test::have_nvrtc()) return;
  Bench bench(
      R"({"real_time": true, "kernels": [{"match": "scale<", "time_us": 30000, "spread": 0.3, "noise": 0.001}]})");
  auto wide = Bench::scale();
  wide.params[1].values.clear();
  for (int items = 1; items <= 64; ++items) wide.params[1].values.emplace_back(items);
  const auto outcome = bench.tune(wide, [](tune::Request& request) { request.budget = std::chrono::seconds(4); });
  REQUIRE_MESSAGE(outcome.outcome == "budget", outcome.note);
  CHECK(outcome.trials < 192);
  REQUIRE(outcome.winner.has_value());
  CHECK(outcome.winner->median_us <= outcome.winner->default_us);
  CHECK(outcome.wall_ms < 9000);
}

TEST_CASE("compile_all compiles every config once and has nothing to do the second time") {
  if (!test::have_nvrtc()) return;
  Bench bench(kPlain);
  auto request = bench.request(Bench::scale());
  auto report = tune::compile_all(bench.services(), {.instance = request.instance});
  REQUIRE_MESSAGE(report.ok(), report.error());
  CHECK(report->configs == 9);
  CHECK(report->compiled == 9);
  CHECK(report->failed == 0);
  CHECK(report->workers_started >= 1);
  bench.reopen();
  auto next = bench.request(Bench::scale());
  auto again = tune::compile_all(bench.services(), {.instance = next.instance});
  REQUIRE(again.ok());
  CHECK(again->from_store == 9);
  CHECK(again->compiled == 0);
  CHECK(again->workers_started == 0);
  // Tuning afterwards compiles nothing but the worker's own kernels.
  const auto outcome = bench.tune(Bench::scale());
  REQUIRE_MESSAGE(outcome.outcome == "won", outcome.note);
  CHECK(outcome.compilations == 1);
}

TEST_CASE("a study stops when its lease is lost, and leaves the key to whoever has it") {
  if (!test::have_nvrtc()) return;
  Bench bench(kPlain);
  const auto outcome = bench.tune(Bench::scale(), [&](tune::Request& request) {
    request.on_trial = [&, trials = 0](const store::TrialRow&) mutable {
      if (++trials != 2) return;
      constexpr int kReadWrite = 2;  // SQLITE_OPEN_READWRITE
      store::Database(bench.services().store().path(), kReadWrite).execute("UPDATE leases SET holder = 'another'");
    };
  });
  CHECK(outcome.outcome == "cancelled");
  CHECK(outcome.note.find("taken the key over") != std::string::npos);
  CHECK(outcome.trials >= 3);  // the one that finds out is kept too
  CHECK(outcome.trials < 9);
  const auto key = bench.request(Bench::scale()).key;
  CHECK(trials(bench, key.sha256).size() == static_cast<size_t>(outcome.trials));
  CHECK_FALSE(bench.services().store().find_winner(key.sha256)->has_value());
  CHECK(bench.services().store().list()->at(0).last_outcome == "cancelled");
}

TEST_CASE("what won with another NVRTC is tried first, whatever other keys' trials say") {
  if (!test::have_nvrtc()) return;
  Bench bench(kPlain);
  REQUIRE(bench.tune(Bench::scale()).outcome == "won");
  auto& store = bench.services().store();
  // Nearer, by other options alone, and of another mind.
  key::TuningKey nearer = bench.request(Bench::scale()).key;
  nearer.options = "{}";
  nearer.nvrtc = "12.9.86";
  key::seal(nearer);
  const auto claim = store.claim(nearer, std::chrono::seconds(60), false);
  store::StudyRow about;
  about.strategy = "random";
  about.space = about.default_config = "{}";
  const auto study = store.begin_study(nearer, about);
  REQUIRE(study.ok());
  for (const char* config : {R"({"BLOCK":64,"ITEMS":4})", R"({"BLOCK":256,"ITEMS":1})", R"({"BLOCK":256,"ITEMS":2})"}) {
    store::TrialRow row;
    row.config = config;
    row.status = "ok";
    row.samples = 3;
    row.min_us = row.median_us = row.mean_us = row.max_us = row.first_us = config[9] == '6' ? 1 : 1000;
    REQUIRE(store.add_trial(*study, claim->lease, row).ok());
  }
  REQUIRE(store.end_study(*study, claim->lease, {"no_valid_config", ""}, std::nullopt).ok());
  const auto outcome = bench.tune(Bench::scale(), [](tune::Request& request) {
    request.key.nvrtc = "12.9.86";
    key::seal(request.key);
    request.search.trials = 2;  // the default config and one more
  });
  REQUIRE(outcome.winner.has_value());
  CHECK(outcome.winner->config == R"({"BLOCK":128,"ITEMS":4})");
}

namespace {

/// `scale` in buckets, measured at small and large n: 64 is best at the one, 128 at the other.
constexpr const char* kByBlocks = R"({"kernels": [{"match": "scale<", "time_us": 20, "per_block_us": 0.1, "spread": 0,
  "noise": 0.001, "factors": [{"64": 1, "128": 2, "256": 4}]}]})";

KernelDefinition at_two_problems(double weight_of_small) {
  auto definition = Bench::scale();
  definition.params[1].values = {1};
  definition.problem = {{"n", "n > 1000 ? 1 : 0"}};
  definition.tune_at = {{.problem = {{"n", "2048"}}, .weight = weight_of_small}, {.problem = {{"n", "65536"}}}};
  return definition;
}

}  // namespace

TEST_CASE("a bucket with representatives is tuned at all of them: the least mean by weight wins, right at each") {
  if (!test::have_nvrtc()) return;
  Bench bench(kByBlocks);
  // Alone at the launch's own 4,096 elements 64 is best by far.
  auto alone = at_two_problems(1);
  alone.tune_at.clear();
  const auto own = bench.tune(alone);
  REQUIRE_MESSAGE(own.outcome == "default_kept", own.note);
  CHECK(own.winner->median_us == doctest::Approx(26.4).epsilon(0.02));
  const auto even = bench.tune(at_two_problems(1));
  REQUIRE_MESSAGE(even.outcome == "won", even.note);
  CHECK(even.winner->config == R"({"BLOCK":128,"ITEMS":1})");
  CHECK(even.winner->median_us == doctest::Approx((41.6 + 91.2) / 2).epsilon(0.02));
  CHECK(even.winner->default_us == doctest::Approx((23.2 + 122.4) / 2).epsilon(0.02));
  CHECK(even.costs.method.find("mean over n=2048 (1), n=65536 (1)") != std::string::npos);
  const auto heavy = bench.tune(at_two_problems(3));  // another key: it is measured by other weights
  REQUIRE_MESSAGE(heavy.outcome == "default_kept", heavy.note);
  CHECK(heavy.winner->median_us == doctest::Approx((3 * 23.2 + 122.4) / 4).epsilon(0.02));
  CHECK(bench.request(at_two_problems(3)).key.sha256 != bench.request(at_two_problems(1)).key.sha256);
  CHECK(bench.request(alone).key.sha256 != bench.request(at_two_problems(1)).key.sha256);
}

TEST_CASE(
    "a config that is not possible at one representative is skipped, the default config too; a reference judges at "
    "each") {
  if (!test::have_nvrtc()) return;
  Bench bench(kByBlocks);
  auto definition = at_two_problems(1);
  definition.require = {"n / BLOCK <= 512"};
  definition.host_reference = {"1", [](const ReferenceData& data) {
                                 const auto x = data.in<float>("x");
                                 const auto y = data.out<float>("y");
                                 for (size_t i = 0; i < y.size(); ++i) y[i] = data.scalar<float>("a") * x[i];
                               }};
  const auto outcome = bench.tune(definition);
  REQUIRE_MESSAGE(outcome.outcome == "won", outcome.note);
  CHECK(outcome.winner->config == R"({"BLOCK":128,"ITEMS":1})");
  CHECK(outcome.winner->default_us == 0);
  CHECK_MESSAGE(outcome.note.find("no default config: not possible at n=65536") == 0, outcome.note);
  CHECK(outcome.reference == "host 1");
  const auto rows = trials(bench, bench.request(definition).key.sha256);
  CHECK(rows.at(R"({"BLOCK":64,"ITEMS":1})").status == "skipped");
  CHECK(rows.at(R"({"BLOCK":256,"ITEMS":1})").status == "ok");
  definition.host_reference->version = "2";
  definition.host_reference->function = [](const ReferenceData& data) {
    const auto x = data.in<float>("x");
    const auto y = data.out<float>("y");  // right at the small problem only
    for (size_t i = 0; i < y.size(); ++i) y[i] = y.size() > 2048 ? 0 : data.scalar<float>("a") * x[i];
  };
  const auto refused = bench.tune(definition);
  CHECK(refused.outcome == "no_valid_config");
  const auto wrong = trials(bench, bench.request(definition).key.sha256);
  CHECK(wrong.at(R"({"BLOCK":128,"ITEMS":1})").status == "wrong_result");
  CHECK(wrong.at(R"({"BLOCK":128,"ITEMS":1})").error.find("at n=65536: ") == 0);
}
