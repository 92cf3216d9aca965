/// What a launch of a known problem adds over a bare cuLaunchKernel through the same driver entry.
///
///   bench_launch [--fake DIRECTORY] [--count N] [--only jitune]
///
/// Bare launches and jitune's are made by turns, a slice of 250 each, by as many threads at once, each on a processor
/// of its own where there are enough: clocks, neighbours and the driver's locks treat both alike. What is printed is
/// the median over all threads' pairs of slices of what a launch of jitune's took longer than a bare one, with the
/// quartiles, beside the medians of both. Problems come in random order, arguments change from launch to launch, and no
/// winner is stored, so that each launch is counted as a miss too. A pair's two slices read the same order of problems,
/// but only jitune reads the Problems: their cache lines are its own cost.
///
/// First with an empty function in place of cuLaunchKernel (what the path itself takes), then real launches (waited for
/// between slices, never within one). --fake loads the stand-in driver; cuCtxGetId is then an empty function too, and
/// times are also given as multiples of an empty indirect call. --only jitune runs the path and nothing else, for
/// callgrind. Exit code 1: a launch allocated memory.
#include <cuda.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <new>
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

constexpr int kSlice = 250;  // launches that a queue takes without waiting
constexpr int kOrders = 16;  // slices with an order of problems of their own
constexpr int kWarmUp = 8;   // pairs of slices

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

double quantile(std::vector<double>& values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

/// The processors that this process may use; first one of each core, then their siblings.
std::vector<int> processors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ::sched_getaffinity(0, sizeof allowed, &allowed);
  std::vector<int> firsts, siblings;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    int first = cpu;
    file >> first;
    (file && first != cpu && CPU_ISSET(first, &allowed) ? siblings : firsts).push_back(cpu);
  }
  firsts.insert(firsts.end(), siblings.begin(), siblings.end());
  return firsts;
}

/// Lets `threads` threads go on together. Spins: to be woken would take longer than a slice.
class Together {
 public:
  explicit Together(int threads) : threads_(threads) {}
  void wait() {
    const int round = round_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      return;
    }
    for (int spins = 0; round_.load(std::memory_order_acquire) == round; ++spins)
      if (spins > 1000) std::this_thread::yield();
  }

 private:
  const int threads_;
  alignas(128) std::atomic<int> arrived_{0};
  alignas(128) std::atomic<int> round_{0};
};

/// ns a call: medians of both kinds of slices, and median and quartiles of the difference within pairs.
struct Compared {
  double bare = 0, path = 0, adds = 0, low = 0, high = 0;
};

struct Bench {
  Driver* driver;
  CUcontext context;
  Add& kernel;
  std::vector<jitune::Problem> problems;
  float* buffer;
  CUfunction function;
  bool real;
  int rounds;

  /// Compares two bodies, called as `body(problem index, i, stream)`.
  template <class Bare, class Path>
  Compared compare(int threads, size_t live, Bare bare, Path path) const {
    const auto cpus = processors();
    const bool enough = cpus.size() >= static_cast<size_t>(threads);  // else each slice would begin with cold caches
    Together together(threads);
    std::vector<std::vector<std::array<double, 2>>> samples(static_cast<size_t>(threads));
    std::vector<std::thread> all;
    for (int t = 0; t < threads; ++t)
      all.emplace_back([&, t] {
        if (enough) {
          cpu_set_t mine;
          CPU_ZERO(&mine);
          CPU_SET(cpus[static_cast<size_t>(t)], &mine);
          ::sched_setaffinity(0, sizeof mine, &mine);
        }
        driver->cuCtxSetCurrent(context);
        CUstream stream = nullptr;
        if (real) driver->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
        std::mt19937 random(static_cast<unsigned>(t));
        std::vector<uint16_t> order(size_t{kSlice} * kOrders);
        for (auto& each : order) each = static_cast<uint16_t>(random() % live);
        const auto slice = [&](const auto& body, int round) {
          const uint16_t* which = order.data() + static_cast<size_t>((round + kWarmUp) % kOrders * kSlice);
          if (enough) together.wait();
          const auto start = Clock::now();
          for (int i = 0; i < kSlice; ++i) body(which[i], i, stream);
          const std::chrono::duration<double, std::nano> took = Clock::now() - start;
          if (real) driver->cuStreamSynchronize(stream);
          return took.count() / kSlice;
        };
        auto& mine = samples[static_cast<size_t>(t)];
        mine.reserve(static_cast<size_t>(rounds));
        for (int round = -kWarmUp; round < rounds; ++round) {
          std::array<double, 2> both{};
          for (int turn = 0; turn < 2; ++turn)  // bare first in every other round
            if (const bool is_path = (turn + round + kWarmUp) % 2 != 0; is_path)
              both[1] = slice(path, round);
            else
              both[0] = slice(bare, round);
          if (round >= 0) mine.push_back(both);
        }
        if (real) driver->cuStreamDestroy(stream);
      });
    for (auto& each : all) each.join();
    std::vector<double> bares, paths, differences;
    for (const auto& mine : samples)
      for (const auto& [one, other] : mine) {
        bares.push_back(one);
        paths.push_back(other);
        differences.push_back(other - one);
      }
    return {quantile(bares, .5), quantile(paths, .5), quantile(differences, .5), quantile(differences, .25),
            quantile(differences, .75)};
  }

  Compared compare(int threads, size_t live) const {
    return compare(
        threads, live,
        [&](uint32_t which, int i, CUstream stream) {
          float* at = buffer + (i & 7);  // arguments change from launch to launch
          int n = i & 15;
          void* params[] = {&at, &at, &at, &n};
          driver->cuLaunchKernel(function, which / 64 + 1, 1, 1, 64, 1, 1, 0, stream, params, nullptr);
        },
        [&](uint32_t which, int i, CUstream stream) {
          float* at = buffer + (i & 7);
          kernel.launch(stream, problems[which], at, at, at, i & 15);
        });
  }

  void print(const char* bare) const {
    for (const int threads : {1, 8})
      for (const size_t live : {size_t{1}, size_t{1000}}) {
        const auto found = compare(threads, live);
        std::printf("  %d threads, %4zu problems: %s %7.1f ns, jitune %7.1f ns, adds %6.1f ns (quartiles %.1f, %.1f)",
                    threads, live, bare, found.bare, found.path, found.adds, found.low, found.high);
        std::printf(found.bare < 100 ? ", ratio %.1f\n" : "\n", found.path / found.bare);
      }
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

    const long long before = allocations;
    for (int i = 0; i < 10000; ++i)
      kernel.launch(nullptr, bench.problems[static_cast<size_t>(i) % 1000], bench.buffer, bench.buffer, bench.buffer,
                    1);
    const long long allocated = allocations - before;
    std::printf("allocations in 10000 launches of 1000 known problems: %lld\n", allocated);

    bench.rounds = static_cast<int>(std::max(20L, count / kSlice));
    bench.real = false;  // nothing is queued that could be waited for
    std::printf("the path, cuLaunchKernel empty%s:\n", fake.empty() ? "" : ", cuCtxGetId empty");
    bench.print("empty call");
    if (fake.empty()) {
      driver->cuCtxGetId = empty_context;
      std::printf("cuCtxGetId empty too:\n");
      bench.print("call");
      driver->cuCtxGetId = real_context;
      for (const int threads : {1, 8}) {
        const auto nothing = [](uint32_t, int, CUstream) {};
        const auto id = bench.compare(threads, 1, nothing, [&](uint32_t, int, CUstream) {
          unsigned long long number = 0;
          real_context(nullptr, &number);
        });
        const auto current = bench.compare(threads, 1, nothing, [&](uint32_t, int, CUstream) {
          CUcontext context_now = nullptr;
          driver->cuCtxGetCurrent(&context_now);
        });
        std::printf("  %d threads: cuCtxGetId alone %.1f ns, cuCtxGetCurrent alone %.1f ns\n", threads, id.adds,
                    current.adds);
      }
      driver->cuLaunchKernel = real_launch;
      bench.real = true;
      std::printf("real launches:\n");
      bench.print("bare");
    }
    return allocated == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
