// Measuring in the application's own process: Isolation::in_process.
#include <unistd.h>

#include "runtime/fixture.hpp"
#include "support/increment.hpp"

using namespace jitune;
using test::FakeGpu;
using test::Increment;
using test::quiet_options;

namespace {

constexpr int kCount = 4096;

KernelDefinition increment() {
  return test::increment({32, 64, 128, 256});
}

std::string spec(const std::string& faulty) {
  return R"({"devices": [{"name": "Fake H200", "cc": "9.0", "ipc": false}], "kernels": [)" + faulty +
         R"({"match": "increment<", "time_us": 100, "spread": 0, "noise": 0.001,
             "factors": [{"32": 1.3, "64": 1.0, "128": 0.5, "256": 0.7}]}]})";
}

Options in_process() {
  auto options = quiet_options(Track::tune, "off");
  options.isolation = Isolation::in_process;
  return options;
}

std::string measuring_workers() {
  return test::run_program("pgrep -fc -P " + std::to_string(::getpid()) + " '[j]itune-worker measure'").out;
}

}  // namespace

TEST_CASE("in process: the study runs in the caller's context on copies of his buffers; no measuring worker starts") {
  if (!test::have_nvrtc()) return;
  FakeGpu gpu(spec(R"({"match": "increment<256", "fault": "launch_error"},)"));
  float* x = gpu.buffer(kCount, 41);
  const int64_t before = gpu.fake().allocated_bytes();
  CUcontext context = nullptr, after = nullptr;
  REQUIRE(gpu.driver().cuCtxGetCurrent(&context) == CUDA_SUCCESS);
  Tuner tuner(in_process());
  Increment kernel(tuner, increment());
  const auto problem = kernel.problem({{"n", kCount}});
  kernel.launch(nullptr, problem, x, kCount);
  CHECK(measuring_workers() == "0\n");
  CHECK(gpu.read(x, kCount) == std::vector<float>(kCount, 42.0f));
  const auto choice = kernel.choice(problem);
  CHECK_MESSAGE(choice.source == Choice::Source::tuned, choice.why);
  CHECK(choice.config == R"({"BLOCK":128})");
  CHECK(choice.time_us == doctest::Approx(50).epsilon(0.02));
  CHECK(tuner.statistics().trials == 4);          // the refused launch is a failed trial, nothing else
  CHECK(gpu.fake().allocated_bytes() == before);  // all that a study takes is given back
  REQUIRE(gpu.driver().cuCtxGetCurrent(&after) == CUDA_SUCCESS);
  CHECK(after == context);
  kernel.launch(nullptr, problem, x, kCount);
  CHECK(gpu.read(x, kCount) == std::vector<float>(kCount, 43.0f));
}

TEST_CASE("in process: a host's function checks what the caller's own buffer gives") {
  if (!test::have_nvrtc()) return;
  FakeGpu gpu(spec(R"({"match": "increment<64", "time_us": 1, "spread": 0, "fault": "wrong"},)"));
  float* x = gpu.buffer(kCount, 7);
  Tuner tuner(in_process());
  auto definition = increment();
  bool saw = false;
  definition.host_reference = HostReference{"1", [&](const ReferenceData& data) {
                                              saw = data.out<float>("x")[5] == 7.0f;
                                              for (float& each : data.out<float>("x")) each += 1;
                                            }};
  Increment kernel(tuner, definition);
  const auto problem = kernel.problem({{"n", kCount}});
  kernel.launch(nullptr, problem, x, kCount);
  CHECK(saw);
  CHECK(kernel.choice(problem).config == R"({"BLOCK":128})");
  CHECK(gpu.read(x, kCount) == std::vector<float>(kCount, 8.0f));
}

TEST_CASE("in process: a config that destroys the context takes the application's with it, as documented") {
  if (!test::have_nvrtc()) return;
  FakeGpu gpu(spec(R"({"match": "increment<256", "fault": "illegal_address"},)"));
  float* x = gpu.buffer(kCount, 0);
  Tuner tuner(in_process());
  Increment kernel(tuner, increment());
  CHECK_THROWS_AS(kernel.launch(nullptr, kernel.problem({{"n", kCount}}), x, kCount), Error);
}

TEST_CASE("in process is asked for by name only: a worker measures otherwise") {
  if (!test::have_nvrtc()) return;
  CHECK(Options{}.isolation == Isolation::process);
  FakeGpu gpu(spec(""));
  float* x = gpu.buffer(kCount, 0);
  const int64_t before = gpu.fake().launches();
  Tuner tuner(quiet_options(Track::tune, "off"));
  Increment kernel(tuner, increment());
  kernel.launch(nullptr, kernel.problem({{"n", kCount}}), x, kCount);
  CHECK(gpu.fake().launches() - before == 1);  // in this process nothing ran but the launch itself
}
