#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <stop_token>
#include <thread>

#include "runtime/fixture.hpp"
#include "support/increment.hpp"

using namespace jitune;
using test::FakeGpu;
using test::Increment;
using test::quiet_options;

namespace {

constexpr int kCount = 4096;

KernelDefinition increment() {
  auto definition = test::increment({64, 128, 256, 512});
  definition.require = {"BLOCK <= 256"};
  return definition;
}

}  // namespace

TEST_CASE("a study by hand tells all trials, is saved and loaded, and its winner is launched from then on") {
  if (!test::have_nvrtc()) return;
  const test::TempDir dir;
  FakeGpu gpu(R"({"kernels": [{"match": "increment<", "time_us": 100, "spread": 0, "noise": 0,
                  "factors": [{"128": 0.5, "256": 0.8}]}]})");
  Tuner tuner(quiet_options(Track::lookup, dir / "a.db"));
  Increment kernel(tuner, increment());
  const auto problem = kernel.problem({{"n", kCount}});
  CHECK(kernel.choice(problem).source == Choice::Source::default_config);
  std::vector<std::string> seen;
  StudyOptions options;
  options.on_trial = [&](const Trial& trial) { seen.push_back(trial.config); };
  const Study study = tuner.tune(kernel, problem, options);
  CHECK(study.outcome == "won");
  CHECK(study.winner == R"({"BLOCK":128})");
  CHECK(study.time_us == doctest::Approx(50).epsilon(0.01));
  CHECK(study.default_us == doctest::Approx(100).epsilon(0.01));
  CHECK(study.trials.size() == 3);
  CHECK(seen.size() == 3);
  CHECK(seen.front() == R"({"BLOCK":64})");
  CHECK(study.problem == R"({"n":4096})");
  CHECK(study.key.size() == 64);
  CHECK(kernel.choice(problem).config == R"({"BLOCK":128})");
  CHECK(kernel.choice(problem).source == Choice::Source::tuned);

  study.save(dir / "study.json");
  const Study loaded = Study::load(dir / "study.json");
  CHECK(loaded.winner == study.winner);
  CHECK(loaded.key == study.key);
  CHECK(loaded.wall_ms == study.wall_ms);
  REQUIRE(loaded.trials.size() == 3);
  CHECK(loaded.trials[2].config == study.trials[2].config);
  CHECK(loaded.trials[2].median_us == study.trials[2].median_us);

  // Once more: there is nothing new but the finalists; by force everything is measured again.
  options.force = true;
  CHECK(tuner.tune(kernel, problem, options).trials.size() == 3);
}

TEST_CASE("a file that is no study is refused by name") {
  const test::TempDir dir;
  CHECK_THROWS_WITH_AS((void)Study::load(dir / "none.json"), doctest::Contains("none.json"), Error);
  std::ofstream(dir / "bad.json") << R"({"jitune_study": 1, "kernel": 3})";
  CHECK_THROWS_WITH_AS((void)Study::load(dir / "bad.json"), doctest::Contains("bad.json"), Error);
  std::ofstream(dir / "new.json") << R"({"jitune_study": 2})";
  CHECK_THROWS_WITH_AS((void)Study::load(dir / "new.json"), doctest::Contains("another format"), Error);
}

TEST_CASE("a stop token ends a study within a second, in the middle of a trial, and keeps what is known") {
  if (!test::have_nvrtc()) return;
  const test::TempDir dir;
  // The second config's launches take a second each.
  FakeGpu gpu(R"({"real_time": true, "kernels": [{"match": "increment<", "time_us": 1000, "spread": 0, "noise": 0,
                  "factors": [{"128": 1000, "256": 1000}]}]})");
  Tuner tuner(quiet_options(Track::lookup, dir / "a.db"));
  Increment kernel(tuner, increment());
  const auto problem = kernel.problem({{"n", kCount}});
  std::stop_source source;
  StudyOptions options;
  options.stop = source.get_token();
  std::chrono::steady_clock::time_point stopped;
  std::thread stopper;
  options.on_trial = [&](const Trial&) {
    if (stopper.joinable()) return;
    stopper = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(700));  // into the next trial
      stopped = std::chrono::steady_clock::now();
      source.request_stop();
    });
  };
  const Study study = tuner.tune(kernel, problem, options);
  const auto end = std::chrono::steady_clock::now();
  stopper.join();
  CHECK(study.outcome == "cancelled");
  CHECK(end - stopped < std::chrono::milliseconds(1500));  // a second, and what a loaded machine adds
  REQUIRE(study.trials.size() >= 1);
  CHECK(study.trials.size() < 3);
  CHECK(study.trials[0].status == "ok");
  CHECK(study.winner == R"({"BLOCK":64})");  // the best that was verified
}

TEST_CASE("configs are compiled side by side without a study; a wrong one says why") {
  if (!test::have_nvrtc()) return;
  FakeGpu gpu("{}");
  Tuner tuner(quiet_options(Track::lookup, "off"));
  Increment kernel(tuner, increment());
  const auto problem = kernel.problem({{"n", kCount}});
  const auto some = tuner.compile(kernel, problem, {R"({"BLOCK":256})", R"({"BLOCK":512})", "nonsense"});
  REQUIRE(some.size() == 3);
  CHECK(some[0].error == "");
  CHECK(some[0].cubin.substr(1, 3) == "ELF");
  CHECK(some[0].lowered_name.find("increment") != std::string::npos);
  CHECK(some[0].grid[0] == 16);
  CHECK(some[0].block[0] == 256);
  CHECK(some[1].error.find("BLOCK <= 256") != std::string::npos);
  CHECK(some[2].error != "");
  CHECK(tuner.compile(kernel, problem, {}).size() == 3);
  CHECK(tuner.statistics().trials == 0);
}

TEST_CASE("a study by hand may be spread over more GPUs of the class; others are refused by name") {
  if (!test::have_nvrtc()) return;
  char tail[16];
  std::snprintf(tail, sizeof tail, "%012x", static_cast<unsigned>(::getpid()));
  const auto uuid = [&](const char* group) { return std::string("GPU-fa4e0000-0000-4000-") + group + "-" + tail; };
  FakeGpu gpu(R"({"real_time": true, "devices": [{"uuid": ")" + uuid("8005") + R"("}, {"uuid": ")" + uuid("8006") +
              R"("}, {"uuid": ")" + uuid("8007") + R"(", "sm_count": 100}], "kernels": [{"match": "increment<",
                  "time_us": 20000, "spread": 0, "noise": 0, "factors": [{"128": 0.5, "256": 0.8}]}]})");
  Tuner tuner(quiet_options(Track::lookup, "off"));
  Increment kernel(tuner, increment());
  const auto problem = kernel.problem({{"n", kCount}});
  const auto refused = [&](const std::string& name) -> std::string {
    StudyOptions options;
    options.more_gpus = {name};
    try {
      (void)tuner.tune(kernel, problem, options);
    } catch (const Error& error) {
      return error.code() == ErrorCode::bad_options ? error.what() : "another error";
    }
    return "nothing";
  };
  CHECK(refused("GPU-none").find("sees no GPU GPU-none") != std::string::npos);
  CHECK(refused(uuid("8007")).find("sm_count") != std::string::npos);
  StudyOptions options;
  options.more_gpus = {"all", uuid("8006")};
  const Study study = tuner.tune(kernel, problem, options);
  CHECK_MESSAGE(study.outcome == "won", study.note);
  CHECK(study.winner == R"({"BLOCK":128})");
  CHECK(study.gpus >= 1);  // the other one joins when its context is there, which may be too late
  CHECK(study.gpus <= 2);
}

TEST_CASE("first calls are spread over the GPUs that the Tuner's options name; a name that fits none is one warning") {
  if (!test::have_nvrtc()) return;
  char tail[16];
  std::snprintf(tail, sizeof tail, "%012x", static_cast<unsigned>(::getpid()));
  const auto uuid = [&](const char* group) { return std::string("GPU-fa4e0000-0000-4000-") + group + "-" + tail; };
  const std::string spec = R"({"devices": [{"uuid": ")" + uuid("8008") + R"("}, {"uuid": ")" + uuid("8009") +
                           R"("}], "real_time": true, "kernels": [{"match": "increment<", "time_us": 20000,
                            "spread": 0, "noise": 0, "factors": [{"64": 1.0, "128": 0.5, "256": 0.7}]}]})";
  FakeGpu gpu(spec);
  float* x = gpu.buffer(kCount, 0);
  auto options = quiet_options(Track::tune, "off");
  options.first_call_budget = std::chrono::seconds(60);
  options.tuning_devices = {"GPU-none", "all"};
  static std::atomic<int> warnings;
  warnings = 0;
  options.log.function = [](void*, const Event& event) noexcept { warnings += event.code == "tuning_device" ? 1 : 0; };
  Tuner tuner(options);
  Increment kernel(tuner, increment());
  kernel.launch(nullptr, kernel.problem({{"n", kCount}}), x, kCount);
  kernel.launch(nullptr, kernel.problem({{"n", kCount / 2}}), x, kCount / 2);
  CHECK(kernel.choice(kernel.problem({{"n", kCount}})).config == R"({"BLOCK":128})");
  CHECK(warnings == 1);
  CHECK(tuner.statistics().workers_started >= 2 + 2);  // compilers, and a measuring worker for each GPU
}
