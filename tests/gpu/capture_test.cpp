#include <dlfcn.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "gpu/driver.hpp"
#include "jitune/jitune.hpp"
#include "support/increment.hpp"
#include "support/support.hpp"

using namespace jitune;
using test::increment;

// Launches inside real CUDA graph captures.
namespace {

constexpr int kCount = 1 << 16;

using Increment = Kernel<void(device_ptr, int)>;

/// The driver's functions for graphs, which jitune itself does not use.
struct Graphs {
  decltype(&::cuStreamBeginCapture) begin = nullptr;
  decltype(&::cuStreamEndCapture) end = nullptr;
  decltype(&::cuGraphInstantiateWithFlags) instantiate = nullptr;
  decltype(&::cuGraphLaunch) launch = nullptr;

  Graphs() {
    void* library = ::dlopen("libcuda.so.1", RTLD_NOW);
    const auto find = [&](const char* name, auto& function) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      REQUIRE((function != nullptr));
    };
    find("cuStreamBeginCapture_v2", begin);
    find("cuStreamEndCapture", end);
    find("cuGraphInstantiateWithFlags", instantiate);
    find("cuGraphLaunch", launch);
  }
};

struct Gpu {
  const gpu::Driver* driver = nullptr;
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr x = 0;

  explicit operator bool() const { return driver != nullptr; }
  float first() const {
    float value = 0;
    REQUIRE(driver->cuMemcpyDtoH(&value, x, sizeof value) == CUDA_SUCCESS);
    return value;
  }
};

Gpu gpu_or_skip() {
  Gpu made;
  auto driver = gpu::driver();
  CUdevice device = 0;
  if (!driver || (*driver)->cuDeviceGet(&device, 0) != CUDA_SUCCESS) {
    test::skip("gpu", driver ? "no device" : driver.error());
    return made;
  }
  made.context = gpu::use_primary_context(**driver, device).value();
  REQUIRE((*driver)->cuStreamCreate(&made.stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  REQUIRE((*driver)->cuMemAlloc(&made.x, kCount * sizeof(float)) == CUDA_SUCCESS);
  REQUIRE((*driver)->cuMemsetD32Async(made.x, 0, kCount, made.stream) == CUDA_SUCCESS);
  REQUIRE((*driver)->cuStreamSynchronize(made.stream) == CUDA_SUCCESS);
  made.driver = *driver;
  return made;
}

Options options(Track track, const std::string& database) {
  Options made;
  made.track = track;
  made.database = database;
  if (std::getenv("JITUNE_WORKER") == nullptr) made.worker = std::string(JITUNE_BINARY_DIR) + "/bin/jitune-worker";
  return made;
}

}  // namespace

TEST_CASE("after prepare the first launch goes into a captured graph, which replays right") {
  const Gpu gpu = gpu_or_skip();
  if (!gpu) return;
  const test::TempDir dir;
  const Graphs graphs;
  Tuner tuner(options(Track::tune, dir / "a.db"));
  Increment kernel(tuner, increment());
  const auto problem = kernel.problem({{"n", kCount}});
  kernel.prepare(problem, gpu.stream);
  CUgraph graph = nullptr;
  CUgraphExec ready = nullptr;
  REQUIRE(graphs.begin(gpu.stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  kernel.launch(gpu.stream, problem, device_ptr{gpu.x}, kCount);
  REQUIRE(graphs.end(gpu.stream, &graph) == CUDA_SUCCESS);
  REQUIRE(graphs.instantiate(&ready, graph, 0) == CUDA_SUCCESS);
  CHECK(gpu.first() == 0.0f);  // captured, not run
  for (int i = 0; i < 10; ++i) REQUIRE(graphs.launch(ready, gpu.stream) == CUDA_SUCCESS);
  REQUIRE(gpu.driver->cuStreamSynchronize(gpu.stream) == CUDA_SUCCESS);
  CHECK(gpu.first() == 10.0f);
}

TEST_CASE("unprepared, a launch in a capture says so and the capture goes on; a stored winner is loaded in it") {
  const Gpu gpu = gpu_or_skip();
  if (!gpu) return;
  const test::TempDir dir;
  const Graphs graphs;
  {
    Tuner tuner(options(Track::tune, dir / "a.db"));
    Increment kernel(tuner, increment());
    kernel.prepare(kernel.problem({{"n", kCount}}), gpu.stream);
  }
  Tuner tuner(options(Track::tune, dir / "a.db"));
  auto other = increment();
  other.source_text += "\n// another key\n";
  Increment kernel(tuner, increment()), unknown(tuner, other);
  CUgraph graph = nullptr;
  CUgraphExec ready = nullptr;
  REQUIRE(graphs.begin(gpu.stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  bool refused = false;
  try {
    unknown.launch(gpu.stream, unknown.problem({{"n", kCount}}), device_ptr{gpu.x}, kCount);
  } catch (const Error& error) {
    refused = error.code() == ErrorCode::not_prepared;
  }
  CHECK(refused);
  kernel.launch(gpu.stream, kernel.problem({{"n", kCount}}), device_ptr{gpu.x}, kCount);
  REQUIRE(graphs.end(gpu.stream, &graph) == CUDA_SUCCESS);
  REQUIRE(graphs.instantiate(&ready, graph, 0) == CUDA_SUCCESS);
  for (int i = 0; i < 3; ++i) REQUIRE(graphs.launch(ready, gpu.stream) == CUDA_SUCCESS);
  REQUIRE(gpu.driver->cuStreamSynchronize(gpu.stream) == CUDA_SUCCESS);
  CHECK(gpu.first() == 3.0f);
  CHECK(tuner.statistics().compilations == 0);
  CHECK(tuner.statistics().misses == 1);
}

TEST_CASE("a first call that tunes leaves another thread's global capture alone") {
  const Gpu gpu = gpu_or_skip();
  if (!gpu) return;
  const Graphs graphs;
  CUstream captured = nullptr;
  REQUIRE(gpu.driver->cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  Tuner tuner(options(Track::tune, "off"));
  Increment kernel(tuner, increment());
  const auto small = kernel.problem({{"n", 256}});
  kernel.prepare(small);
  std::atomic<int> step{0};
  CUresult ended = CUDA_ERROR_UNKNOWN;
  std::thread other([&] {
    gpu.driver->cuCtxSetCurrent(gpu.context);
    REQUIRE(graphs.begin(captured, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    kernel.launch(captured, small, device_ptr{gpu.x}, 256);
    step = 1;
    while (step < 2) std::this_thread::yield();
    CUgraph graph = nullptr;
    ended = graphs.end(captured, &graph);
  });
  while (step < 1) std::this_thread::yield();
  kernel.launch(gpu.stream, kernel.problem({{"n", kCount}}), device_ptr{gpu.x}, kCount);
  step = 2;
  other.join();
  CHECK(ended == CUDA_SUCCESS);
  CHECK(kernel.choice(kernel.problem({{"n", kCount}})).source == Choice::Source::tuned);
}
