#include <atomic>
#include <thread>

#include "runtime/fixture.hpp"
#include "support/increment.hpp"

using namespace jitune;
using test::FakeGpu;
using test::Increment;
using test::quiet_options;

// Which config a launch gets when no winner of its very problem serves, and what captures allow.
namespace {

constexpr int kCount = 4096;
constexpr const char* kSpec =
    R"({"kernels": [{"match": "increment<", "time_us": 100, "spread": 0, "noise": 0,
        "factors": [{"128": 0.8, "256": 0.5}]}]})";

KernelDefinition increment() {
  auto definition = test::increment();
  definition.require = {"n >= BLOCK * 8"};
  return definition;
}

void tune(const FakeGpu&, const std::string& database, float* x, int n) {
  Tuner tuner(quiet_options(Track::tune, database));
  Increment kernel(tuner, increment());
  kernel.launch(nullptr, kernel.problem({{"n", n}}), x, n);
  REQUIRE(kernel.choice(kernel.problem({{"n", n}})).config == R"({"BLOCK":256})");
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("an unseen problem gets the nearest tuned one's winner within a bound, if it is valid there") {
  if (!test::have_nvrtc()) return;
  const test::TempDir dir;
  FakeGpu gpu(kSpec);
  float* x = gpu.buffer(2 * kCount, 0);
  tune(gpu, dir / "a.db", x, kCount / 2);
  Tuner tuner(quiet_options(Track::lookup, dir / "a.db"));
  Increment kernel(tuner, increment());
  auto choice = [&](int n) { return kernel.choice(kernel.problem({{"n", n}})); };
  kernel.launch(nullptr, kernel.problem({{"n", 3000}}), x, 3000);
  CHECK(choice(3000).config == R"({"BLOCK":256})");
  CHECK(choice(3000).source == Choice::Source::stored);
  CHECK(has(choice(3000).why, R"(nearest tuned problem, {"n":2048})"));
  CHECK(choice(kCount).config == R"({"BLOCK":256})");  // just twice
  CHECK(choice(kCount + 1).config == R"({"BLOCK":64})");
  CHECK(choice(kCount + 1).source == Choice::Source::default_config);
  CHECK(choice(2000).config == R"({"BLOCK":64})");  // near, but 256 threads are not valid for it
  const auto all = gpu.read(x, 3001);
  CHECK(all[2999] - all[3000] == 1.0f);  // the grid is this problem's
  CHECK(tuner.statistics().trials == 0);
  CHECK(tuner.statistics().hits == 0);
}

TEST_CASE("prepare loads the default config beside the winner, so that no launch has to when it is wanted after all") {
  if (!test::have_nvrtc()) return;
  const test::TempDir dir;
  FakeGpu gpu(kSpec);
  float* x = gpu.buffer(kCount, 0);
  tune(gpu, dir / "a.db", x, kCount);
  Tuner tuner(quiet_options(Track::lookup, dir / "a.db"));
  Increment kernel(tuner, increment());
  auto problem = kernel.problem({{"n", kCount}});
  kernel.prepare(problem);
  kernel.prepare(problem);
  CHECK(kernel.choice(problem).config == R"({"BLOCK":256})");
  CHECK(tuner.statistics().compilations == 0);  // the study compiled it
  CHECK(tuner.statistics().decisions.at("winner") == 1);
  CHECK(tuner.statistics().decisions.count("heuristic") == 0);  // nobody asked for it yet
  kernel.launch(nullptr, problem.on(Track::heuristic), x, kCount);
  CHECK(tuner.statistics().stalls == 1);  // prepare's own
  CHECK(kernel.choice(problem).config == R"({"BLOCK":64})");
  CHECK(kernel.choice(problem).rule == "heuristic");
  // Where it is in no database prepare compiles it.
  Tuner fresh(quiet_options(Track::lookup, "off"));
  Increment cold(fresh, increment());
  auto other = cold.problem({{"n", kCount}}).with({{"BLOCK", 128}});
  cold.prepare(other);  // a config by hand: nothing else is wanted
  CHECK(fresh.statistics().compilations == 1);
  cold.prepare(other.with({}));
  CHECK(fresh.statistics().compilations == 2);
  cold.launch(nullptr, other.on(Track::heuristic), x, kCount);
  CHECK(fresh.statistics().compilations == 2);
}

TEST_CASE("a winner that this device can't launch any more gives way to the default config") {
  if (!test::have_nvrtc()) return;
  const test::TempDir dir;
  FakeGpu gpu(kSpec);
  float* x = gpu.buffer(kCount, 0);
  tune(gpu, dir / "a.db", x, kCount);
  gpu.fake().configure(R"({"kernels": [{"match": "increment<", "regs": 300}]})");
  Tuner tuner(quiet_options(Track::lookup, dir / "a.db"));
  Increment kernel(tuner, increment());
  kernel.launch(nullptr, kernel.problem({{"n", kCount}}), x, kCount);
  const auto choice = kernel.choice(kernel.problem({{"n", kCount}}));
  CHECK(choice.config == R"({"BLOCK":64})");
  CHECK(has(choice.why, "registers leave room for 192 threads"));
  CHECK(tuner.statistics().fallbacks == 1);
}

TEST_CASE("while one thread tunes, others launch the default config at once where that is asked for") {
  if (!test::have_nvrtc()) return;
  FakeGpu gpu(R"({"real_time": true, "kernels": [{"match": "increment<", "time_us": 40000, "spread": 0, "noise": 0,
        "factors": [{"128": 0.9, "256": 0.8}]}]})");
  float *x = gpu.buffer(kCount, 0), *y = gpu.buffer(kCount, 0);
  Tuner tuner(quiet_options(Track::tune, "off"));
  tuner.set_while_tuned(WhileTuned::default_config);
  Increment kernel(tuner, increment());
  const auto problem = kernel.problem({{"n", kCount}});
  CUcontext context = nullptr;
  REQUIRE(gpu.driver().cuCtxGetCurrent(&context) == CUDA_SUCCESS);
  std::atomic<bool> tuned{false};
  std::thread first([&] {
    gpu.driver().cuCtxSetCurrent(context);
    kernel.launch(nullptr, problem, x, kCount);
    tuned = true;
  });
  while (tuner.statistics().compilations == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  kernel.launch(nullptr, problem, y, kCount);
  CHECK_FALSE(tuned.load());
  CHECK(kernel.choice(problem).why == "it is being tuned");
  first.join();
  CHECK(gpu.read(y, kCount) == std::vector<float>(kCount, 1.0f));
  CHECK(kernel.choice(problem).source == Choice::Source::tuned);
  CHECK(kernel.choice(problem).config == R"({"BLOCK":256})");
}

TEST_CASE("two kernels with one key: the second waits for what the first finds") {
  if (!test::have_nvrtc()) return;
  FakeGpu gpu(kSpec);
  float *x = gpu.buffer(kCount, 0), *y = gpu.buffer(kCount, 0);
  auto options = quiet_options(Track::tune, "off");
  options.first_call_budget = std::chrono::seconds(60);  // the bound of the wait, too: for loaded machines
  Tuner tuner(options);
  Increment one(tuner, increment()), other(tuner, increment());
  CUcontext context = nullptr;
  REQUIRE(gpu.driver().cuCtxGetCurrent(&context) == CUDA_SUCCESS);
  std::thread thread([&] {
    gpu.driver().cuCtxSetCurrent(context);
    one.launch(nullptr, one.problem({{"n", kCount}}), x, kCount);
  });
  other.launch(nullptr, other.problem({{"n", kCount}}), y, kCount);
  thread.join();
  CHECK(tuner.statistics().trials == 3);
  CHECK(one.choice(one.problem({{"n", kCount}})).config == R"({"BLOCK":256})");
  CHECK(other.choice(other.problem({{"n", kCount}})).config == R"({"BLOCK":256})");
}

TEST_CASE("in a graph capture a launch loads what the database holds, the default config too, and compiles nothing") {
  if (!test::have_nvrtc()) return;
  const test::TempDir dir;
  FakeGpu gpu(kSpec);
  float* x = gpu.buffer(kCount, 0);
  tune(gpu, dir / "a.db", x, kCount);  // its default config is in the build cache from then on
  Tuner tuner(quiet_options(Track::tune, dir / "a.db"));
  Increment kernel(tuner, increment());
  gpu.fake().set_capturing(true);
  const auto waits = gpu.fake().waits();
  const auto bytes = gpu.fake().allocated_bytes();
  kernel.launch(nullptr, kernel.problem({{"n", kCount}}), x, kCount);
  kernel.launch(nullptr, kernel.problem({{"n", 600}}), x, 600);
  gpu.fake().set_capturing(false);
  CHECK(gpu.fake().waits() == waits);
  CHECK(gpu.fake().allocated_bytes() == bytes);
  CHECK(kernel.choice(kernel.problem({{"n", kCount}})).config == R"({"BLOCK":256})");
  CHECK(kernel.choice(kernel.problem({{"n", 600}})).source == Choice::Source::default_config);
  CHECK(tuner.statistics().compilations == 0);
  CHECK(tuner.statistics().trials == 0);
  // Outside the capture the problem that was missed is tuned like any other.
  kernel.launch(nullptr, kernel.problem({{"n", 600}}), x, 600);
  CHECK(tuner.statistics().trials > 0);
}

TEST_CASE("another thread's capture survives first calls of this one") {
  if (!test::have_nvrtc()) return;
  FakeGpu gpu(kSpec);
  float* x = gpu.buffer(kCount, 0);
  Tuner tuner(quiet_options(Track::tune, "off"));
  Increment kernel(tuner, increment());
  kernel.prepare(kernel.problem({{"n", 600}}));

  gpu.fake().set_foreign_capture(1);  // what waits for the legacy stream would end it: no tuning, no waiting
  kernel.launch(nullptr, kernel.problem({{"n", kCount}}), x, kCount);
  CHECK(kernel.choice(kernel.problem({{"n", kCount}})).source == Choice::Source::default_config);
  CHECK_FALSE(gpu.fake().capture_spoiled());
  kernel.launch(nullptr, kernel.problem({{"n", 600}}), x, 600);
  CHECK_FALSE(gpu.fake().capture_spoiled());

  gpu.fake().set_foreign_capture(2);  // can't be seen: everything is done in relaxed mode
  kernel.launch(nullptr, kernel.problem({{"n", kCount}}), x, kCount);
  CHECK_FALSE(gpu.fake().capture_spoiled());
  gpu.fake().set_foreign_capture(0);
  CHECK(kernel.choice(kernel.problem({{"n", kCount}})).source == Choice::Source::tuned);
}

TEST_CASE("a config given by hand is launched without search or record; only a pinned winner goes before it") {
  if (!test::have_nvrtc()) return;
  const test::TempDir dir;
  FakeGpu gpu(kSpec);
  float* x = gpu.buffer(2 * kCount, 0);
  tune(gpu, dir / "a.db", x, kCount);
  Tuner tuner(quiet_options(Track::tune, dir / "a.db"));
  Increment kernel(tuner, increment());
  auto problem = kernel.problem({{"n", kCount}});
  const auto by_hand = Problem(problem).with({{"BLOCK", 128}});
  CHECK_FALSE(by_hand == problem);
  kernel.launch(nullptr, by_hand, x, kCount);
  CHECK(kernel.choice(by_hand).config == R"({"BLOCK":128})");
  CHECK(kernel.choice(by_hand).source == Choice::Source::given);
  CHECK(kernel.choice(problem).config == R"({"BLOCK":256})");
  CHECK(kernel.choice(problem).rule == "winner");
  CHECK(kernel.choice(Problem(by_hand).with({})).rule == "winner");
  // A problem that was never tuned: nothing is tried and no miss is recorded.
  const auto other = kernel.problem({{"n", 1024}}).with({{"BLOCK", 64}});
  kernel.launch(nullptr, other, x, 1024);
  CHECK(kernel.choice(other).rule == "given");
  CHECK(tuner.statistics().trials == 0);
  CHECK(tuner.statistics().misses == 0);
  const auto thrown = [&](const auto& action) {
    try {
      action();
    } catch (const Error& error) {
      return std::string(to_string(error.code())) + ": " + error.what();
    }
    return std::string("nothing");
  };
  CHECK(has(thrown([&] { Problem(problem).with({{"BLOCKS", 1}}); }), "bad_problem: "));
  const auto impossible = kernel.problem({{"n", 1024}}).with({{"BLOCK", 256}});
  CHECK(has(thrown([&] { kernel.launch(nullptr, impossible, x, 1024); }), "no_runnable_config: "));
  CHECK(has(thrown([&] { kernel.launch(nullptr, impossible, x, 1024); }), "n >= BLOCK * 8"));
  const std::string update = std::string(JITUNE_BINARY_DIR) + "/bin/jit-prewarm pin --database " + (dir / "a.db") + " ";
  const auto key = tuner.tune(kernel, kernel.problem({{"n", kCount}}), {}).key;
  REQUIRE(test::run_program(update + key).exit_code == 0);
  Tuner later(quiet_options(Track::tune, dir / "a.db"));
  Increment again(later, increment());
  CHECK(again.choice(again.problem({{"n", kCount}}).with({{"BLOCK", 128}})).rule == "pinned");
}

TEST_CASE("each decision is told once, with what it cost, and summed up; launches of known problems are not") {
  if (!test::have_nvrtc()) return;
  const test::TempDir dir;
  FakeGpu gpu(kSpec);
  float* x = gpu.buffer(2 * kCount, 0);
  tune(gpu, dir / "a.db", x, kCount);
  static std::vector<std::string> told;
  told.clear();
  auto options = quiet_options(Track::lookup, dir / "a.db");
  options.decisions.function = [](void*, const Decision& decision) noexcept {
    told.push_back(std::string(decision.kernel) + " " + std::string(decision.problem) + " " +
                   std::string(decision.rule) + (decision.hit ? " hit" : "") + (decision.miss ? " miss" : "") +
                   (decision.stall_ms > 0 ? " stall" : ""));
  };
  Tuner tuner(options);
  Increment kernel(tuner, increment());
  for (int i = 0; i < 3; ++i) {
    kernel.launch(nullptr, kernel.problem({{"n", kCount}}), x, kCount);
    kernel.launch(nullptr, kernel.problem({{"n", 3000}}), x, 3000);
    kernel.launch(nullptr, kernel.problem({{"n", 1024}}), x, 1024);
    kernel.launch(nullptr, kernel.problem({{"n", 1024}}).on(Track::heuristic), x, 1024);
  }
  CHECK(told == std::vector<std::string>{"increment n=4096 winner hit stall", "increment n=3000 nearest miss stall",
                                         "increment n=1024 default miss stall", "increment n=1024 heuristic stall"});
  const auto did = tuner.statistics();
  CHECK(did.decisions ==
        std::map<std::string, long long>{{"default", 1}, {"heuristic", 1}, {"nearest", 1}, {"winner", 1}});
  CHECK(did.launches == 12);
}
