#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "gpu/module.hpp"
#include "gpu_support.hpp"
#include "measure/device_memory.hpp"
#include "measure/duel.hpp"
#include "support/support.hpp"

using namespace jitune;
using namespace jitune::measure;
using jitune::test::Bench;
using jitune::test::GpuWorker;

namespace {

// y = a x, and ways to get it wrong. MODE is the template's value.
const char* kScale = R"(
template <int MODE> __global__ void scale(float* y, const float* x, float a, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = a * x[i];
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  if (MODE == 1) y[n / 2] += 1.0f;                       // wrong
  if (MODE == 2) y[n] = 0.0f;                            // past the end
  if (MODE == 3) y[1ull << 42] = 0.0f;                   // nowhere
  if (MODE == 4) for (volatile int stop = 0; stop == 0;) {}  // for ever
  if (MODE == 5) ((float*)x)[7] = 123.0f;                // into an input
  if (MODE == 6) { long long t = clock64(); while (clock64() - t < 4000000) {} }  // about 2 ms late
}
template <int MODE> __global__ void increment(float* x, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) x[i] += 1.0f;
}
template <int MODE> __global__ void interior(float* y, const float* x, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n - 1; i += gridDim.x * blockDim.x) if (i > 0) y[i] = x[i];
}
)";

space::ArgSpec buffer(ArgKind kind, const char* name, int64_t count) {
  space::ArgSpec arg;
  arg.kind = kind;
  arg.name = name;
  arg.type = Type::float32;
  arg.element_bytes = 4;
  arg.count = count;
  arg.fill = Fill::normal(0, 1);
  arg.tolerance = Tolerance::within(1e-5, 1e-6);
  return arg;
}

template <class T>
space::ArgSpec scalar(Type type, T value) {
  space::ArgSpec arg;
  arg.kind = ArgKind::scalar;
  arg.name = "scalar";
  arg.type = type;
  arg.scalar.resize(sizeof value);
  std::memcpy(arg.scalar.data(), &value, sizeof value);
  return arg;
}

std::vector<space::ArgSpec> scale_args(int n) {
  return {buffer(ArgKind::out, "y", n), buffer(ArgKind::in, "x", n), scalar(Type::float32, 2.0f),
          scalar(Type::int32, n)};
}

Candidate candidate(const Bench& bench, const std::string& entry, std::vector<space::ArgSpec> args,
                    uint32_t blocks = 512) {
  const test::Compiled compiled = test::compile(bench, kScale, entry);
  Candidate made;
  made.cubin = compiled.cubin;
  made.lowered_name = compiled.lowered_name;
  made.geometry.grid = {blocks, 1, 1};
  made.geometry.block = {256, 1, 1};
  made.args = std::move(args);
  return made;
}

Setup setup_for(const Bench& bench, std::vector<space::ArgSpec> args) {
  Setup setup;
  setup.device_uuid = bench.device.uuid;
  setup.args = std::move(args);
  setup.utility_cubin = test::compile(bench, utility_source(), "jitune_fill").cubin;
  return setup;
}

constexpr int kCount = 1 << 20;

}  // namespace

TEST_CASE("trials of right and wrong kernels in one worker") {
  const Bench bench = test::bench();
  if (!bench) return;
  GpuWorker worker;
  const auto args = scale_args(kCount);
  const SetupReply ready = worker.setup(setup_for(bench, args));
  REQUIRE_MESSAGE(ready.ok, ready.error);
  MESSAGE("worker ready after " << ready.ready_ms << " ms of setup");
  const TrialReply base =
      worker.trial(candidate(bench, "scale<0>", args), std::numeric_limits<double>::infinity(), true);
  REQUIRE_MESSAGE(base.status == TrialStatus::ok, base.error);
  const double best_us = summarise(base.samples_us).median_us;
  MESSAGE("scale of 4 MiB, cold: " << best_us << " us, reference trial " << base.wall_ms << " ms");
  CHECK(best_us > 1);
  CHECK(best_us < 1000);
  CHECK(base.facts.regs > 0);
  CHECK(base.facts.max_blocks_per_sm > 0);

  const TrialReply same = worker.trial(candidate(bench, "scale<0>", args, 600), best_us);
  CHECK_MESSAGE((same.status == TrialStatus::ok || same.status == TrialStatus::early_stopped), same.error);
  const TrialReply wrong = worker.trial(candidate(bench, "scale<1>", args), best_us);
  CHECK(wrong.status == TrialStatus::wrong_result);
  CHECK(wrong.error.find("1 of 1048576 elements differ from the reference, first [524288]") != std::string::npos);
  const TrialReply outside = worker.trial(candidate(bench, "scale<2>", args), best_us);
  CHECK(outside.status == TrialStatus::out_of_bounds);
  CHECK(outside.error.find("past the end of `y`") != std::string::npos);
  const TrialReply slow = worker.trial(candidate(bench, "scale<6>", args), best_us);
  CHECK(slow.status == TrialStatus::early_stopped);
  CHECK(slow.samples_us.size() == 1);
  Candidate large = candidate(bench, "scale<0>", args);
  large.geometry.block = {2048, 1, 1};
  CHECK(worker.trial(large, best_us).status == TrialStatus::launch_error);
  CHECK(worker.trial(candidate(bench, "scale<0>", args), best_us).status == TrialStatus::ok);

  const RematchReply rematch =
      worker.rematch({candidate(bench, "scale<0>", args), candidate(bench, "scale<0>", args, 8)});
  REQUIRE_MESSAGE(rematch.ok, rematch.error);
  CHECK(compare_rounds(rematch.samples_us[0], rematch.samples_us[1], 0.01) == Verdict::first);  // 8 blocks are too few
  CHECK(worker.finish() == 0);
}

TEST_CASE("an illegal address ends the worker with 70 and leaves this process's context alone" *
          doctest::test_suite("faults")) {
  const Bench bench = test::bench();
  if (!bench) return;
  DeviceMemory mine;
  REQUIRE_FALSE(mine.allocate(*bench.driver, 1 << 20, "test"));
  REQUIRE(bench.driver->cuMemsetD32Async(mine.address(), 42, 1 << 18, nullptr) == CUDA_SUCCESS);
  GpuWorker worker;
  const auto args = scale_args(kCount);
  REQUIRE(worker.setup(setup_for(bench, args)).ok);
  const TrialReply reply = worker.trial(candidate(bench, "scale<3>", args));
  CHECK(reply.status == TrialStatus::run_crash);
  CHECK(reply.error.find("CUDA_ERROR_ILLEGAL_ADDRESS") != std::string::npos);
  CHECK(reply.context_lost);
  CHECK(worker.finish() == 70);
  unsigned value = 0;
  CHECK(bench.driver->cuMemcpyDtoH(&value, mine.address(), 4) == CUDA_SUCCESS);
  CHECK(value == 42);
}

TEST_CASE("a config that writes into an input ends the worker") {
  const Bench bench = test::bench();
  if (!bench) return;
  GpuWorker worker;
  const auto args = scale_args(kCount);
  REQUIRE(worker.setup(setup_for(bench, args)).ok);
  const TrialReply reply = worker.trial(candidate(bench, "scale<5>", args));
  CHECK(reply.status == TrialStatus::out_of_bounds);
  CHECK(reply.error.find("`x`, which is an input") != std::string::npos);
  CHECK(worker.finish() == 70);
}

TEST_CASE("a kernel that never ends dies with its worker, and the next worker measures" *
          doctest::test_suite("faults")) {
  const Bench bench = test::bench();
  if (!bench) return;
  const auto args = scale_args(kCount);
  {
    GpuWorker worker;
    REQUIRE(worker.setup(setup_for(bench, args)).ok);
    worker.send(to_json(TrialRequest{candidate(bench, "scale<4>", args), false, false, 0, {}}));
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    const auto killed = std::chrono::steady_clock::now();
    CHECK(worker.finish(true) == 128 + SIGKILL);
    const double reaped_ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - killed).count();
    MESSAGE("killed to reaped: " << reaped_ms << " ms");
    CHECK(reaped_ms < 5000);
  }
  GpuWorker next;
  REQUIRE(next.setup(setup_for(bench, args)).ok);
  CHECK(next.trial(candidate(bench, "scale<0>", args)).status == TrialStatus::ok);
}

TEST_CASE("the caller's buffer comes over IPC and is neither kept nor changed") {
  const Bench bench = test::bench();
  if (!bench) return;
  DeviceMemory mine;
  REQUIRE_FALSE(mine.allocate(*bench.driver, 1024 + kCount * 4, "test"));
  std::vector<float> values(kCount, 0.25f);
  values[kCount / 2] = 20.5f;
  REQUIRE(bench.driver->cuMemcpyHtoD(mine.address() + 1024, values.data(), values.size() * 4) == CUDA_SUCCESS);
  CUipcMemHandle handle{};
  const CUresult exported = bench.driver->cuIpcGetMemHandle(&handle, mine.address());
  if (exported != CUDA_SUCCESS) return test::skip("gpu", bench.driver->describe("cuIpcGetMemHandle", exported));
  const auto args = scale_args(kCount);
  Setup setup = setup_for(bench, args);
  setup.data.resize(args.size());
  setup.data[1].kind = DataSource::Kind::ipc;
  setup.data[1].ipc_handle.assign(reinterpret_cast<const char*>(&handle), sizeof handle);
  setup.data[1].offset = 1024;
  GpuWorker worker;
  const SetupReply ready = worker.setup(setup);
  REQUIRE_MESSAGE(ready.ok, ready.error);
  REQUIRE(worker.trial(candidate(bench, "scale<0>", args), std::numeric_limits<double>::infinity(), true).status ==
          TrialStatus::ok);
  CHECK(worker.trial(candidate(bench, "scale<1>", args)).error.find("got 42, expected 41") != std::string::npos);
  CHECK(worker.trial(candidate(bench, "scale<5>", args)).context_lost);  // it spoils the worker's copy
  float mine_after = 0;
  REQUIRE(bench.driver->cuMemcpyDtoH(&mine_after, mine.address() + 1024 + 7 * 4, 4) == CUDA_SUCCESS);
  CHECK(mine_after == 0.25f);
}

TEST_CASE("inout is restored, unwritten elements are not compared, warm L2 is warmer") {
  const Bench bench = test::bench();
  if (!bench) return;
  GpuWorker worker;
  const std::vector<space::ArgSpec> add{buffer(ArgKind::inout, "x", kCount), scalar(Type::int32, kCount)};
  REQUIRE(worker.setup(setup_for(bench, add)).ok);
  const double infinite = std::numeric_limits<double>::infinity();
  REQUIRE(worker.trial(candidate(bench, "increment<0>", add), infinite, true).status == TrialStatus::ok);
  CHECK(worker.trial(candidate(bench, "increment<1>", add)).status == TrialStatus::ok);
  CHECK(worker.trial(candidate(bench, "increment<2>", add)).status == TrialStatus::ok);

  const std::vector<space::ArgSpec> inner{buffer(ArgKind::out, "y", kCount), buffer(ArgKind::in, "x", kCount),
                                          scalar(Type::int32, kCount)};
  Setup setup = setup_for(bench, inner);
  REQUIRE(worker.setup(setup).ok);
  const TrialReply cold = worker.trial(candidate(bench, "interior<0>", inner), infinite, true);
  REQUIRE_MESSAGE(cold.status == TrialStatus::ok, cold.error);
  CHECK(worker.trial(candidate(bench, "interior<1>", inner)).status == TrialStatus::ok);
  setup.policy.cold_l2 = false;
  REQUIRE(worker.setup(setup).ok);
  const TrialReply warm = worker.trial(candidate(bench, "interior<0>", inner), infinite, true);
  REQUIRE(warm.status == TrialStatus::ok);
  MESSAGE("cold " << summarise(cold.samples_us).median_us << " us, warm " << summarise(warm.samples_us).median_us);
  CHECK(summarise(warm.samples_us).median_us < summarise(cold.samples_us).median_us);
}

TEST_CASE("a trial costs little beside its kernel runs" * doctest::test_suite("times")) {
  const Bench bench = test::bench();
  if (!bench) return;
  constexpr int kLarge = 16 << 20;  // an output of 64 MiB, compared each time
  GpuWorker worker;
  const auto args = scale_args(kLarge);
  REQUIRE(worker.setup(setup_for(bench, args)).ok);
  const TrialReply base =
      worker.trial(candidate(bench, "scale<0>", args, 4096), std::numeric_limits<double>::infinity(), true);
  REQUIRE_MESSAGE(base.status == TrialStatus::ok, base.error);
  const double median_us = summarise(base.samples_us).median_us;
  double worst_ms = 0, sum_ms = 0;
  constexpr int kTrials = 20;
  for (int i = 0; i < kTrials; ++i) {
    const TrialReply reply = worker.trial(candidate(bench, "scale<0>", args, 4096), median_us);
    REQUIRE_MESSAGE((reply.status == TrialStatus::ok || reply.status == TrialStatus::early_stopped), reply.error);
    double kernel_ms = reply.first_us / 1000;
    for (const double us : reply.samples_us) kernel_ms += us / 1000;
    worst_ms = std::max(worst_ms, reply.wall_ms - kernel_ms);
    sum_ms += reply.wall_ms - kernel_ms;
  }
  MESSAGE("kernel " << median_us << " us = " << 2.0 * kLarge * 4 / median_us / 1000
                    << " GB/s; trial beside its runs: " << sum_ms / kTrials << " ms, worst " << worst_ms);
  CHECK(sum_ms / kTrials < 4);
}
