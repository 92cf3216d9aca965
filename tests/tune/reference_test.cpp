// A definition's own reference: a kernel of it that is trusted.
#include <unistd.h>

#include <algorithm>
#include <map>
#include <stdexcept>

#include "jitune/reference_data.hpp"
#include "space/definition_json.hpp"
#include "tune/fixture.hpp"

using namespace jitune;
using test::Bench;

namespace {

// `scale` with a second kernel in its source that computes the same. The fake driver runs both as y = a x; the plain
// one is 50 times slower.
std::string spec_with(const std::string& rules) {
  return R"({"kernels": [)" + rules + R"({"match": "scale<float>", "time_us": 5000, "spread": 0},
    {"match": "scale<", "time_us": 100, "spread": 0, "noise": 0.001,
     "factors": [{"64": 1.0, "128": 0.5, "256": 0.7}, {"1": 1.0, "2": 0.9, "4": 0.8}]}]})";
}

KernelDefinition with_reference() {
  auto definition = Bench::scale();
  definition.reference = Bench::plain();
  return definition;
}

std::map<std::string, store::TrialRow> rows_of(Bench& bench, const KernelDefinition& definition) {
  auto rows = bench.services().store().trials_of(bench.request(definition).key.sha256);
  REQUIRE(rows.ok());
  std::map<std::string, store::TrialRow> by_config;
  for (auto& row : *rows) by_config[row.config] = row;
  return by_config;
}

}  // namespace

TEST_CASE("a default config that disagrees with the trusted reference is reported as wrong, and others win") {
  if (!test::have_nvrtc()) return;
  Bench bench(spec_with(R"({"match": "scale<64, 1>", "time_us": 100, "spread": 0, "fault": "wrong"},)"));
  const auto outcome = bench.tune(with_reference());
  REQUIRE_MESSAGE(outcome.outcome == "won", outcome.note);
  CHECK(outcome.trials == 9);
  CHECK(outcome.failed == 1);
  REQUIRE(outcome.winner.has_value());
  CHECK(outcome.winner->config == R"({"BLOCK":128,"ITEMS":4})");
  CHECK(outcome.winner->default_us == 0);
  CHECK_MESSAGE(outcome.note.find("the default config's result is wrong, by kernel scale<float>") == 0, outcome.note);
  CHECK(outcome.note.find("1 of 4096 elements differ") != std::string::npos);
  const auto rows = rows_of(bench, with_reference());
  CHECK(rows.at(R"({"BLOCK":64,"ITEMS":1})").status == "wrong_result");

  // Without the reference the wrong default config is what all others are held against.
  const auto fooled = bench.tune(Bench::scale());
  REQUIRE_MESSAGE(fooled.outcome == "default_kept", fooled.note);
  CHECK(fooled.failed == 8);
}

TEST_CASE("a reference's time is kept and decides nothing: short configs are still timed by graphs") {
  if (!test::have_nvrtc()) return;
  Bench bench(R"({"kernels": [{"match": "scale<float>", "time_us": 5000, "spread": 0},
    {"match": "scale<", "time_us": 10, "spread": 0, "noise": 0.001, "factors": [{"64": 1.0, "128": 0.5, "256": 0.7}]}]})");
  const auto outcome = bench.tune(with_reference());
  REQUIRE_MESSAGE(outcome.outcome == "won", outcome.note);
  CHECK(outcome.reference == "kernel scale<float>");
  CHECK(outcome.reference_us == doctest::Approx(5000).epsilon(0.01));
  CHECK(outcome.winner->default_us == doctest::Approx(10).epsilon(0.02));
  CHECK(outcome.winner->median_us == doctest::Approx(5).epsilon(0.02));
  CHECK_MESSAGE(outcome.costs.method.find("graph x ") == 0, outcome.costs.method);
  CHECK(outcome.trials == 9);  // the reference is none of them
  const auto study = bench.services().store().find_study(1);
  REQUIRE(study.ok());
  REQUIRE(study->has_value());
  CHECK((*study)->end.reference == "kernel scale<float>");
  CHECK((*study)->end.reference_us == doctest::Approx(5000).epsilon(0.01));
}

TEST_CASE("a worker that dies in between goes on with the same reference and the same kind of samples") {
  if (!test::have_nvrtc()) return;
  Bench bench(spec_with(R"({"match": "scale<256, 2>", "fault": "illegal_address"},
    {"match": "scale<256, 4>", "time_us": 1, "spread": 0, "fault": "wrong"},)"));
  const auto outcome = bench.tune(with_reference());
  REQUIRE_MESSAGE(outcome.outcome == "won", outcome.note);
  CHECK(outcome.winner->config == R"({"BLOCK":128,"ITEMS":4})");
  CHECK(outcome.failed == 2);
  const auto rows = rows_of(bench, with_reference());
  CHECK(rows.at(R"({"BLOCK":256,"ITEMS":2})").status == "run_crash");
  CHECK(rows.at(R"({"BLOCK":256,"ITEMS":4})").status == "wrong_result");
}

TEST_CASE("a reference that does not work ends the study and says why; nothing takes its place") {
  if (!test::have_nvrtc()) return;
  auto broken = with_reference();
  broken.reference->source_text += "\nthis is not CUDA;\n";
  Bench bench(spec_with(""));
  auto outcome = bench.tune(broken);
  CHECK(outcome.outcome == "error");
  CHECK_MESSAGE(outcome.note.find("the reference `scale<float>` does not compile: ") == 0, outcome.note);
  CHECK_FALSE(outcome.winner.has_value());

  Bench crashing(R"({"kernels": [{"match": "scale<float>", "fault": "illegal_address"}]})");
  outcome = crashing.tune(with_reference());
  CHECK(outcome.outcome == "error");
  CHECK_MESSAGE(outcome.note.find("the reference `scale<float>` failed (run_crash): ") == 0, outcome.note);
}

TEST_CASE("a changed reference is another key; unchecked studies do not run it") {
  if (!test::have_nvrtc()) return;
  Bench bench(spec_with(""));
  const auto none = bench.request(Bench::scale()).key;
  const auto one = bench.request(with_reference()).key;
  auto changed = with_reference();
  changed.reference->source_text += "// better\n";
  const auto two = bench.request(changed).key;
  changed = with_reference();
  changed.reference->block = {"128"};
  const auto three = bench.request(changed).key;
  CHECK(none.callables == "{}");
  CHECK(one.callables.find(R"({"reference":"kernel )") == 0);
  CHECK(one.sha256 != none.sha256);
  CHECK(two.sha256 != one.sha256);
  CHECK(three.sha256 != one.sha256);
  CHECK(key::differences(one, two).size() == 1);
  // What a miss stores of it gives the same key again.
  const auto model = space::Model::make(with_reference());
  const auto stored = space::parse_definition(space::definition_text(space::self_contained(*model)));
  REQUIRE(stored.ok());
  CHECK(bench.request(*stored).key.sha256 == one.sha256);
}

TEST_CASE("a reference beside the kernel in one source has its macros, and its parameters in its own order") {
  if (!test::have_nvrtc()) return;
  auto definition = Bench::scale();
  definition.entry = "scale<{BLOCK}>";
  definition.source_text =
      "template <int BLOCK> __global__ void scale(float* y, const float* x, float a, int n) "
      "{ int i = blockIdx.x * BLOCK * ITEMS + threadIdx.x; if (i < n) y[i] = a * x[i]; }\n"
      "template <class T> __global__ void add(T* c, const T* a, const T* b, int n) { c[0] = a[0] + b[0]; }";
  // c = x + x is 2 x: what scale computes with a = 2.
  definition.reference = Reference{.entry = "add<float>", .grid = {"1"}, .block = {"32"}, .args = {"y", "x", "x", "n"}};
  Bench bench(R"({"kernels": [{"match": "scale<", "time_us": 100, "spread": 0, "factors": [{"128": 0.5}]}]})");
  const auto outcome = bench.tune(definition);
  REQUIRE_MESSAGE(outcome.outcome == "won", outcome.note);
  CHECK(outcome.failed == 0);
  CHECK(outcome.winner->config.find(R"("BLOCK":128)") != std::string::npos);
  for (auto& arg : definition.args)
    if (arg.name == "a") arg.value = "3.0";
  const auto wrong = bench.tune(definition);
  CHECK(wrong.outcome == "no_valid_config");
  CHECK(wrong.failed == wrong.trials);
  CHECK(wrong.note.find("the default config's result is wrong") != std::string::npos);
}

namespace {

/// `scale` with a reference that this process computes.
KernelDefinition with_function(std::function<void(const ReferenceData&)> function) {
  auto definition = Bench::scale();
  definition.host_reference = HostReference{"1", std::move(function)};
  return definition;
}

void scale_on_host(const ReferenceData& data) {
  const auto x = data.in<float>("x");
  const auto y = data.out<float>("y");
  for (size_t i = 0; i < y.size(); ++i) y[i] = data.scalar<float>("a") * x[i];
}

}  // namespace

TEST_CASE("a function of the program is the reference: it sees the inputs, and a wrong default config does not win") {
  if (!test::have_nvrtc()) return;
  Bench bench(spec_with(R"({"match": "scale<64, 1>", "time_us": 1, "spread": 0, "fault": "wrong"},
    {"match": "scale<256, 2>", "fault": "illegal_address"},)"));
  int calls = 0;
  const auto outcome = bench.tune(with_function([&](const ReferenceData& data) {
    ++calls;
    CHECK(data.views().size() == 4);
    CHECK(data.problem("n").as_int() == 4096);
    CHECK(data.in<float>("x").size() == 4096);
    CHECK(data.in<float>("x")[0] != data.in<float>("x")[1]);  // the fills that configs read
    scale_on_host(data);
  }));
  REQUIRE_MESSAGE(outcome.outcome == "won", outcome.note);
  CHECK(calls == 1);
  CHECK(outcome.failed == 2);  // the others agree with it, after the worker's death too
  CHECK(outcome.winner->config == R"({"BLOCK":128,"ITEMS":4})");
  CHECK(outcome.reference == "host 1");
  CHECK(outcome.note.find("the default config's result is wrong, by host 1") == 0);
  CHECK(test::run_program("ls /dev/shm | grep '^jitune-" + std::to_string(::getpid()) + "-' | wc -l").out == "0\n");
}

TEST_CASE("elements that a reference function leaves alone are not compared; the others are") {
  if (!test::have_nvrtc()) return;
  const std::string spec = R"({"kernels": [{"match": "interior<", "time_us": 100, "spread": 0,
    "factors": [{"128": 0.5}]}]})";
  KernelDefinition stencil{
      .name = "interior",
      .source_text = "template <int BLOCK> __global__ void interior(float* y, const float* x, int n) { y[1] = x[1]; }",
      .entry = "interior<{BLOCK}>",
      .problem = {"n"},
      .params = {{"BLOCK", {64, 128}}},
      .launch = {.grid = {"1"}, .block = {"BLOCK"}},
      .args = {out("y", "float", "n"), in("x", "float", "n"), scalar("n", "int", "n")},
      .defaults = {{.config = {{"BLOCK", "64"}}}}};
  int calls = 0;
  stencil.host_reference = HostReference{"1", [&](const ReferenceData& data) {
                                           ++calls;
                                           const auto x = data.in<float>("x");
                                           const auto y = data.out<float>("y");
                                           for (size_t i = 1; i + 1 < y.size(); ++i) y[i] = x[i];
                                         }};
  Bench bench(spec);
  const auto outcome = bench.tune(stencil);
  REQUIRE_MESSAGE(outcome.outcome == "won", outcome.note);
  CHECK(outcome.failed == 0);
  CHECK(calls == 2);  // once more, over another poison: the first and last element are known to be unwritten
  // A kernel that leaves an element unwritten that the reference writes is wrong.
  stencil.host_reference = HostReference{"2", [](const ReferenceData& data) {
                                           const auto x = data.in<float>("x");
                                           std::copy(x.begin(), x.end(), data.out<float>("y").begin());
                                         }};
  const auto wrong = bench.tune(stencil);
  CHECK(wrong.outcome == "no_valid_config");
  CHECK(wrong.failed == 2);
  CHECK(wrong.note.find("2 of 4096 elements differ") != std::string::npos);
}

TEST_CASE("a reference function finds inout args as a config would, whatever it did to them before") {
  if (!test::have_nvrtc()) return;
  KernelDefinition increment{
      .name = "increment",
      .source_text = "template <int BLOCK> __global__ void increment(float* x, int n) { x[0] += 1; }",
      .entry = "increment<{BLOCK}>",
      .problem = {"n"},
      .params = {{"BLOCK", {64, 128}}},
      .launch = {.grid = {"1"}, .block = {"BLOCK"}},
      .args = {inout("x", "float", "n"), scalar("n", "int", "n")},
      .defaults = {{.config = {{"BLOCK", "64"}}}},
      .host_reference = HostReference{"1", [](const ReferenceData& data) {
                                        for (float& each : data.out<float>("x")) each += 1;
                                      }}};
  Bench bench(R"({"kernels": [{"match": "increment<", "time_us": 100, "spread": 0, "factors": [{"128": 0.5}]}]})");
  const auto outcome = bench.tune(increment);
  REQUIRE_MESSAGE(outcome.outcome == "won", outcome.note);
  CHECK(outcome.failed == 0);
}

TEST_CASE("a reference function that throws, or is not there, ends the study with the reason") {
  if (!test::have_nvrtc()) return;
  Bench bench(spec_with(""));
  auto outcome = bench.tune(with_function([](const ReferenceData&) { throw std::runtime_error("no licence"); }));
  CHECK(outcome.outcome == "error");
  CHECK_MESSAGE(outcome.note == "the reference function (version 1): it threw: no licence", outcome.note);
  outcome = bench.tune(with_function([](const ReferenceData& data) { (void)data.in<double>("x"); }));
  CHECK(outcome.note.find("it threw: an element of 'x' has 4 bytes") != std::string::npos);
  // Another program's definition, as a miss stores it.
  const auto absent = with_function(nullptr);
  outcome = bench.tune(absent);
  CHECK(outcome.outcome == "error");
  CHECK_MESSAGE(outcome.note.find("--default-reference") != std::string::npos, outcome.note);
  outcome = bench.tune(absent, [](tune::Request& request) { request.default_reference = true; });
  REQUIRE_MESSAGE(outcome.outcome == "won", outcome.note);
  CHECK(outcome.reference.empty());
  // It serves the program, whose key it has.
  CHECK(bench.tune(with_function(scale_on_host)).outcome == "answered");
  auto newer = with_function(scale_on_host);
  newer.host_reference->version = "2";
  CHECK(bench.request(newer).key.sha256 != bench.request(absent).key.sha256);
}
