// What a launch of a known problem adds over a bare cuLaunchKernel through the same driver entry.
//
//   bench_launch [--fake DIRECTORY] [--count N] [--only jitune]
//
// --fake loads the stand-in driver; cuLaunchKernel and cuCtxGetId are then empty functions and times are also given as
// multiples of an empty indirect call. With a real driver both the difference of real launches and the path with an
// empty cuLaunchKernel alone are printed. --only jitune runs the path and nothing else, for callgrind.
#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "compile/nvrtc.hpp"
#include "fake_cuda/loaded.hpp"
#include "gpu/driver.hpp"
#include "jitune/jitune.hpp"

namespace {

std::atomic<long long> allocations{0};

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace {

using jitune::gpu::Driver;
using Clock = std::chrono::steady_clock;
using Add = jitune::Kernel<void(float*, const float*, const float*, int)>;

constexpr int kBatch = 500;  // launches that a queue takes without waiting

CUresult CUDAAPI empty_launch(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                              CUstream, void**, void**) {
  return CUDA_SUCCESS;
}
CUresult CUDAAPI empty_context(CUcontext, unsigned long long* id) {
  *id = 1;
  return CUDA_SUCCESS;
}

jitune::KernelDefinition add() {
  return {.name = "add",
          .source_text =
              "template <int BLOCK> __global__ void add(float* c, const float* a, const float* b, int n) "
              "{ int i = blockIdx.x * BLOCK + threadIdx.x; if (i < n) c[i] = a[i] + b[i]; }",
          .entry = "add<{BLOCK}>",
          .problem = {"n"},
          .params = {{"BLOCK", {64, 128}}},
          .launch = {.grid = {"ceil_div(n, BLOCK)"}, .block = {"BLOCK"}},
          .args = {jitune::out("c", "float", "n"), jitune::in("a", "float", "n"), jitune::in("b", "float", "n"),
                   jitune::scalar("n", "int", "n")},
          .defaults = {{.config = {{"BLOCK", "64"}}}}};
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Bench {
  Driver* driver;
  CUcontext context;
  Add& kernel;
  std::vector<jitune::Problem> problems;
  float* buffer;
  CUfunction function;
  bool real;
  int rounds;

  /// Median ns a call over all threads' batches of `body(problem index, i, stream)`.
  template <class Body>
  double time(int threads, size_t live, Body body) const {
    std::barrier together(threads);
    std::vector<std::vector<double>> samples(static_cast<size_t>(threads));
    std::vector<std::thread> all;
    for (int t = 0; t < threads; ++t)
      all.emplace_back([&, t] {
        driver->cuCtxSetCurrent(context);
        CUstream stream = nullptr;
        if (real) driver->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
        std::mt19937 random(static_cast<unsigned>(t));
        std::vector<uint32_t> order(kBatch);
        for (auto& each : order) each = static_cast<uint32_t>(random() % live);
        auto& mine = samples[static_cast<size_t>(t)];
        mine.reserve(static_cast<size_t>(rounds));
        for (int round = -2; round < rounds; ++round) {
          together.arrive_and_wait();
          const auto start = Clock::now();
          for (int i = 0; i < kBatch; ++i) body(order[static_cast<size_t>(i)], i, stream);
          const std::chrono::duration<double, std::nano> took = Clock::now() - start;
          if (real) driver->cuStreamSynchronize(stream);
          if (round >= 0) mine.push_back(took.count() / kBatch);
        }
        if (real) driver->cuStreamDestroy(stream);
      });
    for (auto& each : all) each.join();
    std::vector<double> joined;
    for (const auto& each : samples) joined.insert(joined.end(), each.begin(), each.end());
    return median(joined);
  }

  double with_jitune(int threads, size_t live) {
    return time(threads, live, [&](uint32_t which, int i, CUstream stream) {
      float* at = buffer + (i & 7);  // arguments change from launch to launch
      kernel.launch(stream, problems[which], at, at, at, i & 15);
    });
  }
  double bare(int threads, size_t live) {
    return time(threads, live, [&](uint32_t which, int i, CUstream stream) {
      float* at = buffer + (i & 7);
      int n = i & 15;
      void* params[] = {&at, &at, &at, &n};
      driver->cuLaunchKernel(function, which / 64 + 1, 1, 1, 64, 1, 1, 0, stream, params, nullptr);
    });
  }
};

CUfunction any_function(Driver& driver, const std::function<void()>& launch) {
  static CUfunction seen = nullptr;
  const auto kept = driver.cuLaunchKernel;
  driver.cuLaunchKernel = [](CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                             CUstream, void**, void**) {
    seen = function;
    return CUDA_SUCCESS;
  };
  launch();
  driver.cuLaunchKernel = kept;
  return seen;
}

}  // namespace

int main(int argc, char** argv) {
  std::string fake;
  long count = 100'000;
  bool only_jitune = false;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--fake") == 0) fake = argv[i + 1];
    if (std::strcmp(argv[i], "--count") == 0) count = std::atol(argv[i + 1]);
    if (std::strcmp(argv[i], "--only") == 0) only_jitune = true;
  }
  try {
    if (!fake.empty()) {
      const fake_cuda::Loaded loaded(fake + "/libcuda.so.1");
      loaded.configure("{}");
    }
    auto found = jitune::gpu::driver();
    if (!found) {
      std::printf("[jitune] skipped (gpu): %s\n", found.error().c_str());
      return 0;
    }
    auto* driver = const_cast<Driver*>(*found);
    CUdevice device = 0;
    driver->cuDeviceGet(&device, 0);
    const auto context = jitune::gpu::use_primary_context(*driver, device);
    CUdeviceptr memory = 0;
    if (!context || driver->cuMemAlloc(&memory, 1 << 20) != CUDA_SUCCESS) {
      std::printf("no context or memory\n");
      return 1;
    }

    if (const auto nvrtc = jitune::compile::find_nvrtc({}); nvrtc.found.empty()) {
      std::printf("[jitune] skipped (nvrtc): %s\n", jitune::compile::explain_missing(nvrtc).c_str());
      return 0;
    }
    jitune::Options options;
    options.database = "off";
    jitune::Tuner tuner(options);
    Add kernel(tuner, add());
    Bench bench{driver, *context, kernel, {}, reinterpret_cast<float*>(memory), nullptr, fake.empty(), 0};
    for (int n = 1; n <= 1000; ++n) bench.problems.push_back(kernel.problem({{"n", n}}));
    for (const auto& each : bench.problems) kernel.prepare(each);
    bench.function = any_function(
        *driver, [&] { kernel.launch(nullptr, bench.problems[0], bench.buffer, bench.buffer, bench.buffer, 1); });

    const auto real_launch = driver->cuLaunchKernel;
    const auto real_context = driver->cuCtxGetId;
    if (!fake.empty()) driver->cuCtxGetId = empty_context;
    driver->cuLaunchKernel = empty_launch;
    if (only_jitune) {
      for (long i = 0; i < count; ++i)
        kernel.launch(nullptr, bench.problems[static_cast<size_t>(i) % 1000], bench.buffer, bench.buffer, bench.buffer,
                      1);
      return 0;
    }

    bench.rounds = static_cast<int>(std::max(20L, count / kBatch));
    const long long before = allocations;
    for (int i = 0; i < 10000; ++i)
      kernel.launch(nullptr, bench.problems[static_cast<size_t>(i) % 1000], bench.buffer, bench.buffer, bench.buffer,
                    1);
    const long long allocated = allocations - before;
    std::printf("allocations in 10000 launches of 1000 known problems: %lld\n", allocated);

    std::printf("the path, cuLaunchKernel empty%s:\n", fake.empty() ? "" : ", cuCtxGetId empty");
    for (const int threads : {1, 8})
      for (const size_t live : {size_t{1}, size_t{1000}}) {
        const double empty = bench.bare(threads, live), path = bench.with_jitune(threads, live);
        std::printf("  %d threads, %4zu problems: empty call %6.1f ns, jitune %6.1f ns, adds %6.1f ns, ratio %.1f\n",
                    threads, live, empty, path, path - empty, path / empty);
      }
    if (fake.empty()) {
      for (const auto& [name, call] :
           std::initializer_list<std::pair<const char*, std::function<void()>>>{{"cuCtxGetId",
                                                                                 [&] {
                                                                                   unsigned long long id = 0;
                                                                                   real_context(nullptr, &id);
                                                                                 }},
                                                                                {"cuCtxGetCurrent", [&] {
                                                                                   CUcontext current = nullptr;
                                                                                   driver->cuCtxGetCurrent(&current);
                                                                                 }}}) {
        const auto start = Clock::now();
        for (int i = 0; i < 1'000'000; ++i) call();
        const std::chrono::duration<double, std::nano> took = Clock::now() - start;
        std::printf("  %s alone: %.1f ns\n", name, took.count() / 1e6);
      }
      driver->cuLaunchKernel = real_launch;
      std::printf("real launches:\n");
      for (const int threads : {1, 8})
        for (const size_t live : {size_t{1}, size_t{1000}}) {
          // By turns, so that clocks and neighbours treat both alike.
          std::vector<double> bare, path;
          for (int turn = 0; turn < 5; ++turn) {
            bench.rounds = static_cast<int>(std::max(10L, count / kBatch / 5));
            bare.push_back(bench.bare(threads, live));
            path.push_back(bench.with_jitune(threads, live));
          }
          std::printf("  %d threads, %4zu problems: bare %7.1f ns, jitune %7.1f ns, adds %6.1f ns\n", threads, live,
                      median(bare), median(path), median(path) - median(bare));
        }
    }
    return allocated == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
