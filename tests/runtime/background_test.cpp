#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "gpu/clock_memo.hpp"
#include "runtime/fixture.hpp"
#include "store/store.hpp"
#include "support/increment.hpp"

using namespace jitune;
using test::FakeGpu;
using test::increment;
using test::Increment;
using test::quiet_options;

namespace {

constexpr int kCount = 4096;
// Each launch really takes 20 ms: a study of three configs takes long enough to be interrupted.
constexpr const char* kSlow =
    R"({"real_time": true, "kernels": [{"match": "increment<", "time_us": 20000, "spread": 0, "noise": 0,
        "factors": [{"128": 0.5, "256": 0.8}]}]})";
constexpr const char* kSpec =
    R"({"kernels": [{"match": "increment<", "time_us": 100, "spread": 0, "noise": 0,
        "factors": [{"128": 0.5, "256": 0.8}]}]})";

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::atomic<int> studies_ended{0};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Launches until the plan is another than the default config's, at most a minute. The number of launches.
int launch_until_swapped(Increment& kernel, const Problem& problem, float* x) {
  int launches = 0;
  const auto start = std::chrono::steady_clock::now();
  while (kernel.choice(problem).source == Choice::Source::default_config && seconds_since(start) < 60) {
    kernel.launch(nullptr, problem, x, kCount);
    ++launches;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return launches;
}

}  // namespace

TEST_CASE("on background the default config is launched at once, and the winner swapped in while launches go on") {
  if (!test::have_nvrtc()) return;
  const test::TempDir dir;
  FakeGpu gpu(kSpec);
  float* x = gpu.buffer(kCount, 0);
  const auto bytes = gpu.fake().allocated_bytes();
  {
    auto options = quiet_options(Track::background, dir / "a.db");
    options.background_share = 0.5;
    Tuner tuner(options);
    Increment kernel(tuner, increment());
    const auto problem = kernel.problem({{"n", kCount}});
    kernel.launch(nullptr, problem, x, kCount);
    CHECK(kernel.choice(problem).config == R"({"BLOCK":64})");
    CHECK(kernel.choice(problem).why == "it is being tuned in the background");
    CHECK(gpu.fake().allocated_bytes() >= bytes + kCount * 4);  // the snapshot
    const int launches = 1 + launch_until_swapped(kernel, problem, x);
    CHECK(kernel.choice(problem).config == R"({"BLOCK":128})");
    CHECK(has(kernel.choice(problem).why, "tuned in the background; provisional"));
    CHECK(launches > 10);
    kernel.launch(nullptr, problem, x, kCount);
    CHECK(gpu.read(x, kCount) == std::vector<float>(kCount, static_cast<float>(launches + 1)));
    CHECK(tuner.statistics().trials == 3);
    // Quiet from here on: the finalists are measured again.
    const auto quiet = std::chrono::steady_clock::now();
    while (!has(kernel.choice(problem).why, "confirmed") && seconds_since(quiet) < 60)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK(has(kernel.choice(problem).why, "confirmed by a quiet rematch"));
    CHECK(kernel.choice(problem).config == R"({"BLOCK":128})");
  }
  CHECK(gpu.fake().allocated_bytes() <= bytes);  // the snapshot is gone
  Tuner tuner(quiet_options(Track::lookup, dir / "a.db"));
  Increment kernel(tuner, increment());
  CHECK(kernel.choice(kernel.problem({{"n", kCount}})).config == R"({"BLOCK":128})");
}

TEST_CASE("a Tuner that ends in the middle of background tuning ends within a second, and its workers with it") {
  if (!test::have_nvrtc()) return;
  FakeGpu gpu(kSlow);
  float* x = gpu.buffer(kCount, 0);
  auto options = quiet_options(Track::background, "off");
  std::optional<Tuner> tuner(options);
  Increment kernel(*tuner, increment());
  const auto problem = kernel.problem({{"n", kCount}});
  kernel.launch(nullptr, problem, x, kCount);
  const auto begun = std::chrono::steady_clock::now();
  while (tuner->statistics().workers_started < 2 && seconds_since(begun) < 30)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  CHECK(kernel.choice(problem).source == Choice::Source::default_config);
  const auto start = std::chrono::steady_clock::now();
  tuner.reset();
  CHECK(seconds_since(start) < 1.5);  // a second, and what a loaded machine adds
  CHECK(test::run_program("pgrep -fc -P " + std::to_string(::getpid()) + " [j]itune-worker").out == "0\n");
}

TEST_CASE("a background launch that is wrong says so at once, and the key can still be tuned") {
  if (!test::have_nvrtc()) return;
  FakeGpu gpu(kSpec);
  float* x = gpu.buffer(kCount, 0);
  Tuner tuner(quiet_options(Track::background, "off"));
  Increment kernel(tuner, increment());
  CHECK_THROWS_AS(kernel.launch(nullptr, kernel.problem({{"n", 2 * kCount}}), x, 2 * kCount), Error);
  kernel.launch(nullptr, kernel.problem({{"n", kCount}}).on(Track::tune), x, kCount);
  CHECK(tuner.statistics().trials == 3);
}

TEST_CASE("background tuning keeps to its share of the GPU's time while the application launches") {
  if (!test::have_nvrtc()) return;
  const test::TempDir dir;
  FakeGpu gpu(R"({"real_time": true, "kernels": [{"match": "increment<", "time_us": 1000, "spread": 0, "noise": 0,
                  "factors": [{"128": 0.5, "256": 0.8}]}]})");
  float* x = gpu.buffer(kCount, 0);
  constexpr double kShare = 0.1;
  double wall_ms = 0;
  {
    auto options = quiet_options(Track::background, dir / "a.db");
    options.background_share = kShare;
    Tuner tuner(options);
    Increment kernel(tuner, increment());
    const auto problem = kernel.problem({{"n", kCount}});
    kernel.launch(nullptr, problem, x, kCount);
    const auto start = std::chrono::steady_clock::now();
    launch_until_swapped(kernel, problem, x);
    wall_ms = seconds_since(start) * 1000;
    CHECK(kernel.choice(problem).config == R"({"BLOCK":128})");
  }
  auto store = store::Store::open({.path = dir / "a.db"});
  REQUIRE(store.ok());
  const auto study = (*store)->find_study(1);
  REQUIRE(study.ok());
  REQUIRE(study->has_value());
  const auto& costs = (*study)->end.costs;
  const double busy_ms = costs.run_ms + costs.check_ms;
  CHECK(busy_ms > 10);  // three configs of a millisecond, a few launches each
  CHECK(busy_ms < kShare * 1.2 * wall_ms);
}

TEST_CASE("a key that several threads launch, and two Tuners of one database, is tuned once in the background") {
  if (!test::have_nvrtc()) return;
  const test::TempDir dir;
  FakeGpu gpu(kSpec);
  auto options = quiet_options(Track::background, dir / "a.db");
  options.background_share = 0.5;
  Tuner first(options), second(options);
  Increment kernels[] = {Increment(first, increment()), Increment(second, increment())};
  CUcontext context = nullptr;
  REQUIRE(gpu.driver().cuCtxGetCurrent(&context) == CUDA_SUCCESS);
  std::vector<std::thread> threads;
  std::vector<float*> buffers;
  for (int i = 0; i < 8; ++i) buffers.push_back(gpu.buffer(kCount, 0));
  std::vector<int> launches(8, 0);
  for (size_t i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      gpu.driver().cuCtxSetCurrent(context);
      auto& kernel = kernels[i % 2];
      launches[i] = launch_until_swapped(kernel, kernel.problem({{"n", kCount}}), buffers[i]);
    });
  for (auto& thread : threads) thread.join();
  for (size_t i = 0; i < 8; ++i)
    CHECK(gpu.read(buffers[i], kCount) == std::vector<float>(kCount, static_cast<float>(launches[i])));
  CHECK(first.statistics().trials + second.statistics().trials == 3);
  for (auto& kernel : kernels) CHECK(kernel.choice(kernel.problem({{"n", kCount}})).config == R"({"BLOCK":128})");
}

TEST_CASE("stop() ends a background study within a second and keeps its trials; launches go on") {
  if (!test::have_nvrtc()) return;
  const test::TempDir dir;
  FakeGpu gpu(kSlow);
  float* x = gpu.buffer(kCount, 0);
  long long trials = 0;
  {
    auto options = quiet_options(Track::background, dir / "a.db");
    options.background_share = 0.01;  // one trial, then a long pause
    studies_ended = 0;
    options.log.function = [](void*, const Event& event) noexcept { studies_ended += event.code == "tuned" ? 1 : 0; };
    Tuner tuner(options);
    Increment kernel(tuner, increment());
    const auto problem = kernel.problem({{"n", kCount}});
    std::atomic<bool> done{false};
    CUcontext context = nullptr;
    REQUIRE(gpu.driver().cuCtxGetCurrent(&context) == CUDA_SUCCESS);
    std::thread application([&] {
      gpu.driver().cuCtxSetCurrent(context);
      while (!done) kernel.launch(nullptr, problem, x, kCount);
    });
    // The default config's trial is committed before the pause of half a minute after it.
    auto store = store::Store::open({.path = dir / "a.db"});
    REQUIRE(store.ok());
    const auto begun = std::chrono::steady_clock::now();
    while (trials == 0 && seconds_since(begun) < 60) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      const auto keys = (*store)->find_keys("");
      if (!keys || keys->empty()) continue;
      if (const auto rows = (*store)->trials_of(keys->front().key.sha256))
        trials = static_cast<long long>(rows->size());
    }
    const auto start = std::chrono::steady_clock::now();
    tuner.stop();
    while (studies_ended == 0 && seconds_since(start) < 10) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    CHECK(seconds_since(start) < 1.5);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    done = true;
    application.join();
    kernel.launch(nullptr, problem, x, kCount);
    CHECK(kernel.choice(problem).source == Choice::Source::default_config);
    trials = tuner.statistics().trials;
    CHECK(trials >= 1);  // the pause holds from the second one on at the latest
    CHECK(trials <= 2);
  }
  // Another process's study goes on from there: what was tried is not tried again, but for the default config.
  Tuner tuner(quiet_options(Track::tune, dir / "a.db"));
  Increment kernel(tuner, increment());
  kernel.launch(nullptr, kernel.problem({{"n", kCount}}), x, kCount);
  CHECK(kernel.choice(kernel.problem({{"n", kCount}})).config == R"({"BLOCK":128})");
  CHECK(trials + tuner.statistics().trials <= 4);
}

TEST_CASE("an idle GPU of the same class is measured on first; one that is in use is left alone") {
  if (!test::have_nvrtc()) return;
  // The stand-in for NVML: what asks for it by name finds it loaded.
  REQUIRE(::dlopen(JITUNE_BINARY_DIR "/tests/fake_cuda/libnvidia-ml.so.1", RTLD_NOW) != nullptr);
  char tail[16];
  std::snprintf(tail, sizeof tail, "%012x", static_cast<unsigned>(::getpid()));
  const std::string other = std::string("GPU-fa4e0000-0000-4000-8004-") + tail;
  const std::string spec = std::string(R"({"devices": [{"uuid": "GPU-fa4e0000-0000-4000-8003-)") + tail +
                           R"("}, {"uuid": ")" + other + R"("}], )" + std::string(kSpec).substr(1);
  enum class Case { idle, busy, own_only, named };
  for (const Case which : {Case::idle, Case::busy, Case::own_only, Case::named}) {
    const bool busy = which == Case::busy;
    const test::ScopedEnv used("JITUNE_FAKE_BUSY", busy ? other.c_str() : "");
    FakeGpu gpu(spec);
    float* x = gpu.buffer(kCount, 0);
    auto options = quiet_options(Track::background, "off");
    options.background_share = 0.5;
    if (which == Case::own_only) options.tuning_devices = {"own"};
    if (which == Case::named) options.tuning_devices = {"GPU-none", other};
    Tuner tuner(options);
    Increment kernel(tuner, increment());
    const auto problem = kernel.problem({{"n", kCount}});
    const int launches = launch_until_swapped(kernel, problem, x);
    CHECK(kernel.choice(problem).config == R"({"BLOCK":128})");
    const std::string why = kernel.choice(problem).why;
    CHECK_MESSAGE(has(why, busy || which == Case::own_only ? "provisional" : "tuned in the background, on an idle GPU"),
                  why);
    CHECK(gpu.read(x, kCount) == std::vector<float>(kCount, static_cast<float>(launches)));
  }
}

TEST_CASE("a study that its budget cut short serves, and goes on in the background") {
  if (!test::have_nvrtc()) return;
  const test::TempDir dir;
  FakeGpu gpu(kSlow);
  float* x = gpu.buffer(kCount, 0);
  {
    Tuner tuner(quiet_options(Track::lookup, dir / "a.db"));
    Increment kernel(tuner, increment());
    StudyOptions options;
    options.budget = std::chrono::milliseconds(1);
    const auto study = tuner.tune(kernel, kernel.problem({{"n", kCount}}), options);
    REQUIRE_MESSAGE(study.outcome == "budget", study.outcome);
    REQUIRE(study.winner == R"({"BLOCK":64})");
  }
  auto options = quiet_options(Track::background, dir / "a.db");
  options.background_share = 1;
  Tuner tuner(options);
  Increment kernel(tuner, increment());
  const auto problem = kernel.problem({{"n", kCount}});
  kernel.launch(nullptr, problem, x, kCount);
  CHECK(kernel.choice(problem).rule == "winner");
  CHECK(tuner.statistics().hits == 1);
  const auto start = std::chrono::steady_clock::now();
  while (kernel.choice(problem).config != R"({"BLOCK":128})" && seconds_since(start) < 60)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(kernel.choice(problem).config == R"({"BLOCK":128})");
}

TEST_CASE("a GPU's clocks come from the memo where it knows them, all other facts from the driver") {
  FakeGpu gpu(kSpec);
  struct Memo : gpu::ClockMemo {
    bool recall(const std::string&, int, gpu::Clocks& clocks) override {
      clocks = kept;
      return kept.mhz > 0;
    }
    void remember(const std::string&, int, const gpu::Clocks& clocks) override { kept = clocks; }
    gpu::Clocks kept;
  } memo;
  const auto asked = gpu::device_info(gpu.driver(), 0);
  const auto first = gpu::device_info(gpu.driver(), 0, &memo);
  REQUIRE(asked.ok());
  REQUIRE(first.ok());
  CHECK(first->max_clock_mhz == asked->max_clock_mhz);
  CHECK(memo.kept.mhz == asked->max_clock_mhz);
  memo.kept = {7, 8};
  const auto second = gpu::device_info(gpu.driver(), 0, &memo);
  REQUIRE(second.ok());
  CHECK(second->max_clock_mhz == 7);
  CHECK(second->max_memory_clock_mhz == 8);
  CHECK(second->uuid == asked->uuid);
  CHECK(second->memory_bytes == asked->memory_bytes);
}
