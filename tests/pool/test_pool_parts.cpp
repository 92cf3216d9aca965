// The parts of the pool that need no process.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/files.hpp"
#include "pool/pool.hpp"
#include "pool/spawn_policy.hpp"
#include "pool/width.hpp"
#include "support/support.hpp"

using namespace jitune;
using namespace jitune::test;
using namespace std::chrono_literals;

TEST_CASE("width: nine tenths of the cores, bounded by quota and memory, never zero") {
  const auto width = [](int cores, double quota, int64_t available) {
    return pool::width_for({cores, quota, available}, 100 << 20);
  };
  CHECK(width(1, 0, 0) == 1);
  CHECK(width(2, 0, 0) == 1);
  CHECK(width(10, 0, 0) == 9);
  CHECK(width(16, 0, 0) == 14);
  CHECK(width(16, 4, 0) == 3);
  CHECK(width(16, 0.5, 0) == 1);
  CHECK(width(16, 0, 350 << 20) == 3);
  CHECK(width(16, 0, 10 << 20) == 1);
  CHECK(pool::default_width() >= 1);
}

TEST_CASE("width: quotas and memory of the cgroup and those above it are read") {
  TempDir root;
  write_file(root / "proc/meminfo", "MemTotal: 100 kB\nMemAvailable:   4194304 kB\n");
  write_file(root / "proc/self/cgroup", "0::/a/b\n");
  CHECK(pool::read_resources(root.path()).available_bytes == 4ll << 30);
  CHECK(pool::read_resources(root.path()).quota_cores == 0);
  write_file(root / "sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  write_file(root / "sys/fs/cgroup/a/cpu.max", "250000 100000\n");
  write_file(root / "sys/fs/cgroup/a/b/memory.max", "1000000000\n");
  write_file(root / "sys/fs/cgroup/a/b/memory.current", "900000000\n");
  write_file(root / "sys/fs/cgroup/a/b/memory.stat", "anon 5\ninactive_file 200000000\n");
  const auto resources = pool::read_resources(root.path());
  CHECK(resources.quota_cores == doctest::Approx(2.5));
  CHECK(resources.available_bytes == 300000000);

  TempDir old;
  write_file(old / "proc/self/cgroup", "4:memory:/m\n3:cpu,cpuacct:/c\n");
  write_file(old / "sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "150000\n");
  write_file(old / "sys/fs/cgroup/cpu/c/cpu.cfs_period_us", "100000\n");
  write_file(old / "sys/fs/cgroup/memory/m/memory.limit_in_bytes", "1000\n");
  write_file(old / "sys/fs/cgroup/memory/m/memory.usage_in_bytes", "400\n");
  CHECK(pool::read_resources(old.path()).quota_cores == doctest::Approx(1.5));
  CHECK(pool::read_resources(old.path()).available_bytes == 600);
}

TEST_CASE("spawn policy: no wait after one death, doubling waits after more, off after too many") {
  pool::SpawnPolicy policy(5, 60s, 50ms);
  const auto now = Clock::now();
  CHECK_FALSE(policy.failed(now, "x"));
  CHECK(policy.next_spawn() <= now);
  CHECK_FALSE(policy.failed(now, "x"));
  CHECK(policy.next_spawn() == now + 50ms);
  CHECK_FALSE(policy.failed(now, "x"));
  CHECK(policy.next_spawn() == now + 100ms);
  CHECK_FALSE(policy.off(now));
  policy.succeeded();
  for (int i = 0; i < 4; ++i) CHECK_FALSE(policy.failed(now, "x"));
  CHECK(policy.failed(now, "the last one"));
  REQUIRE(policy.off(now));
  CHECK(policy.off(now)->find("the last one") != std::string::npos);
  CHECK(policy.off(now + 59s));
  CHECK_FALSE(policy.off(now + 60s));
  policy.turn_off(now, "why");
  CHECK(*policy.off(now) == "why");
  policy.reset();
  CHECK_FALSE(policy.off(now));
}

TEST_CASE("find_worker: an explicit choice is the only one, else each place is named with its reason") {
  TempDir dir;
  write_file(dir / "worker", "x");
  const auto not_executable = pool::find_worker(dir / "worker", "");
  REQUIRE_FALSE(not_executable.ok());
  CHECK(not_executable.error().find(dir / "worker") != std::string::npos);
  CHECK(not_executable.error().find("Permission denied") != std::string::npos);
  ::chmod((dir / "worker").c_str(), 0755);
  CHECK(*pool::find_worker(dir / "worker", "/nonexistent") == std::filesystem::canonical(dir / "worker"));
  CHECK(*pool::find_worker("", dir / "worker") == std::filesystem::canonical(dir / "worker"));
  const auto missing = pool::find_worker("", "/nonexistent/worker");
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().find("/nonexistent/worker (JITUNE_WORKER): No such file") != std::string::npos);
  const auto folder = pool::find_worker(dir.path(), "");
  REQUIRE_FALSE(folder.ok());
  CHECK(folder.error().find("not a file") != std::string::npos);

  // Beside this test program lies the real one, unless programs are not built.
  const auto beside = pool::find_worker("", "");
  if (beside.ok()) {
    CHECK(std::filesystem::path(*beside).filename() == "jitune-worker");
    CHECK(std::filesystem::path(*beside).is_absolute());
  } else {
    CHECK(beside.error().find("libexec/jitune/jitune-worker") != std::string::npos);
    CHECK(beside.error().find("JITUNE_WORKER") != std::string::npos);
  }
}

TEST_CASE("the worker's environment holds nothing that changes code") {
  const ScopedEnv preload("LD_PRELOAD", nullptr);
  const ScopedEnv flags("NVCC_APPEND_FLAGS", "-O0"), other("OTHER_SECRET", "x"), own("JITUNE_TEST_SETTING", "x"),
      locale("LC_ALL", "tr_TR.UTF-8"), visible("CUDA_VISIBLE_DEVICES", "3"), cache("CUDA_CACHE_DISABLE", "1");
  const auto holds = [](const std::vector<std::string>& list, const std::string& text) {
    return std::find(list.begin(), list.end(), text) != list.end();
  };
  const auto names = [](const std::vector<std::string>& list, const std::string& name) {
    return std::any_of(list.begin(), list.end(), [&](const std::string& one) { return one.rfind(name + "=", 0) == 0; });
  };
  const auto compile = pool::worker_environment(false), measure = pool::worker_environment(true);
  CHECK(holds(compile, "LANG=C"));
  CHECK(holds(compile, "CUDA_VISIBLE_DEVICES="));
  CHECK(holds(measure, "CUDA_VISIBLE_DEVICES=3"));
  CHECK(names(compile, "PATH"));
  CHECK_FALSE(names(compile, "JITUNE_TEST_SETTING"));
  CHECK(names(measure, "JITUNE_TEST_SETTING"));
  for (const char* name : {"LD_PRELOAD", "NVCC_APPEND_FLAGS", "OTHER_SECRET", "LC_ALL"}) {
    CHECK_FALSE(names(compile, name));
    CHECK_FALSE(names(measure, name));
  }
}
