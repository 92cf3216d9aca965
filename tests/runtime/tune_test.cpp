#include <unistd.h>

#include <optional>
#include <thread>

#include "runtime/fixture.hpp"
#include "support/increment.hpp"

using namespace jitune;
using test::FakeGpu;
using test::Increment;
using test::quiet_options;

namespace {

constexpr int kCount = 4096;

// x += 1 in place: the kernel that naive tuners corrupt. BLOCK 128 is the fastest.
constexpr const char* kSpec = R"({"kernels": [{"match": "increment<", "time_us": 100, "spread": 0, "noise": 0.001,
  "factors": [{"32": 1.3, "64": 1.0, "128": 0.5, "256": 0.7}]}]})";

KernelDefinition increment() {
  auto definition = test::increment({32, 64, 128, 256});
  definition.problem = {{"n", "pow2_ceil(n)"}};
  return definition;
}

}  // namespace

TEST_CASE("the first call tunes on copies of the caller's data: his buffer sees exactly one launch") {
  if (!test::have_nvrtc()) return;
  const test::TempDir dir;
  FakeGpu gpu(kSpec);
  float* x = gpu.buffer(kCount, 41);
  {
    Tuner tuner(quiet_options(Track::tune, dir / "a.db"));
    Increment kernel(tuner, increment());
    const auto problem = kernel.problem({{"n", kCount}});
    kernel.launch(nullptr, problem, x, kCount);
    CHECK(gpu.read(x, kCount) == std::vector<float>(kCount, 42.0f));
    const auto choice = kernel.choice(problem);
    CHECK_MESSAGE(choice.source == Choice::Source::tuned, choice.why);
    CHECK(choice.config == R"({"BLOCK":128})");
    CHECK(choice.time_us == doctest::Approx(50).epsilon(0.02));
    CHECK(choice.default_us == doctest::Approx(100).epsilon(0.02));
    CHECK(tuner.statistics().trials == 4);
    kernel.launch(nullptr, problem, x, kCount);
    CHECK(gpu.read(x, kCount) == std::vector<float>(kCount, 43.0f));
    CHECK(tuner.statistics().trials == 4);
  }
  // The next process: the answer and its cubin come from the database.
  Tuner tuner(quiet_options(Track::tune, dir / "a.db"));
  Increment kernel(tuner, increment());
  kernel.launch(nullptr, kernel.problem({{"n", kCount - 5}}), x, kCount - 5);  // same bucket
  const auto did = tuner.statistics();
  CHECK(did.compilations == 0);
  CHECK(did.trials == 0);
  CHECK(did.workers_started == 0);
  CHECK(did.hits == 1);
  CHECK(kernel.choice(kernel.problem({{"n", kCount - 5}})).source == Choice::Source::stored);
  CHECK(kernel.choice(kernel.problem({{"n", kCount - 5}})).config == R"({"BLOCK":128})");
  auto host = gpu.read(x, kCount);
  CHECK(host[static_cast<size_t>(kCount) - 6] == 44.0f);
  CHECK(host[static_cast<size_t>(kCount) - 5] == 43.0f);  // the grid is the exact problem's, not the bucket's
}

TEST_CASE("where IPC is not to be had the data goes through shared memory, which is gone afterwards") {
  if (!test::have_nvrtc()) return;
  FakeGpu gpu(R"({"devices": [{"name": "Fake H200", "cc": "9.0", "ipc": false}], "kernels": [{"match": "increment<",
    "time_us": 100, "spread": 0, "factors": [{"128": 0.5}]}]})");
  float* x = gpu.buffer(kCount, 1);
  Tuner tuner(quiet_options(Track::tune, "off"));
  Increment kernel(tuner, increment());
  kernel.launch(nullptr, kernel.problem({{"n", kCount}}), x, kCount);
  CHECK(gpu.read(x, kCount) == std::vector<float>(kCount, 2.0f));
  CHECK(kernel.choice(kernel.problem({{"n", kCount}})).config == R"({"BLOCK":128})");
  const auto left = test::run_program("ls /dev/shm | grep '^jitune-" + std::to_string(::getpid()) + "-' | wc -l");
  CHECK(left.out == "0\n");
}

TEST_CASE(
    "heuristic and lookup never run an unverified config; JITUNE_TRACK=heuristic wins over a launch's own track") {
  if (!test::have_nvrtc()) return;
  FakeGpu gpu(kSpec);
  float* x = gpu.buffer(kCount, 0);
  {
    Tuner tuner(quiet_options(Track::lookup, "off"));
    Increment kernel(tuner, increment());
    kernel.launch(nullptr, kernel.problem({{"n", kCount}}), x, kCount);
    CHECK(tuner.statistics().trials == 0);
    kernel.launch(nullptr, kernel.problem({{"n", 2 * kCount}}).set("n", kCount / 2).on(Track::tune), x, kCount / 2);
    CHECK(tuner.statistics().trials == 4);  // this problem's launch asked for it
  }
  const test::ScopedEnv night("JITUNE_TRACK", "heuristic");
  Tuner tuner(quiet_options(Track::tune, "off"));
  Increment kernel(tuner, increment());
  const auto problem = kernel.problem({{"n", kCount}}).on(Track::tune);
  kernel.launch(nullptr, problem, x, kCount);
  CHECK(tuner.statistics().trials == 0);
  CHECK(kernel.choice(problem).config == R"({"BLOCK":64})");
}

TEST_CASE("a problem that was looked up, or only asked about, is still tuned by the first launch that may") {
  if (!test::have_nvrtc()) return;
  FakeGpu gpu(kSpec);
  float* x = gpu.buffer(kCount, 0);
  Tuner tuner(quiet_options(Track::lookup, "off"));
  Increment kernel(tuner, increment());
  auto problem = kernel.problem({{"n", kCount}});
  kernel.launch(nullptr, problem, x, kCount);
  CHECK(kernel.choice(problem).source == Choice::Source::default_config);
  problem.on(Track::tune);
  CHECK(kernel.choice(problem).source == Choice::Source::default_config);  // asking never tunes
  CHECK(tuner.statistics().trials == 0);
  kernel.launch(nullptr, problem, x, kCount);
  CHECK(tuner.statistics().trials == 4);
  CHECK(kernel.choice(problem).config == R"({"BLOCK":128})");
  kernel.launch(nullptr, problem, x, kCount);
  CHECK(tuner.statistics().trials == 4);
  problem.on(Track::retune);
  kernel.launch(nullptr, problem, x, kCount);
  kernel.launch(nullptr, problem, x, kCount);
  CHECK(tuner.statistics().trials == 8);  // once in a process
  CHECK(gpu.read(x, kCount) == std::vector<float>(kCount, 5.0f));
}

TEST_CASE("a Tuner that ends closes its database and workers though its kernels stay") {
  if (!test::have_nvrtc()) return;
  const test::TempDir dir;
  FakeGpu gpu(kSpec);
  float* x = gpu.buffer(kCount, 0);
  std::optional<Tuner> tuner(quiet_options(Track::tune, dir / "a.db"));
  Increment kernel(*tuner, increment());
  kernel.launch(nullptr, kernel.problem({{"n", kCount}}), x, kCount);
  const std::string mine = "ls -l /proc/" + std::to_string(::getpid()) + "/fd | grep -c a.db";
  CHECK(test::run_program(mine).out != "0\n");
  CHECK(test::run_program("pgrep -fc -P " + std::to_string(::getpid()) + " [j]itune-worker").out != "0\n");
  tuner.reset();
  CHECK(test::run_program(mine).out == "0\n");
  CHECK(test::run_program("pgrep -fc -P " + std::to_string(::getpid()) + " [j]itune-worker").out == "0\n");
}

TEST_CASE("a budget of nothing means no tuning in first calls") {
  if (!test::have_nvrtc()) return;
  FakeGpu gpu(kSpec);
  float* x = gpu.buffer(kCount, 0);
  auto options = quiet_options(Track::tune, "off");
  options.first_call_budget = std::chrono::milliseconds(0);
  Tuner tuner(options);
  Increment kernel(tuner, increment());
  kernel.launch(nullptr, kernel.problem({{"n", kCount}}), x, kCount);
  CHECK(tuner.statistics().trials == 0);
  CHECK(kernel.choice(kernel.problem({{"n", kCount}})).why == "first_call_budget is 0");
}

TEST_CASE("many threads, one key, first call: one tunes, every launch is right") {
  if (!test::have_nvrtc()) return;
  FakeGpu gpu(kSpec);
  std::vector<float*> buffers;
  for (int i = 0; i < 8; ++i) buffers.push_back(gpu.buffer(kCount, static_cast<float>(i)));
  Tuner tuner(quiet_options(Track::tune, "off"));
  Increment kernel(tuner, increment());
  const auto problem = kernel.problem({{"n", kCount}});
  CUcontext context = nullptr;
  REQUIRE(gpu.driver().cuCtxGetCurrent(&context) == CUDA_SUCCESS);
  std::vector<std::thread> threads;
  for (float* x : buffers)
    threads.emplace_back([&, x] {
      gpu.driver().cuCtxSetCurrent(context);
      kernel.launch(nullptr, problem, x, kCount);
    });
  for (auto& thread : threads) thread.join();
  CHECK(tuner.statistics().trials == 4);
  for (int i = 0; i < 8; ++i)
    CHECK(gpu.read(buffers[static_cast<size_t>(i)], kCount) == std::vector<float>(kCount, static_cast<float>(i + 1)));
}
