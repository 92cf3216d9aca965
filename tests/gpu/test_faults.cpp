// What kernels do wrong on a real GPU, one after the other: each gets its status, and neither the next one nor this
// process notices.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>

#include "gpu_support.hpp"
#include "measure/device_memory.hpp"
#include "support/support.hpp"

using namespace jitune;
using namespace jitune::measure;
using jitune::test::Bench;
using jitune::test::GpuWorker;

namespace {

const char* kKernels = R"(
template <int MODE> __global__ void scale(float* y, const float* x, int n) {
  extern __shared__ float room[];
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    if (MODE == 6 && i >= n / 2) continue;               // half the output
    if (MODE == 7) room[threadIdx.x] = x[i];
    y[i] = 2.0f * (MODE == 7 ? room[threadIdx.x] : x[i]);
  }
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  if (MODE == 1) for (volatile int stop = 0; stop == 0;) {}  // for ever
  if (MODE == 2) asm volatile("trap;");
  if (MODE == 3) y[n + 3] = 0.0f;                        // outside the buffer, inside the allocation
  if (MODE == 4) y[1ull << 42] = 0.0f;                   // outside everything
  if (MODE == 5) *(volatile float*)((char*)y + 2) = 0.0f;  // misaligned
}
template <int MODE> __global__ void increment(float* x, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) x[i] += 1.0f;
}
template <int MODE> __global__ void accumulate(float* sum, const float* x, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&sum[i & 1023], x[i]);
}
)";
constexpr int kCount = 1 << 20;

space::ArgSpec buffer(ArgKind kind, const char* name, int64_t count) {
  space::ArgSpec arg;
  arg.kind = kind;
  arg.name = name;
  arg.type = Type::float32;
  arg.element_bytes = 4;
  arg.count = count;
  arg.fill.kind = Fill::Kind::integers;  // sums are exact in any order
  arg.fill.low = 0;
  arg.fill.high = 8;
  arg.tolerance = Tolerance::within(1e-5, 1e-6);
  return arg;
}

space::ArgSpec number(int value) {
  space::ArgSpec arg;
  arg.kind = ArgKind::scalar;
  arg.name = "n";
  arg.type = Type::int32;
  arg.scalar.resize(sizeof value);
  std::memcpy(arg.scalar.data(), &value, sizeof value);
  return arg;
}

Candidate candidate(const Bench& bench, const std::string& entry, const std::vector<space::ArgSpec>& args) {
  const test::Compiled compiled = test::compile(bench, kKernels, entry);
  Candidate made;
  made.cubin = compiled.cubin;
  made.lowered_name = compiled.lowered_name;
  made.geometry.grid = {256, 1, 1};
  made.geometry.block = {256, 1, 1};
  made.args = args;
  return made;
}

struct Row {
  const char* what;
  const char* entry;
  TrialStatus status;
  bool ends_worker = false;
  uint32_t shared_bytes = 0;
  uint32_t threads = 256;
};

/// A worker with this study's buffers and reference, made anew where the one before is gone.
class Measurer {
 public:
  Measurer(const Bench& bench, std::vector<space::ArgSpec> args, Candidate reference)
      : bench_(bench), args_(std::move(args)), reference_(std::move(reference)) {}

  TrialReply trial(const Candidate& tried) {
    if (!worker_) {
      worker_ = std::make_unique<GpuWorker>();
      Setup setup;
      setup.device_uuid = bench_.device.uuid;
      setup.args = args_;
      setup.utility_cubin = test::compile(bench_, utility_source(), "jitune_fill").cubin;
      const SetupReply ready = worker_->setup(setup);
      REQUIRE_MESSAGE(ready.ok, ready.error);
      const TrialReply reply = worker_->trial(reference_, std::numeric_limits<double>::infinity(), true);
      REQUIRE_MESSAGE(reply.status == TrialStatus::ok, reply.error);
    }
    TrialReply reply = worker_->trial(tried);
    if (reply.context_lost) {
      CHECK(worker_->finish() == 70);
      worker_.reset();
    }
    return reply;
  }

  /// As the host does with a trial whose deadline passes.
  TrialReply trial_that_hangs(const Candidate& tried) {
    worker_->send(to_json(TrialRequest{tried, false, false, 0, {}}));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    CHECK(worker_->finish(true) == 128 + 9);
    worker_.reset();
    TrialReply reply;
    reply.status = TrialStatus::run_timeout;
    return reply;
  }

 private:
  const Bench& bench_;
  std::vector<space::ArgSpec> args_;
  Candidate reference_;
  std::unique_ptr<GpuWorker> worker_;
};

}  // namespace

TEST_CASE("every fault of a kernel gets its status; the next config, and the host's context and buffers, are whole" *
          doctest::test_suite("faults")) {
  const Bench bench = test::bench();
  if (!bench) return;
  DeviceMemory mine;
  REQUIRE_FALSE(mine.allocate(*bench.driver, 1 << 20, "test"));
  REQUIRE(bench.driver->cuMemsetD32Async(mine.address(), 42, 1 << 18, nullptr) == CUDA_SUCCESS);
  const auto host_is_whole = [&] {
    unsigned first = 0, last = 0;
    return bench.driver->cuMemcpyDtoH(&first, mine.address(), 4) == CUDA_SUCCESS &&
           bench.driver->cuMemcpyDtoH(&last, mine.address() + (1 << 20) - 4, 4) == CUDA_SUCCESS && first == 42 &&
           last == 42;
  };
  const std::vector<space::ArgSpec> args{buffer(ArgKind::out, "y", kCount), buffer(ArgKind::in, "x", kCount),
                                         number(kCount)};
  const Candidate good = candidate(bench, "scale<0>", args);
  Measurer measurer(bench, args, good);
  std::printf("| kernel | status | said | next config | host |\n|---|---|---|---|---|\n");
  const auto report = [&](const char* what, const TrialReply& reply, const TrialReply& next) {
    std::printf("| %s | %s | %s | %s | %s |\n", what, to_string(reply.status),
                reply.error.substr(0, reply.error.find('\n')).substr(0, 90).c_str(), to_string(next.status),
                host_is_whole() ? "whole" : "HARMED");
    CHECK(next.status == TrialStatus::ok);
    CHECK(host_is_whole());
  };
  for (const Row& row :
       {Row{"good", "scale<0>", TrialStatus::ok}, Row{"traps", "scale<2>", TrialStatus::run_crash, true},
        Row{"writes past its buffer, inside the allocation", "scale<3>", TrialStatus::out_of_bounds},
        Row{"writes outside the allocation", "scale<4>", TrialStatus::run_crash, true},
        Row{"writes to a misaligned address", "scale<5>", TrialStatus::run_crash, true},
        Row{"writes half its output", "scale<6>", TrialStatus::wrong_result},
        Row{"needs 200 KiB of shared memory", "scale<7>", TrialStatus::ok, false, 200 << 10},
        Row{"needs 4 MiB of shared memory", "scale<8>", TrialStatus::launch_error, false, 4 << 20},
        Row{"needs 2048 threads a block", "scale<9>", TrialStatus::launch_error, false, 0, 2048}}) {
    CAPTURE(row.what);
    Candidate tried = candidate(bench, row.entry, args);
    tried.geometry.shared_bytes = row.shared_bytes;
    tried.geometry.block[0] = row.threads;
    const TrialReply reply = measurer.trial(tried);
    CHECK_MESSAGE(reply.status == row.status, reply.error);
    CHECK(reply.context_lost == row.ends_worker);
    report(row.what, reply, measurer.trial(good));
  }
  report("never ends", measurer.trial_that_hangs(candidate(bench, "scale<1>", args)), measurer.trial(good));

  const std::vector<space::ArgSpec> state{buffer(ArgKind::inout, "x", kCount), number(kCount)};
  Measurer restoring(bench, state, candidate(bench, "increment<0>", state));
  const TrialReply added = restoring.trial(candidate(bench, "increment<1>", state));
  CHECK_MESSAGE(added.status == TrialStatus::ok, added.error);
  report("depends on restored state", added, restoring.trial(candidate(bench, "increment<2>", state)));

  const std::vector<space::ArgSpec> sums{buffer(ArgKind::zeroed, "sum", 1024), buffer(ArgKind::in, "x", kCount),
                                         number(kCount)};
  Measurer zeroing(bench, sums, candidate(bench, "accumulate<0>", sums));
  const TrialReply summed = zeroing.trial(candidate(bench, "accumulate<1>", sums));
  CHECK_MESSAGE(summed.status == TrialStatus::ok, summed.error);
  report("adds to a zeroed output", summed, zeroing.trial(candidate(bench, "accumulate<2>", sums)));
}

TEST_CASE("a short kernel is timed by a graph, and its SM clock is read" * doctest::test_suite("times")) {
  const Bench bench = test::bench();
  if (!bench) return;
  const std::vector<space::ArgSpec> args{buffer(ArgKind::out, "y", 1 << 14), buffer(ArgKind::in, "x", 1 << 14),
                                         number(1 << 14)};
  Setup setup;
  setup.device_uuid = bench.device.uuid;
  setup.args = args;
  setup.utility_cubin = test::compile(bench, utility_source(), "jitune_fill").cubin;
  std::printf("method, L2: median us, relative spread of 5 trials' medians, SM clock\n");
  setup.toolkit_dir = bench.toolkit_dir;
  double by_events_us = 0;
  for (const Policy::Method method : {Policy::Method::automatic, Policy::Method::stream, Policy::Method::cupti})
    for (const bool cold : {true, false}) {
      setup.policy.method = method;
      setup.policy.cold_l2 = cold;
      GpuWorker worker;
      const SetupReply ready = worker.setup(setup);
      if (method == Policy::Method::cupti && !ready.ok && ready.error.find("was not found") != std::string::npos) {
        test::skip("cupti", ready.error);
        continue;
      }
      REQUIRE_MESSAGE(ready.ok, ready.error);
      const Candidate tried = candidate(bench, "scale<0>", args);
      REQUIRE(worker.trial(tried, std::numeric_limits<double>::infinity(), true).status == TrialStatus::ok);
      std::vector<double> medians;
      TrialReply reply;
      for (int i = 0; i < 5; ++i) {
        reply = worker.trial(tried);
        REQUIRE_MESSAGE(reply.status == TrialStatus::ok, reply.error);
        medians.push_back(summarise(reply.samples_us).median_us);
      }
      const Summary all = summarise(medians);
      std::printf("%s x %d, %s: %.3f us, %.2f %%, %d MHz\n", to_string(reply.method), reply.launches,
                  cold ? "cold" : "hot", all.median_us, 100 * (all.max_us - all.min_us) / all.median_us,
                  reply.clock_mhz);
      CHECK((reply.method == Policy::Method::graph) == (method == Policy::Method::automatic));
      CHECK((reply.method == Policy::Method::cupti) == (method == Policy::Method::cupti));
      if (cold && method == Policy::Method::stream) by_events_us = all.median_us;
      if (cold && method == Policy::Method::cupti) CHECK(all.median_us < by_events_us);  // without launch latency
      CHECK(reply.clock_mhz > 300);
      CHECK(reply.clock_mhz < 3000);
    }
}
