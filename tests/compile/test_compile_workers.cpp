// The whole way: pool, jitune-worker, NVRTC, cubin.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <latch>

#include "base/clock.hpp"
#include "compile/nvrtc_support.hpp"
#include "pool/pool.hpp"
#include "support/support.hpp"
#include "wire/frame.hpp"

using namespace jitune;
using namespace jitune::test;
using namespace std::chrono_literals;
using compile::Artifact;
using compile::NvrtcFile;
using compile::Request;
using compile::Status;
using pool::Outcome;
using pool::Pool;
using pool::Reply;

namespace {

std::string worker_path() {
  return std::filesystem::absolute(JITUNE_BINARY_DIR "/bin/jitune-worker").string();
}

pool::PoolOptions compile_pool(int width, const std::string& preload = {}) {
  pool::PoolOptions options;
  options.program.path = worker_path();
  options.program.args = {"compile"};
  if (!preload.empty()) options.program.args.push_back("--nvrtc=" + preload);
  options.program.environment = pool::worker_environment(false);
  options.width = width;
  return options;
}

const char* const kSource =
    "#include <cstdint>\n"
    "template <int N> __global__ void k(float* x) {\n"
    "  __shared__ float s[N];\n  s[threadIdx.x] = x[threadIdx.x];\n  __syncthreads();\n"
    "  x[threadIdx.x] = s[N - 1 - threadIdx.x];\n}\n";

Result<Artifact> artifact_of(const Reply& reply) {
  if (reply.outcome != Outcome::ok) return Failure{reply.detail + "\n" + reply.stderr_tail};
  return compile::artifact_from_json(reply.message);
}

}  // namespace

TEST_CASE("jitune-worker tells its version and its usage") {
  const auto version = run_program(worker_path() + " --version");
  CHECK(version.exit_code == 0);
  CHECK(version.out == "jitune-worker " JITUNE_VERSION "\n");
  for (const char* arguments : {"", " compile", " paint 1", " compile --what 1"}) {
    const auto usage = run_program(worker_path() + arguments);
    CHECK(usage.exit_code != 0);
    CHECK(usage.err.find("jitune-worker") != std::string::npos);
    CHECK(usage.out.empty());
  }
}

TEST_CASE("a worker whose parent is another process ends at once") {
  const auto orphan = run_program(worker_path() + " compile 1", 10);
  CHECK(orphan.exit_code == 1);
  CHECK(orphan.err.find("is gone") != std::string::npos);
}

TEST_CASE("many configs on two workers") {
  const auto file = find_nvrtc_or_skip();
  if (!file) return;
  Pool pool(compile_pool(2, file->path));
  pool.warm_up(2);
  constexpr int kConfigs = 8;
  std::vector<Artifact> artifacts(kConfigs);
  std::atomic<int> good{0};
  std::latch done(kConfigs);
  for (int i = 0; i < kConfigs; ++i) {
    const Request request = request_for(*file, kSource, "k<" + std::to_string(32 + i) + ">");
    pool.submit(compile::to_json(request), 60s, [&, i](Reply reply) {
      auto artifact = artifact_of(reply);
      if (artifact && artifact->status == Status::ok) {
        artifacts[static_cast<size_t>(i)] = *artifact;
        ++good;
      }
      done.count_down();
    });
  }
  done.wait();
  CHECK(good == kConfigs);
  CHECK(pool.spawned() == 2);
  for (int i = 0; i < kConfigs; ++i) {
    const Artifact& artifact = artifacts[static_cast<size_t>(i)];
    CHECK(artifact.lowered_name == "_Z1kILi" + std::to_string(32 + i) + "EEvPf");
    CHECK(artifact.static_smem_bytes == 4 * (32 + i));
    CHECK(compile::check_cubin(artifact.cubin, artifact.lowered_name).ok());
  }
}

TEST_CASE("a compile error is an answer, and the worker goes on") {
  const auto file = find_nvrtc_or_skip();
  if (!file) return;
  Pool pool(compile_pool(1));
  const auto failed = artifact_of(pool.call(compile::to_json(request_for(*file, "nonsense;\n", "k")), 60s));
  REQUIRE(failed.ok());
  CHECK(failed->status == Status::error);
  CHECK(failed->log.find("kernel.cu(1)") != std::string::npos);
  const auto good = artifact_of(pool.call(compile::to_json(request_for(*file, kSource, "k<32>")), 60s));
  REQUIRE(good.ok());
  CHECK(good->status == Status::ok);
  CHECK(pool.spawned() == 1);
}

TEST_CASE("requests that are none, and an NVRTC that is none, are answered with the reason") {
  Pool pool(compile_pool(1, "/nonexistent/libnvrtc.so"));
  for (const Json& request : {Json::object(), Json::array({1, 2}), Json("text"), Json()}) {
    const auto answer = artifact_of(pool.call(request, 20s));
    REQUIRE_MESSAGE(answer.ok(), answer.error());
    CHECK(answer->status == Status::error);
    CHECK_FALSE(answer->log.empty());
  }
  NvrtcFile nowhere;
  nowhere.path = "/nonexistent/libnvrtc.so.13";
  const auto missing = artifact_of(pool.call(compile::to_json(request_for(nowhere, kSource, "k<32>")), 20s));
  REQUIRE(missing.ok());
  CHECK(missing->status == Status::error);
  CHECK(missing->log.find("/nonexistent/libnvrtc.so.13") != std::string::npos);
  CHECK(pool.spawned() == 1);
}

TEST_CASE("a worker keeps the NVRTC that it has loaded") {
  const auto file = find_nvrtc_or_skip();
  if (!file) return;
  Pool pool(compile_pool(1, file->path));
  NvrtcFile other = *file;
  other.path = "/nonexistent/libnvrtc.so.13";
  const auto answer = artifact_of(pool.call(compile::to_json(request_for(other, kSource, "k<32>")), 60s));
  REQUIRE(answer.ok());
  CHECK(answer->status == Status::error);
  CHECK(answer->log.find("can't change") != std::string::npos);
}

TEST_CASE("a source that does not finish is stopped at its deadline, and the next one compiles") {
  const auto file = find_nvrtc_or_skip();
  if (!file) return;
  const std::string endless =
      "template <int D> struct Deep { __device__ static __forceinline__ float run(float x) {\n"
      "  return Deep<D - 1>::run(x) + Deep<D - 1>::run(x * 2) * Deep<D - 1>::run(x + 1); } };\n"
      "template <> struct Deep<0> { __device__ static __forceinline__ float run(float x) { return x * x; } };\n"
      "template <int D> __global__ void k(float* x) { *x = Deep<D>::run(*x); }\n";
  Pool pool(compile_pool(1, file->path));
  CHECK(artifact_of(pool.call(compile::to_json(request_for(*file, kSource, "k<32>")), 60s)).ok());
  const auto start = Clock::now();
  const Reply reply = pool.call(compile::to_json(request_for(*file, endless, "k<13>")), 1500ms);
  CHECK(reply.outcome == Outcome::timeout);
  CHECK(ms_since(start) < 2500);
  const auto after = artifact_of(pool.call(compile::to_json(request_for(*file, kSource, "k<33>")), 60s));
  REQUIRE_MESSAGE(after.ok(), after.error());
  CHECK(after->status == Status::ok);
  CHECK(pool.spawned() == 2);
}

TEST_CASE("the worker has neither driver nor database mapped while it compiles") {
  const auto file = find_nvrtc_or_skip();
  if (!file) return;
  Pool pool(compile_pool(1, file->path));
  REQUIRE(artifact_of(pool.call(compile::to_json(request_for(*file, kSource, "k<32>")), 60s)).ok());
  const int64_t pid = wire::get_int(pool.hello(), "pid");
  const auto maps = run_program("cat /proc/" + std::to_string(pid) + "/maps");
  CHECK(maps.out.find("libnvrtc.so") != std::string::npos);
  CHECK(maps.out.find("libcuda.so") == std::string::npos);
  CHECK(maps.out.find("sqlite") == std::string::npos);
}
