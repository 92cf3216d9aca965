// Several processes that start cold on the same problems with one database, as the ranks of a job do: each config
// should be measured once in all, all should use the same winners, none should wait longer than its bound.
//
//   bench_ranks [--ranks N] [--database PATH] [--kill-leader]
//
// --kill-leader ends whoever tunes with SIGKILL after a few trials: another one should take over, and measure again
// what was in flight, the default config and the few best at most. Starts itself N times (`--rank I`), then reads the
// database. Works with a GPU and with the stand-in driver.
#include <cuda.h>
#include <signal.h>
#include <sqlite3.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gpu/driver.hpp"
#include "jitune/jitune.hpp"
#include "store/store.hpp"

namespace {

using namespace jitune;

constexpr int kProblems[] = {1 << 16, 1 << 18, 1 << 20, 1 << 22};
constexpr double kBudgetS = 30;

KernelDefinition increment() {
  return {.name = "increment",
          .source_text =
              "template <int BLOCK, int ITEMS> __global__ void increment(float* x, int n) { for (int k = 0; k < ITEMS; "
              "++k) { int i = (blockIdx.x * ITEMS + k) * BLOCK + threadIdx.x; if (i < n) x[i] += 1; } }",
          .entry = "increment<{BLOCK}, {ITEMS}>",
          .problem = {"n"},
          .params = {{"BLOCK", {64, 128, 256}}, {"ITEMS", {1, 2, 4}}},
          .launch = {.grid = {"ceil_div(n, BLOCK * ITEMS)"}, .block = {"BLOCK"}},
          .args = {inout("x", "float", "n"), scalar("n", "int", "n")},
          .defaults = {{.config = {{"BLOCK", "64"}, {"ITEMS", "1"}}}}};
}

/// One rank: prints for each problem the config it uses and the seconds that its first launch took.
int run_rank(const std::string& database) {
  auto driver = gpu::driver();
  CUdevice device = 0;
  if (!driver || (*driver)->cuDeviceGet(&device, 0) != CUDA_SUCCESS || !gpu::use_primary_context(**driver, device))
    return 1;
  CUdeviceptr x = 0;
  if ((*driver)->cuMemAlloc(&x, sizeof(float) << 22) != CUDA_SUCCESS) return 1;
  Options options;
  options.track = Track::tune;
  options.database = database;
  options.first_call_budget = std::chrono::milliseconds(static_cast<int>(kBudgetS * 1000));
  options.compile_workers = 2;
  Tuner tuner(options);
  Kernel<void(device_ptr, int)> kernel(tuner, increment());
  for (const int n : kProblems) {
    const auto problem = kernel.problem({{"n", n}});
    const auto start = std::chrono::steady_clock::now();
    kernel.launch(nullptr, problem, device_ptr{x}, n);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    const auto choice = kernel.choice(problem);
    std::printf("%d %s %s %.2f\n", n, to_string(choice.source), choice.config.c_str(), took.count());
  }
  return 0;
}

/// Waits until some trials are stored and kills the process that holds a lease. Its pid; 0 when none was met in time.
int kill_leader(const std::string& database, const std::atomic<bool>& over) {
  int killed = 0;
  sqlite3* file = nullptr;
  while (killed == 0 && !over) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (file == nullptr && sqlite3_open_v2(database.c_str(), &file, SQLITE_OPEN_READONLY, nullptr) != SQLITE_OK) {
      sqlite3_close(file);
      file = nullptr;
      continue;
    }
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v2(file, "SELECT pid FROM leases WHERE (SELECT count(*) FROM trials) >= 3", -1, &statement,
                           nullptr) != SQLITE_OK)
      continue;
    if (sqlite3_step(statement) == SQLITE_ROW) killed = sqlite3_column_int(statement, 0);
    sqlite3_finalize(statement);
    if (killed > 1 && ::kill(killed, SIGKILL) != 0) killed = 0;
  }
  sqlite3_close(file);
  return killed;
}

}  // namespace

int main(int argc, char** argv) {
  int ranks = 8;
  std::string database;
  bool is_rank = false, kills = false;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--ranks" && i + 1 < argc) ranks = std::atoi(argv[i + 1]);
    if (name == "--database" && i + 1 < argc) database = argv[i + 1];
    if (name == "--rank") is_rank = true;
    if (name == "--kill-leader") kills = true;
  }
  try {
    if (is_rank) return run_rank(database);
    if (auto devices = gpu::devices(); !devices || devices->empty()) {
      std::printf("[jitune] skipped (gpu): %s\n", devices ? "no GPU" : devices.error().c_str());
      return 0;
    }
    char directory[] = "/tmp/jitune-ranks-XXXXXX";
    if (database.empty()) database = std::string(::mkdtemp(directory)) + "/a.db";
    const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
    const auto start = std::chrono::steady_clock::now();
    std::vector<FILE*> children;
    for (int i = 0; i < ranks; ++i)
      children.push_back(::popen(("'" + self + "' --rank --database '" + database + "'").c_str(), "r"));
    std::atomic<bool> over{false};
    int killed = 0;
    std::thread killer;
    if (kills) killer = std::thread([&] { killed = kill_leader(database, over); });
    std::map<int, std::set<std::string>> configs;
    std::map<int, std::map<std::string, int>> sources;
    double slowest = 0;
    int lines = 0, failed = 0;
    for (FILE* child : children) {
      char line[400], source[40], config[300];
      int n = 0;
      double seconds = 0;
      while (std::fgets(line, sizeof line, child) != nullptr)
        if (std::sscanf(line, "%d %39s %299s %lf", &n, source, config, &seconds) == 4) {
          configs[n].insert(config);
          ++sources[n][source];
          slowest = std::max(slowest, seconds);
          ++lines;
        }
      if (::pclose(child) != 0) ++failed;
    }
    over = true;
    if (killer.joinable()) killer.join();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    auto store = store::Store::open({.path = database, .create = false, .read_only = true, .must_be_file = true});
    int trials = 0, twice = 0;
    const auto keys = (*store)->list("increment");
    for (const auto& key : *keys) {
      trials += static_cast<int>(key.trials);
      const auto rows = (*store)->trials_of(key.key.sha256);  // the latest of each config
      twice += static_cast<int>(key.trials) - static_cast<int>(rows->size());
    }
    std::printf(
        "%d processes, %zu problems, %.1f s in all: %d trials, %d of them of a config that was measured before\n",
        ranks, std::size(kProblems), took.count(), trials, twice);
    bool agreed = true;
    for (const auto& [n, chosen] : configs) {
      std::printf("  n=%d: %zu config(s) in use, %s;", n, chosen.size(), chosen.begin()->c_str());
      for (const auto& [source, count] : sources[n]) std::printf(" %d %s", count, source.c_str());
      std::printf("\n");
      agreed = agreed && chosen.size() == 1;
    }
    std::printf("  slowest first launch %.2f s, bound %.0f s\n", slowest, kBudgetS);
    if (kills) std::printf("  killed: process %d, which was tuning\n", killed);
    const int lost = kills ? 1 : 0;
    // Who goes on with a killed study times its default config and the best of what it had measured, four at most,
    // afresh: they compete in the rematch, and times of two studies are not comparable.
    const int timed_again = lost * 5;
    const bool good = failed == lost && (killed > 0) == kills &&
                      lines >= (ranks - lost) * static_cast<int>(std::size(kProblems)) && agreed &&
                      twice <= timed_again && slowest < kBudgetS + 5;
    std::printf("%s\n", good ? "as it should be" : "NOT as it should be");
    std::filesystem::remove_all(directory);
    return good ? 0 : 1;
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
