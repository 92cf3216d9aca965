#include <filesystem>
#include <string>

#include "base/files.hpp"
#include "runtime/fixture.hpp"
#include "store/store.hpp"

using namespace jitune;
using test::FakeGpu;
using test::quiet_options;

namespace {

constexpr int kCount = 4096;
using Tally = Kernel<void(int*, const float*, int)>;

/// Marks the positive elements: its output says which data it ran on.
KernelDefinition tally() {
  return {.name = "tally",
          .source_text =
              "template <int BLOCK> __global__ void tally(int* count, const float* x, int n) "
              "{ int i = blockIdx.x * BLOCK + threadIdx.x; if (i < n) count[i] += x[i] > 0 ? 1 : 0; }",
          .entry = "tally<{BLOCK}>",
          .problem = {"n"},
          .params = {{"BLOCK", {64, 128, 256}}},
          .launch = {.grid = {"ceil_div(n, BLOCK)"}, .block = {"BLOCK"}},
          .args = {zeroed("count", "int", "n"), in("x", "float", "n", Fill::zeros()), scalar("n", "int", "n")},
          .defaults = {{.config = {{"BLOCK", "64"}}}}};
}

std::string capture_of(const std::string& directory) {
  std::string found;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(directory, none))
    if (entry.path().extension() == ".json") found = entry.path();
  return found;
}

}  // namespace

TEST_CASE("a launch that JITUNE_CAPTURE names is stored once with its data, and tuned from that alone") {
  if (!test::have_nvrtc()) return;
  const test::TempDir dir;
  FakeGpu gpu(
      R"({"kernels": [{"match": "tally<", "time_us": 100, "spread": 0, "noise": 0, "factors": [{"128": 0.5}]}]})");
  float* x = gpu.buffer(kCount, 3);
  int* count = reinterpret_cast<int*>(gpu.buffer(kCount, 0));
  {
    const test::ScopedEnv pattern("JITUNE_CAPTURE", "tal*");
    Tuner tuner(quiet_options(Track::heuristic, dir / "a.db"));
    Tally kernel(tuner, tally());
    const auto problem = kernel.problem({{"n", kCount}});
    for (int i = 0; i < 3; ++i) kernel.launch(nullptr, problem, count, x, kCount);
  }
  const std::string capture = capture_of(dir / "a.db.captures");
  REQUIRE(capture != "");
  const auto json = read_file(capture);
  REQUIRE(json.ok());
  CHECK(json->find("00100000") != std::string::npos);  // the scalar, little-endian
  const auto contents = read_file(capture.substr(0, capture.size() - 5) + ".x.bin");
  REQUIRE(contents.ok());
  CHECK(contents->size() == kCount * sizeof(float));

  const auto tuned = test::run_program(std::string(JITUNE_BINARY_DIR) + "/bin/jit-prewarm tune --json --capture " +
                                       capture + " --compile-workers 2 --database " + (dir / "b.db"));
  INFO(tuned.out);
  INFO(tuned.err);
  CHECK(tuned.exit_code == 0);
  Tuner tuner(quiet_options(Track::lookup, dir / "b.db"));
  Tally kernel(tuner, tally());
  CHECK(kernel.choice(kernel.problem({{"n", kCount}})).config == R"({"BLOCK":128})");
  CHECK(kernel.choice(kernel.problem({{"n", kCount}})).source == Choice::Source::stored);

  // What was captured is what is read: without the file nothing is tuned on something else.
  std::filesystem::remove(capture.substr(0, capture.size() - 5) + ".x.bin");
  const auto without = test::run_program(std::string(JITUNE_BINARY_DIR) + "/bin/jit-prewarm tune --force --capture " +
                                         capture + " --database " + (dir / "b.db"));
  CHECK(without.exit_code == 2);
  CHECK(without.err.find(".x.bin") != std::string::npos);
}

TEST_CASE("a capture without contents holds the launch alone; other kernels are not captured") {
  if (!test::have_nvrtc()) return;
  const test::TempDir dir;
  FakeGpu gpu("{}");
  float* x = gpu.buffer(kCount, 3);
  int* count = reinterpret_cast<int*>(gpu.buffer(kCount, 0));
  const test::ScopedEnv bytes("JITUNE_CAPTURE_BYTES", "1000");
  for (const std::string pattern : {"other*", "tally"}) {
    const test::ScopedEnv scoped("JITUNE_CAPTURE", pattern.c_str());
    Tuner tuner(quiet_options(Track::lookup, dir / "a.db"));
    Tally kernel(tuner, tally());
    kernel.launch(nullptr, kernel.problem({{"n", kCount}}), count, x, kCount);
    CHECK(capture_of(dir / "a.db.captures").empty() == (pattern != "tally"));
  }
  const auto json = read_file(capture_of(dir / "a.db.captures"));
  REQUIRE(json.ok());
  CHECK(json->find("\"inputs\": {}") != std::string::npos);
  CHECK(json->find("\"input_bytes\": 16384") != std::string::npos);
  const test::ScopedEnv wrong("JITUNE_CAPTURE_BYTES", "many");
  CHECK_THROWS_WITH_AS(Tuner(quiet_options(Track::lookup, "off")), doctest::Contains("JITUNE_CAPTURE_BYTES"), Error);
}
