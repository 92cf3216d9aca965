#include <functional>
#include <optional>
#include <thread>

#include "runtime/fixture.hpp"

using namespace jitune;
using test::FakeGpu;
using test::quiet_options;

namespace {

constexpr int kCount = 4096;
constexpr const char* kSpec =
    R"({"kernels": [{"match": "^scale<|^void scale<", "time_us": 100, "spread": 0, "noise": 0.001,
  "factors": [{"64": 1.0, "128": 0.5}, {"1": 1.0, "4": 0.8}]}]})";

using Scale = Kernel<void(float*, const float*, float, int)>;

KernelDefinition scale() {
  return {.name = "scale",
          .source_text =
              "template <int BLOCK, int ITEMS> __global__ void scale(float* y, const float* x, float a, int n) "
              "{ for (int k = 0; k < ITEMS; ++k) { int i = (blockIdx.x * ITEMS + k) * BLOCK + threadIdx.x; "
              "if (i < n) y[i] = a * x[i]; } }",
          .entry = "scale<{BLOCK}, {ITEMS}>",
          .problem = {"n"},
          .params = {{"BLOCK", {64, 128}}, {"ITEMS", {1, 4}}},
          .launch = {.grid = {"ceil_div(n, BLOCK * ITEMS)"}, .block = {"BLOCK"}},
          .args = {out("y", "float", "n"), in("x", "float", "n"), scalar("a", "float", "2.0"), scalar("n", "int", "n")},
          .defaults = {{.config = {{"BLOCK", "64"}, {"ITEMS", "1"}}}}};
}

std::string message_of(const std::function<void()>& action, ErrorCode code) {
  try {
    action();
  } catch (const Error& error) {
    CHECK(to_string(error.code()) == std::string(to_string(code)));
    return error.what();
  }
  FAIL("nothing was thrown");
  return "";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("on lookup a miss is launched with the default config and recorded; no config is tried") {
  if (!test::have_nvrtc()) return;
  const test::TempDir dir;
  FakeGpu gpu(kSpec);
  float *y = gpu.buffer(kCount, 0), *x = gpu.buffer(kCount, 3);
  Tuner tuner(quiet_options(Track::lookup, dir / "a.db"));
  Scale kernel(tuner, scale());
  const auto problem = kernel.problem({{"n", kCount}});
  kernel.launch(nullptr, problem, y, x, 2.0f, kCount);
  CHECK(gpu.read(y, kCount) == std::vector<float>(kCount, 6.0f));
  CHECK(kernel.choice(problem).source == Choice::Source::default_config);
  CHECK(kernel.choice(problem).config == R"({"BLOCK":64,"ITEMS":1})");
  const auto did = tuner.statistics();
  CHECK(did.misses == 1);
  CHECK(did.trials == 0);
  CHECK(did.compilations == 1);
  kernel.launch(nullptr, problem, y, x, 2.0f, kCount);
  CHECK(tuner.statistics().misses == 1);  // the plan is in memory
  CHECK(tuner.statistics().launches == 2);
}

TEST_CASE("a launch says what is wrong with it") {
  if (!test::have_nvrtc()) return;
  FakeGpu gpu(kSpec);
  float *y = gpu.buffer(kCount, 0), *x = gpu.buffer(kCount, 3);
  std::optional<Tuner> tuner(quiet_options(Track::heuristic, "off"));
  Scale kernel(*tuner, scale()), other(*tuner, scale());
  auto launch = [&](const Problem& problem, int n = kCount) {
    return [&, problem, n] { kernel.launch(nullptr, problem, y, x, 2.0f, n); };
  };
  CHECK(has(message_of(
                [&] {
                  (void)kernel.problem({{"m", 1}});
                },
                ErrorCode::bad_problem),
            "no problem value 'm'; it has: n"));
  CHECK(has(message_of(launch(Problem{}), ErrorCode::bad_problem), "make it with Kernel::problem"));
  CHECK(has(message_of(launch(other.problem({{"n", 1}})), ErrorCode::bad_problem), "made by another kernel"));
  CHECK(has(message_of(launch(kernel.problem({})), ErrorCode::bad_problem), "'n' was not set"));
  CHECK(has(message_of(launch(kernel.problem({{"n", kCount * 2}})), ErrorCode::bad_arguments),
            "arg 'y' needs 32768 bytes, its allocation has only 16384"));
  const void* const one[] = {&y};
  CHECK(has(message_of(
                [&] {
                  static_cast<UntypedKernel&>(kernel).launch(nullptr, kernel.problem({{"n", kCount}}), one);
                },
                ErrorCode::bad_arguments),
            "1 arguments were given, it takes 4"));
  const auto problem = kernel.problem({{"n", kCount}});
  kernel.launch(nullptr, problem, y, x, 2.0f, kCount);
  tuner.reset();
  CHECK(has(message_of(launch(problem), ErrorCode::lifetime), "after its Tuner was destroyed"));
}

TEST_CASE("without a current context the message says what to call") {
  if (!test::have_nvrtc()) return;
  FakeGpu gpu(kSpec);
  Tuner tuner(quiet_options(Track::heuristic, "off"));
  Scale kernel(tuner, scale());
  std::thread([&] {
    CHECK(has(message_of(
                  [&] {
                    kernel.launch(nullptr, kernel.problem({{"n", 1}}), nullptr, nullptr, 1.0f, 1);
                  },
                  ErrorCode::launch_failed),
              "cudaSetDevice"));
  }).join();
}

TEST_CASE("a source that does not compile is told with the compiler's words") {
  if (!test::have_nvrtc()) return;
  FakeGpu gpu(kSpec);
  float *y = gpu.buffer(kCount, 0), *x = gpu.buffer(kCount, 3);
  Tuner tuner(quiet_options(Track::lookup, "off"));
  auto broken = scale();
  broken.source_text += "\nundeclared_thing;\n";
  Scale kernel(tuner, broken);
  CHECK(has(message_of(
                [&] {
                  kernel.launch(nullptr, kernel.problem({{"n", kCount}}), y, x, 2.0f, kCount);
                },
                ErrorCode::no_runnable_config),
            "undeclared_thing"));
}

TEST_CASE("while a graph is captured nothing is compiled; what was prepared is launched") {
  if (!test::have_nvrtc()) return;
  FakeGpu gpu(kSpec);
  float *y = gpu.buffer(kCount, 0), *x = gpu.buffer(kCount, 3);
  Tuner tuner(quiet_options(Track::lookup, "off"));
  Scale kernel(tuner, scale());
  const auto problem = kernel.problem({{"n", kCount}});
  gpu.fake().set_capturing(true);
  CHECK(has(message_of([&] { kernel.launch(nullptr, problem, y, x, 2.0f, kCount); }, ErrorCode::not_prepared),
            "prepare"));
  gpu.fake().set_capturing(false);
  kernel.prepare(problem);
  gpu.fake().set_capturing(true);
  kernel.launch(nullptr, problem, y, x, 2.0f, kCount);
  gpu.fake().set_capturing(false);
  CHECK(tuner.statistics().launches == 1);
}

TEST_CASE("a zeroed output starts at zero in every launch, scratch is jitune's own, symbols reach the module") {
  if (!test::have_nvrtc()) return;
  FakeGpu gpu("{}");
  Tuner tuner(quiet_options(Track::lookup, "off"));
  float *x = gpu.buffer(kCount, 3), *y = gpu.buffer(kCount, 7);

  KernelDefinition accumulate{.name = "accumulate",
                              .source_text =
                                  "template <int BLOCK> __global__ void accumulate(float* sum, const float* x, int n) "
                                  "{ int i = blockIdx.x * BLOCK + threadIdx.x; if (i < n) sum[i] += x[i]; }",
                              .entry = "accumulate<{BLOCK}>",
                              .problem = {"n"},
                              .params = {{"BLOCK", {128}}},
                              .launch = {.grid = {"ceil_div(n, BLOCK)"}, .block = {"BLOCK"}},
                              .args = {zeroed("sum", "float", "n"), in("x", "float", "n"), scalar("n", "int", "n")},
                              .defaults = {{.config = {{"BLOCK", "128"}}}}};
  Kernel<void(float*, const float*, int)> sums(tuner, accumulate);
  for (int i = 0; i < 3; ++i) sums.launch(nullptr, sums.problem({{"n", kCount}}), y, x, kCount);
  CHECK(gpu.read(y, kCount) == std::vector<float>(kCount, 3.0f));

  KernelDefinition copy{
      .name = "scratch_copy",
      .source_text =
          "template <int BLOCK> __global__ void scratch_copy(float* y, const float* x, float* s, "
          "int n) { int i = blockIdx.x * BLOCK + threadIdx.x; if (i < n) { s[i] = x[i]; y[i] = "
          "s[i]; } }",
      .entry = "scratch_copy<{BLOCK}>",
      .problem = {"n"},
      .params = {{"BLOCK", {128}}},
      .launch = {.grid = {"ceil_div(n, BLOCK)"}, .block = {"BLOCK"}},
      .args = {out("y", "float", "n"), in("x", "float", "n"), scratch("s", "float", "n"), scalar("n", "int", "n")},
      .defaults = {{.config = {{"BLOCK", "128"}}}}};
  Kernel<void(float*, const float*, int)> copies(tuner, copy);
  copies.launch(nullptr, copies.problem({{"n", kCount}}), y, x, kCount);
  CHECK(gpu.read(y, kCount) == std::vector<float>(kCount, 3.0f));

  KernelDefinition factor{
      .name = "symbol_scale",
      .source_text =
          "__constant__ float factor; template <int BLOCK> __global__ void symbol_scale(float* "
          "y, const float* x, int n) { int i = blockIdx.x * BLOCK + threadIdx.x; if (i < n) "
          "y[i] = factor * x[i]; }",
      .entry = "symbol_scale<{BLOCK}>",
      .problem = {"n"},
      .params = {{"BLOCK", {128}}},
      .launch = {.grid = {"ceil_div(n, BLOCK)"}, .block = {"BLOCK"}},
      .args = {out("y", "float", "n"), in("x", "float", "n"), scalar("n", "int", "n"), symbol("factor", "float", "1")},
      .defaults = {{.config = {{"BLOCK", "128"}}}}};
  Kernel<void(float*, const float*, int)> scaled(tuner, factor);
  const float before = 5, after = 6;
  scaled.set_symbol("factor", &before, sizeof before);  // before there is a plan
  scaled.launch(nullptr, scaled.problem({{"n", kCount}}), y, x, kCount);
  CHECK(gpu.read(y, kCount) == std::vector<float>(kCount, 15.0f));
  scaled.set_symbol("factor", &after, sizeof after);  // and with one
  scaled.launch(nullptr, scaled.problem({{"n", kCount}}), y, x, kCount);
  CHECK(gpu.read(y, kCount) == std::vector<float>(kCount, 18.0f));
  CHECK(has(message_of([&] { scaled.set_symbol("other", &after, 4); }, ErrorCode::bad_arguments),
            "no symbol arg 'other'"));
}
