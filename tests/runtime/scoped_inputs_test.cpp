#include <cmath>
#include <limits>
#include <thread>

#include "runtime/fixture.hpp"

using namespace jitune;
using test::FakeGpu;
using test::quiet_options;

namespace {

constexpr int kCount = 1024;
constexpr size_t kBytes = kCount * sizeof(float);
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr const char* kSpec = R"({"kernels": [{"match": "scale<", "time_us": 100, "spread": 0,
  "factors": [{"64": 1.0, "128": 0.5}]}]})";

// A NaN differs from a NaN here: a study whose x holds one finds that its reference does not even agree with itself.
KernelDefinition scale(const std::string& name) {
  return {.name = name,
          .source_text =
              "template <int BLOCK> __global__ void scale(float* y, const float* x, float a, int n) "
              "{ int i = blockIdx.x * BLOCK + threadIdx.x; if (i < n) y[i] = a * x[i]; }",
          .entry = "scale<{BLOCK}>",
          .problem = {{"n"}},
          .params = {{"BLOCK", {64, 128}}},
          .launch = {.grid = {"ceil_div(n, BLOCK)"}, .block = {"BLOCK"}},
          .args = {out("y", "float", "n", Tolerance{false, 1e-3, 1e-3, 0, false}), in("x", "float", "n"),
                   scalar("a", "float", "2"), scalar("n", "int", "n")},
          .defaults = {{.config = {{"BLOCK", "64"}}}}};
}

using Scale = Kernel<void(float*, const float*, float, int)>;

struct Bench {
  FakeGpu gpu{kSpec};
  float* y = gpu.buffer(kCount, 0);
  float* good = gpu.buffer(kCount, 3);
  float* bad = gpu.buffer(kCount, kNan);
  Tuner tuner{quiet_options(Track::tune, "off")};

  /// Whether the study of a first launch with `x` came to a winner.
  bool tunes(const std::string& name, const float* x) {
    Scale kernel(tuner, scale(name));
    const auto problem = kernel.problem({{"n", kCount}});
    kernel.launch(nullptr, problem, y, x, 2.0f, kCount);
    return kernel.choice(problem).source == Choice::Source::tuned;
  }
};

}  // namespace

TEST_CASE("a scope's buffers are what this thread's studies read; launches keep their own") {
  if (!test::have_nvrtc()) return;
  Bench bench;
  CHECK(bench.tunes("k1", bench.good));
  CHECK_FALSE(bench.tunes("k2", bench.bad));
  {
    const ScopedInputs scope({{.name = "x", .data = bench.good, .bytes = kBytes},
                              {.name = "of another kernel", .data = nullptr, .bytes = 0}});
    CHECK(bench.tunes("k3", bench.bad));
    CHECK(std::isnan(bench.gpu.read(bench.y, kCount)[7]));  // the launch itself read its own x
    const ScopedInputs inner({{.name = "x", .data = bench.bad, .bytes = kBytes, .kernel = "k4"}});
    CHECK_FALSE(bench.tunes("k4", bench.good));
    CHECK(bench.tunes("k5", bench.bad));  // the inner scope is not for it
    CHECK(ScopedInputs::find("k4", "x")->data == bench.bad);
    CHECK(ScopedInputs::find("k5", "x")->data == bench.good);
    CHECK(ScopedInputs::find("k5", "y") == nullptr);
    bool seen = true;
    std::thread([&] { seen = ScopedInputs::any(); }).join();
    CHECK_FALSE(seen);
  }
  CHECK_FALSE(ScopedInputs::any());
  CHECK_FALSE(bench.tunes("k6", bench.bad));
  CHECK(bench.gpu.read(bench.good, kCount) == std::vector<float>(kCount, 3.0f));
}

TEST_CASE("prepare tunes with a scope's buffers, where it had fills") {
  if (!test::have_nvrtc()) return;
  Bench bench;
  Scale filled(bench.tuner, scale("filled"));
  filled.prepare(filled.problem({{"n", kCount}}));
  CHECK(filled.choice(filled.problem({{"n", kCount}})).source == Choice::Source::tuned);
  const ScopedInputs scope({{.name = "x", .data = bench.bad, .bytes = kBytes}});
  Scale scoped(bench.tuner, scale("scoped"));
  scoped.prepare(scoped.problem({{"n", kCount}}));
  CHECK(scoped.choice(scoped.problem({{"n", kCount}})).source == Choice::Source::default_config);
}

TEST_CASE("a scope's buffer that is too small for the arg is refused before anything reads it") {
  if (!test::have_nvrtc()) return;
  Bench bench;
  const auto message_of = [&](const std::string& name, const void* data, size_t bytes) -> std::string {
    const ScopedInputs scope({{.name = "x", .data = data, .bytes = bytes}});
    try {
      bench.tunes(name, bench.good);
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::bad_arguments);
      return error.what();
    }
    return "";
  };
  CHECK(message_of("k1", bench.bad, kBytes - 4).find("the kernel reads 4096") != std::string::npos);
  CHECK(message_of("k2", bench.bad + 1, kBytes).find("has only 4092") != std::string::npos);
  CHECK(message_of("k3", nullptr, kBytes).find("null pointer") != std::string::npos);
  CHECK(message_of("k4", bench.good, kBytes).empty());
}
