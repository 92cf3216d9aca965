#include <map>

#include "tune/compiler.hpp"
#include "tune/fixture.hpp"

using namespace jitune;
using test::Bench;

namespace {

std::map<std::string, store::TrialRow> rows_of(Bench& bench) {
  auto rows = bench.services().store().trials_of(bench.request(Bench::scale()).key.sha256);
  REQUIRE(rows.ok());
  std::map<std::string, store::TrialRow> by_config;
  for (auto& row : *rows) by_config[row.config] = row;
  return by_config;
}

std::string with_fault(const std::string& fault) {
  return R"({"kernels": [{"match": "scale<256, 2>", "time_us": 1, "spread": 0, "fault": ")" + fault + R"("},
             {"match": "scale<", "time_us": 100, "spread": 0, "noise": 0.001,
              "factors": [{"64": 1.0, "128": 0.5, "256": 0.7}, {"1": 1.0, "2": 0.9, "4": 0.8}]}]})";
}

constexpr const char* kFaulty = R"({"BLOCK":256,"ITEMS":2})";

}  // namespace

TEST_CASE("one bad config becomes one failed trial; the others are ranked, whatever it does") {
  if (!test::have_nvrtc()) return;
  const std::pair<const char*, const char*> faults[] = {
      {"illegal_address", "run_crash"}, {"launch_error", "launch_error"},   {"wrong", "wrong_result"},
      {"half", "wrong_result"},         {"out_of_bounds", "out_of_bounds"},
  };
  for (const auto& [fault, status] : faults) {
    CAPTURE(fault);
    Bench bench(with_fault(fault));
    const auto outcome = bench.tune(Bench::scale());
    REQUIRE_MESSAGE(outcome.outcome == "won", outcome.note);
    CHECK(outcome.trials == 9);
    CHECK(outcome.failed == 1);
    REQUIRE(outcome.winner.has_value());
    CHECK(outcome.winner->config == R"({"BLOCK":128,"ITEMS":4})");
    const auto rows = rows_of(bench);
    CHECK(rows.at(kFaulty).status == status);
    CHECK_FALSE(rows.at(kFaulty).error.empty());
  }
}

TEST_CASE("a kernel that never ends costs its deadline and its worker, nothing else, and is not run again") {
  if (!test::have_nvrtc()) return;
  Bench bench(with_fault("hang"));
  const auto outcome = bench.tune(Bench::scale());
  REQUIRE_MESSAGE(outcome.outcome == "won", outcome.note);
  CHECK(outcome.winner->config == R"({"BLOCK":128,"ITEMS":4})");
  CHECK(rows_of(bench).at(kFaulty).status == "run_timeout");
  CHECK(outcome.wall_ms < 40000);
  CHECK(bench.logged("spare_worker") == 1);  // ready before the stuck one was given up
  // A later study of the key knows it: no deadline is spent on it.
  bench.reopen();
  const auto again = bench.tune(Bench::scale(), [](tune::Request& request) { request.resume = true; });
  CHECK(again.failed == 0);
  CHECK(again.wall_ms < 10000);
}

TEST_CASE("where GPU memory is short there is no spare worker, and where kernels crash at once none is made") {
  if (!test::have_nvrtc()) return;
  const std::string small = R"({"devices": [{"memory_bytes": 1073741824}], )";
  for (const std::string& spec : {small + with_fault("hang").substr(1), with_fault("illegal_address")}) {
    Bench bench(spec);
    const auto outcome = bench.tune(Bench::scale());
    REQUIRE_MESSAGE(outcome.outcome == "won", outcome.note);
    CHECK(outcome.failed == 1);
    CHECK(bench.logged("spare_worker") == 0);
  }
}

TEST_CASE("a default config that fails is reported, and the first good config is the reference") {
  if (!test::have_nvrtc()) return;
  Bench bench(R"({"kernels": [{"match": "scale<64, 1>", "fault": "launch_error"},
             {"match": "scale<", "time_us": 100, "spread": 0, "factors": [{"128": 0.5}, {"4": 0.5}]}]})");
  const auto outcome = bench.tune(Bench::scale());
  REQUIRE_MESSAGE(outcome.outcome == "won", outcome.note);
  CHECK(outcome.failed == 1);
  CHECK(outcome.winner->config == R"({"BLOCK":128,"ITEMS":4})");
  CHECK(outcome.winner->default_us == 0);
}

TEST_CASE("without a default config that runs, the disagreement is reported by groups") {
  if (!test::have_nvrtc()) return;
  Bench bench(R"({"kernels": [{"match": "scale<64, 1>", "fault": "launch_error"},
             {"match": "scale<256", "fault": "wrong"},
             {"match": "scale<", "time_us": 100, "spread": 0, "factors": [{"128": 0.5}, {"4": 0.5}]}]})");
  const auto outcome = bench.tune(Bench::scale());
  CHECK_MESSAGE(outcome.note.find("the results disagree and there is no reference to trust") != std::string::npos,
                outcome.note);
  // Which of them came first is chance; five are right and three are wrong in one way.
  CHECK(outcome.note.find("5 as BLOCK=") != std::string::npos);
  CHECK(outcome.note.find("3 as BLOCK=256") != std::string::npos);
}

TEST_CASE("a source that does not compile in any config ends without a winner and says why") {
  if (!test::have_nvrtc()) return;
  Bench bench("{}");
  auto broken = Bench::scale();
  broken.source_text += "\nthis is not CUDA;\n";
  const auto outcome = bench.tune(broken);
  REQUIRE(outcome.outcome == "no_valid_config");
  CHECK_FALSE(outcome.winner.has_value());
  CHECK(outcome.failed == 9);
  auto rows = bench.services().store().trials_of(bench.request(broken).key.sha256);
  REQUIRE(rows.ok());
  for (const auto& row : *rows) {
    CHECK(row.status == "compile_error");
    CHECK(row.error.find("error") != std::string::npos);
  }
}

TEST_CASE("compile failures are kept and not compiled again") {
  if (!test::have_nvrtc()) return;
  Bench bench("{}");
  auto broken = Bench::scale();
  broken.source_text += "\nthis is not CUDA;\n";
  auto request = bench.request(broken);
  auto first = tune::compile_all(bench.services(), {.instance = request.instance});
  REQUIRE_MESSAGE(first.ok(), first.error());
  CHECK(first->compiled == 9);
  CHECK(first->failed == 9);
  bench.reopen();
  auto next = bench.request(broken);
  auto second = tune::compile_all(bench.services(), {.instance = next.instance});
  REQUIRE(second.ok());
  CHECK(second->from_store == 9);
  CHECK(second->failed == 9);
  CHECK(second->workers_started == 0);
}

TEST_CASE("a config that compiles for ever costs its deadline once, and is remembered") {
  if (!test::have_nvrtc()) return;
  Bench bench("{}", std::chrono::seconds(4));
  auto endless = Bench::scale();
  endless.source_text =
      "template <int D> __device__ __forceinline__ float deep(float x) { return deep<D - 1>(x) + deep<D - 1>(x * 2) + "
      "deep<D - 1>(x * 3); }\n"
      "template <> __device__ __forceinline__ float deep<0>(float x) { return x * x; }\n"
      "template <int BLOCK, int ITEMS> __global__ void scale(float* y, const float* x, float a, int n) { "
      "if (BLOCK == 256 && ITEMS == 2) y[0] = deep<13>(a); }";
  auto request = bench.request(endless);
  auto first = tune::compile_all(bench.services(), {.instance = request.instance});
  REQUIRE_MESSAGE(first.ok(), first.error());
  CHECK(first->compiled == 9);
  CHECK(first->failed == 1);
  bench.reopen();
  auto next = bench.request(endless);
  std::string status;
  auto second = tune::compile_all(
      bench.services(), {.instance = next.instance, .on_compiled = [&](const tune::Compiled& compiled, const auto&) {
                           if (compiled.artifact.status != "ok") status = compiled.artifact.status;
                         }});
  REQUIRE(second.ok());
  CHECK(second->from_store == 9);
  CHECK(second->workers_started == 0);
  CHECK(status == "timeout");
}

TEST_CASE("among 20 good configs, one that compiles for ever is ended at its 2 s limit and the others are unaffected") {
  if (!test::have_nvrtc()) return;
  Bench bench("{}", std::chrono::seconds(2));
  auto endless = Bench::scale();
  endless.params = {{"BLOCK", {32, 64, 96, 128, 160, 192, 256}}, {"ITEMS", {1, 2, 4}}};
  endless.source_text =
      "template <int D> __device__ __forceinline__ float deep(float x) { return deep<D - 1>(x) + deep<D - 1>(x * 2) + "
      "deep<D - 1>(x * 3); }\n"
      "template <> __device__ __forceinline__ float deep<0>(float x) { return x * x; }\n"
      "template <int BLOCK, int ITEMS> __global__ void scale(float* y, const float* x, float a, int n) { "
      "if (BLOCK == 256 && ITEMS == 2) y[0] = deep<13>(a); else y[threadIdx.x] = BLOCK * ITEMS * a; }";
  double killed_after_ms = 0;
  int good = 0;
  const auto count = [&](const tune::Compiled& compiled, const auto&) {
    if (compiled.artifact.status == "ok") ++good;
    if (compiled.artifact.status == "timeout" && !compiled.from_store) killed_after_ms = compiled.artifact.compile_ms;
  };
  auto request = bench.request(endless);
  auto first = tune::compile_all(bench.services(), {.instance = request.instance, .on_compiled = count});
  REQUIRE_MESSAGE(first.ok(), first.error());
  CHECK(good == 20);
  CHECK(killed_after_ms >= 2000);
  CHECK(killed_after_ms < 2200);
  MESSAGE("killed and reaped after " << killed_after_ms << " ms");
  bench.reopen();
  good = 0;
  auto next = bench.request(endless);
  auto second = tune::compile_all(bench.services(), {.instance = next.instance, .on_compiled = count});
  REQUIRE_MESSAGE(second.ok(), second.error());
  CHECK(second->from_store == 21);
  CHECK(second->workers_started == 0);
  CHECK(good == 20);
}

TEST_CASE("a space without a valid config names what rejects it") {
  if (!test::have_nvrtc()) return;
  Bench bench("{}");
  auto impossible = Bench::scale();
  impossible.require = {"BLOCK > n"};
  const auto outcome = bench.tune(impossible);
  REQUIRE(outcome.outcome == "no_valid_config");
  CHECK(outcome.note.find("BLOCK > n") != std::string::npos);
}

TEST_CASE("a GPU that fails ends the study: nothing is published, no config is blamed") {
  if (!test::have_nvrtc()) return;
  const test::TempDir dir;
  std::string spec = with_fault("device_lost");
  spec.insert(1, "\"lost_file\": \"" + dir.path() + "/lost\", ");
  Bench bench(spec);
  const auto outcome = bench.tune(Bench::scale());
  CHECK(outcome.outcome == "error");
  CHECK_MESSAGE(outcome.note.find("the GPU failed: ") == 0, outcome.note);
  CHECK_FALSE(outcome.winner.has_value());
  CHECK(outcome.failed == 0);
  CHECK(rows_of(bench).count(kFaulty) == 0);
  CHECK_FALSE(*bench.services().store().find_winner(bench.request(Bench::scale()).key.sha256));
}

TEST_CASE("too little GPU memory is the study's outcome, not a config's fault") {
  if (!test::have_nvrtc()) return;
  Bench bench(R"({"devices": [{"name": "Small", "memory_bytes": 1048576, "l2_bytes": 65536}]})");
  auto large = Bench::scale();
  for (auto& arg : large.args)
    if (arg.kind != ArgKind::scalar) arg.count = "n * 1000";
  const auto outcome = bench.tune(large);
  REQUIRE_MESSAGE(outcome.outcome == "out_of_memory", outcome.note);
  CHECK(outcome.trials == 0);
}

TEST_CASE("a held lease is respected") {
  if (!test::have_nvrtc()) return;
  Bench bench("{}");
  const auto key = bench.request(Bench::scale()).key;
  auto claim = bench.services().store().claim(key, std::chrono::seconds(60), false);
  REQUIRE(claim.ok());
  REQUIRE(claim->state == store::Claim::State::acquired);
  const auto outcome = bench.tune(Bench::scale());
  REQUIRE(outcome.outcome == "held");
  CHECK(outcome.trials == 0);
}
