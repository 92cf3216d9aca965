// How long a new process takes from the construction of its Tuner to its first tuned launch, beyond cuInit and the
// making of the context, with a database of 1,000 kernels.
//
//   bench_warm_start [--kernels N] [--runs N] [--database PATH]
//
// Fills a database (two real kernels are tuned, the rest are rows with cubins of 20 KB), then starts itself again for
// each run: `--measure plain|cub`, and `--measure parts-plain|parts-cub`, which takes the same steps one by one and
// prints what each takes, the module loaded as it was compiled beside. With the stand-in driver it shows the host's
// share (LD_LIBRARY_PATH and JITUNE_FAKE_CUDA as in tests/fake_cuda/README.md).
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
#include "base/log.hpp"
#include "gpu/driver.hpp"
#include "gpu/lean_cubin.hpp"
#include "gpu/module.hpp"
#include "jitune/jitune.hpp"
#include "runtime/environment.hpp"
#include "store/store.hpp"
#include "support/increment.hpp"
#include "tune/clock_memo.hpp"
#include "tune/services.hpp"

namespace {

using namespace jitune;
using SteadyClock = std::chrono::steady_clock;

constexpr int kCount = 1 << 16;
constexpr size_t kCubinBytes = 20'000;

KernelDefinition with_cub() {
  KernelDefinition definition = test::increment();
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
    for (auto definition : {test::increment(), with_cub()}) {
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
int measure_whole(const std::string& which, const std::string& database) {
  const gpu::Driver* driver = open_gpu();
  if (driver == nullptr) return 1;
  CUdeviceptr x = 0;
  driver->cuMemAlloc(&x, kCount * sizeof(float));
  auto definition = which == "cub" ? with_cub() : test::increment();
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

constexpr const char* kParts[] = {
    "open the database",    "check the definition", "device facts", "bind to the problem",     "find NVRTC",
    "NVRTC for these GPUs", "hash the source",      "tuning key",   "winner and cubin",        "drop unread variables",
    "load the module",      "function and limits",  "launch",       "(the module as compiled)"};
constexpr size_t kPartCount = std::size(kParts);

/// The steps of a first launch one by one, in the order in which it takes them. Prints what each took, in ms.
int measure_parts(const std::string& which, const std::string& database) {
  const gpu::Driver* driver = open_gpu();
  if (driver == nullptr) return 1;
  CUdeviceptr x = 0;
  driver->cuMemAlloc(&x, kCount * sizeof(float));
  std::vector<double> took;
  auto last = SteadyClock::now();
  const auto part = [&] {
    const auto now = SteadyClock::now();
    took.push_back(std::chrono::duration<double, std::milli>(now - last).count());
    last = SteadyClock::now();
  };
  const auto settings = runtime::read_settings(options(Track::lookup, database));
  Log log;
  tune::ServiceOptions service_options;
  service_options.store.path = database;
  service_options.cuda_home = settings.cuda_home;
  service_options.cuda_path = settings.cuda_path;
  service_options.nvrtc = settings.options.nvrtc;
  service_options.policy = settings.policy;
  service_options.log = &log;
  auto services = tune::Services::open(service_options);
  part();
  auto model = space::Model::make(which == "cub" ? with_cub() : test::increment());
  part();
  tune::StoreClockMemo clocks((*services)->store());
  auto device = gpu::device_info(*driver, 0, &clocks);
  part();
  auto instance = space::Instance::bind(model, {{"n", Value(kCount)}}, *device);
  part();
  (void)(*services)->nvrtc_search();
  part();
  (void)(*services)->nvrtc();
  part();
  (void)(*services)->source_hash(*instance);
  part();
  auto key = (*services)->tuning_key(*instance);
  part();
  auto winner = (*services)->store().find_winner(key->sha256);
  part();
  if (!winner || !*winner || !(*winner)->artifact) {
    std::printf("no winner\n");
    return 1;
  }
  const store::ArtifactRow& artifact = *(*winner)->artifact;
  const std::string lean = gpu::without_unread_variables(artifact.cubin);
  part();
  gpu::Module module;
  if (auto trouble = module.load(*driver, artifact.cubin, artifact.lowered_name)) {
    std::printf("%s\n", trouble.message.c_str());
    return 1;
  }
  part();
  auto geometry = instance->geometry(*space::parse_values((*winner)->config));
  (void)module.prepare(*geometry);
  part();
  int n = kCount;
  void* params[] = {&x, &n};
  (void)module.launch(*geometry, nullptr, params);
  part();
  CUmodule whole = nullptr;
  CUfunction function = nullptr;
  driver->cuModuleLoadData(&whole, artifact.cubin.data());
  driver->cuModuleGetFunction(&function, whole, artifact.lowered_name.c_str());
  part();
  for (const double ms : took) std::printf("%.4f ", ms);
  std::printf("\n");
  return 0;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Starts this program again `runs` times; the medians of the numbers that it prints. Empty when one fails.
std::vector<double> medians(const std::string& which, const std::string& database, int runs, double* slowest) {
  std::vector<std::vector<double>> columns;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command = "'" + self + "' --measure " + which + " --database '" + database + "'";
  for (int run = 0; run < runs; ++run) {
    FILE* child = ::popen(command.c_str(), "r");
    char line[600] = "";
    const bool read = child != nullptr && std::fgets(line, sizeof line, child) != nullptr;
    const int status = child == nullptr ? 1 : ::pclose(child);
    std::vector<double> numbers;
    int used = 0;
    double number = 0;
    for (const char* at = line; std::sscanf(at, "%lf%n", &number, &used) == 1; at += used) numbers.push_back(number);
    if (!read || status != 0 || numbers.empty()) {
      std::printf("%s: %s\n", which.c_str(), line);
      return {};
    }
    columns.resize(numbers.size());
    for (size_t i = 0; i < numbers.size(); ++i) columns[i].push_back(numbers[i]);
  }
  std::vector<double> middles;
  for (const auto& column : columns) middles.push_back(median(column));
  if (slowest != nullptr) *slowest = *std::max_element(columns[0].begin(), columns[0].end());
  return middles;
}

int report(const std::string& which, const std::string& database, int runs) {
  double slowest = 0;
  const auto ms = medians(which, database, runs, &slowest);
  if (ms.size() != 4) return 1;
  std::printf(
      "%-5s  median %.2f ms, slowest %.2f ms of %d processes (open %.2f, define %.2f, first launch %.2f); NVRTC not "
      "mapped, no process started\n",
      which.c_str(), ms[0], slowest, runs, ms[1], ms[2], ms[3]);
  return 0;
}

int report_parts(const std::string& database, int runs) {
  const auto of_plain = medians("parts-plain", database, runs, nullptr);
  const auto of_cub = medians("parts-cub", database, runs, nullptr);
  if (of_plain.size() != kPartCount || of_cub.size() != kPartCount) return 1;
  std::printf("\nms, medians of %d processes     plain      cub\n", runs);
  for (size_t i = 0; i < kPartCount; ++i) std::printf("%-28s %8.3f %8.3f\n", kParts[i], of_plain[i], of_cub[i]);
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
    if (which.starts_with("parts-")) return measure_parts(which.substr(6), database);
    if (!which.empty()) return measure_whole(which, database);
    const gpu::Driver* driver = open_gpu();
    if (driver == nullptr) return 0;
    char directory[] = "/tmp/jitune-warm-XXXXXX";
    if (database.empty()) database = std::string(::mkdtemp(directory)) + "/a.db";
    const bool filled = fill(*driver, database, kernels);
    const int failed =
        filled ? report("plain", database, runs) + report("cub", database, runs) + report_parts(database, runs)
               : (std::printf("not filled\n"), 1);
    std::filesystem::remove_all(std::filesystem::path(directory));
    return failed == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
