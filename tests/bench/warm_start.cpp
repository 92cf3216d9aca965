// How long a new process takes from the construction of its Tuner to its first tuned launch, beyond cuInit and the
// making of the context, with a database of 1,000 kernels.
//
//   bench_warm_start [--kernels N] [--runs N] [--database PATH]
//
// Fills a database (two real kernels are tuned, the rest are rows with cubins of 20 KB), then starts itself again for
// each run: `--measure plain|cub`. With the stand-in driver it shows the host's share (LD_LIBRARY_PATH and
// JITUNE_FAKE_CUDA as in tests/fake_cuda/README.md).
#include <cuda.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/hash.hpp"
#include "gpu/driver.hpp"
#include "jitune/jitune.hpp"
#include "store/store.hpp"

namespace {

using namespace jitune;
using SteadyClock = std::chrono::steady_clock;

constexpr int kCount = 1 << 16;
constexpr size_t kCubinBytes = 20'000;

KernelDefinition plain() {
  return {.name = "increment",
          .source_text =
              "template <int BLOCK> __global__ void increment(float* x, int n) "
              "{ int i = blockIdx.x * BLOCK + threadIdx.x; if (i < n) x[i] += 1; }",
          .entry = "increment<{BLOCK}>",
          .problem = {"n"},
          .params = {{"BLOCK", {64, 128, 256}}},
          .launch = {.grid = {"ceil_div(n, BLOCK)"}, .block = {"BLOCK"}},
          .args = {inout("x", "float", "n"), scalar("n", "int", "n")},
          .defaults = {{.config = {{"BLOCK", "64"}}}}};
}

KernelDefinition with_cub() {
  KernelDefinition definition = plain();
  definition.name = "block_sums";
  definition.source_text =
      "#include <cub/block/block_reduce.cuh>\n"
      "template <int BLOCK> __global__ void block_sums(float* x, int n) {\n"
      "  using Reduce = cub::BlockReduce<float, BLOCK>;\n"
      "  __shared__ typename Reduce::TempStorage storage;\n"
      "  int i = blockIdx.x * BLOCK + threadIdx.x;\n"
      "  float v = i < n ? x[i] : 0;\n"
      "  float sum = Reduce(storage).Sum(v);\n"
      "  if (threadIdx.x == 0 && sum != sum) x[i] = 0;\n}\n";
  definition.entry = "block_sums<{BLOCK}>";
  return definition;
}

const gpu::Driver* open_gpu() {
  auto driver = gpu::driver();
  if (!driver) {
    std::printf("[jitune] skipped (gpu): %s\n", driver.error().c_str());
    return nullptr;
  }
  CUdevice device = 0;
  (*driver)->cuDeviceGet(&device, 0);
  if (auto context = gpu::use_primary_context(**driver, device); !context) {
    std::printf("%s\n", context.error().c_str());
    return nullptr;
  }
  return *driver;
}

Options options(Track track, const std::string& database) {
  Options made;
  made.track = track;
  made.database = database;
  made.first_call_budget = std::chrono::seconds(20);
  return made;
}

/// Tunes the two real kernels and adds rows for others. False when that fails.
bool fill(const gpu::Driver& driver, const std::string& database, int kernels) {
  CUdeviceptr x = 0;
  driver.cuMemAlloc(&x, kCount * sizeof(float));
  {
    Tuner tuner(options(Track::tune, database));
    for (auto definition : {plain(), with_cub()}) {
      Kernel<void(device_ptr, int)> kernel(tuner, definition);
      const auto problem = kernel.problem({{"n", kCount}});
      kernel.launch(nullptr, problem, device_ptr{x}, kCount);
      std::printf("%s: %s\n", kernel.name().c_str(), kernel.choice(problem).why.c_str());
      if (kernel.choice(problem).source != Choice::Source::tuned) return false;
    }
  }
  auto store = store::Store::open({.path = database, .must_be_file = true});
  if (!store) return false;
  auto key = (*store)->list("increment")->front().key;
  for (int i = 2; i < kernels; ++i) {
    key.kernel = "kernel" + std::to_string(i);
    key.source_sha256 = sha256_hex(key.kernel);
    key::seal(key);
    auto claim = (*store)->claim(key, std::chrono::seconds(1), true);
    store::StudyRow study;
    study.strategy = "exhaustive";
    study.space = study.default_config = "{}";
    auto number = (*store)->begin_study(key, study);
    store::WinnerRow winner;
    winner.config = R"({"BLOCK":64})";
    winner.median_us = 10;
    winner.default_us = 12;
    store::ArtifactRow artifact;
    artifact.build_sha256 = sha256_hex("build " + key.kernel);
    artifact.kernel = key.kernel;
    artifact.config = winner.config;
    artifact.status = "ok";
    artifact.lowered_name = key.kernel;
    artifact.cubin = std::string(kCubinBytes, static_cast<char>(i)) + key.kernel;
    artifact.cubin_sha256 = sha256_hex(artifact.cubin);
    artifact.arch = key.arch;
    artifact.nvrtc = key.nvrtc;
    winner.artifact = artifact;
    if (!claim || !number || !(*store)->end_study(*number, claim->lease, {"won", ""}, winner)) return false;
  }
  return true;
}

bool is_mapped(const std::string& part) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find(part) != std::string::npos) return true;
  return false;
}

/// One run, in this process. Prints `MS` or what is wrong.
int measure(const std::string& which, const std::string& database) {
  const gpu::Driver* driver = open_gpu();
  if (driver == nullptr) return 1;
  CUdeviceptr x = 0;
  driver->cuMemAlloc(&x, kCount * sizeof(float));
  auto definition = which == "cub" ? with_cub() : plain();
  const auto start = SteadyClock::now();
  Tuner tuner(options(Track::lookup, database));
  const auto opened = SteadyClock::now();
  Kernel<void(device_ptr, int)> kernel(tuner, std::move(definition));
  const auto problem = kernel.problem({{"n", kCount}});
  const auto defined = SteadyClock::now();
  kernel.launch(nullptr, problem, device_ptr{x}, kCount);
  const auto launched = SteadyClock::now();
  using Milliseconds = std::chrono::duration<double, std::milli>;
  const auto did = tuner.statistics();
  if (did.hits != 1 || did.compilations != 0 || did.workers_started != 0 || is_mapped("libnvrtc")) {
    std::printf("not warm: %lld hits, %lld compilations, %d workers, NVRTC %s\n", did.hits, did.compilations,
                did.workers_started, is_mapped("libnvrtc") ? "mapped" : "not mapped");
    return 1;
  }
  std::printf("%.3f %.3f %.3f %.3f\n", Milliseconds(launched - start).count(), Milliseconds(opened - start).count(),
              Milliseconds(defined - opened).count(), Milliseconds(launched - defined).count());
  return 0;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int report(const std::string& which, const std::string& database, int runs) {
  std::vector<double> parts[4];
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command = "'" + self + "' --measure " + which + " --database '" + database + "'";
  for (int run = 0; run < runs; ++run) {
    FILE* child = ::popen(command.c_str(), "r");
    char line[300] = "";
    const bool read = child != nullptr && std::fgets(line, sizeof line, child) != nullptr;
    const int status = child == nullptr ? 1 : ::pclose(child);
    double ms[4];
    if (!read || status != 0 || std::sscanf(line, "%lf %lf %lf %lf", &ms[0], &ms[1], &ms[2], &ms[3]) != 4) {
      std::printf("%s: %s\n", which.c_str(), line);
      return 1;
    }
    for (int i = 0; i < 4; ++i) parts[i].push_back(ms[i]);
  }
  std::printf(
      "%-5s  median %.2f ms, slowest %.2f ms of %d processes (open %.2f, define %.2f, first launch %.2f); NVRTC not "
      "mapped, no process started\n",
      which.c_str(), median(parts[0]), *std::max_element(parts[0].begin(), parts[0].end()), runs, median(parts[1]),
      median(parts[2]), median(parts[3]));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  int kernels = 1000, runs = 15;
  std::string database, which;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--kernels") kernels = std::atoi(argv[i + 1]);
    if (name == "--runs") runs = std::atoi(argv[i + 1]);
    if (name == "--database") database = argv[i + 1];
    if (name == "--measure") which = argv[i + 1];
  }
  try {
    if (!which.empty()) return measure(which, database);
    const gpu::Driver* driver = open_gpu();
    if (driver == nullptr) return 0;
    char directory[] = "/tmp/jitune-warm-XXXXXX";
    if (database.empty()) database = std::string(::mkdtemp(directory)) + "/a.db";
    const bool filled = fill(*driver, database, kernels);
    const int failed =
        filled ? report("plain", database, runs) + report("cub", database, runs) : (std::printf("not filled\n"), 1);
    std::filesystem::remove_all(std::filesystem::path(directory));
    return failed == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
