#include <algorithm>
#include <cstring>
#include <vector>

#include "gpu/driver.hpp"
#include "jitune/jitune.hpp"
#include "store/store.hpp"
#include "support/support.hpp"

using namespace jitune;

namespace {

/// A GPU with its primary context current, or null, having said so.
const gpu::Driver* gpu_or_skip() {
  auto driver = gpu::driver();
  if (!driver) {
    test::skip("gpu", driver.error());
    return nullptr;
  }
  CUdevice device = 0;
  REQUIRE((*driver)->cuDeviceGet(&device, 0) == CUDA_SUCCESS);
  REQUIRE(gpu::use_primary_context(**driver, device).ok());
  return *driver;
}

Options options(const std::string& database, int seconds) {
  Options result;
  result.track = Track::tune;
  result.database = database;
  result.first_call_budget = std::chrono::seconds(seconds);
  if (std::getenv("JITUNE_WORKER") == nullptr) result.worker = std::string(JITUNE_BINARY_DIR) + "/bin/jitune-worker";
  return result;
}

class Buffer {
 public:
  Buffer(const gpu::Driver& driver, const std::vector<uint16_t>& host) : driver_(driver), bytes_(host.size() * 2) {
    REQUIRE(driver.cuMemAlloc(&address_, bytes_) == CUDA_SUCCESS);
    write(host);
  }
  ~Buffer() { driver_.cuMemFree(address_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void write(const std::vector<uint16_t>& host) {
    REQUIRE(driver_.cuMemcpyHtoD(address_, host.data(), bytes_) == CUDA_SUCCESS);
  }
  std::vector<uint16_t> read() const {
    std::vector<uint16_t> host(bytes_ / 2);
    REQUIRE(driver_.cuMemcpyDtoH(host.data(), address_, bytes_) == CUDA_SUCCESS);
    return host;
  }
  void* pointer() const { return reinterpret_cast<void*>(address_); }

 private:
  const gpu::Driver& driver_;
  size_t bytes_;
  CUdeviceptr address_ = 0;
};

/// Halves between 0.5 and 2, different enough that a second update would show in every element.
std::vector<uint16_t> halves(size_t count, unsigned seed) {
  std::vector<uint16_t> values(count);
  for (auto& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<uint16_t>(0x3800 + (seed >> 22));
  }
  return values;
}

}  // namespace

TEST_CASE("fused_add_rmsnorm tuned in its first call: the caller's buffers hold exactly one update, bit for bit") {
  const gpu::Driver* driver = gpu_or_skip();
  if (driver == nullptr) return;
  const test::TempDir dir;
  const int rows = 2048, hidden = 4096;
  const size_t count = static_cast<size_t>(rows) * hidden;
  const auto x0 = halves(count, 1), r0 = halves(count, 2), w0 = halves(hidden, 3);
  Buffer x(*driver, x0), residual(*driver, r0), weight(*driver, w0);
  Tuner tuner(options(dir / "a.db", 60));
  Kernel<void(void*, void*, const void*, int, float)> kernel(
      tuner, load(std::string(JITUNE_SOURCE_DIR) + "/kernels_src/fused_add_rmsnorm.toml"));
  const auto problem = kernel.problem({{"T", Type::half}, {"hidden", hidden}, {"rows", rows}});
  auto launch = [&] {
    kernel.launch(nullptr, problem, x.pointer(), residual.pointer(), weight.pointer(), hidden, 1e-6f);
    REQUIRE(driver->cuCtxSynchronize() == CUDA_SUCCESS);
  };
  launch();
  const auto choice = kernel.choice(problem);
  CHECK_MESSAGE(choice.source == Choice::Source::tuned, choice.why);
  const auto first_x = x.read(), first_residual = residual.read();
  const long long trials = tuner.statistics().trials;
  CHECK(trials >= 20);

  // One clean run of the winner on the same data, without any tuning.
  x.write(x0);
  residual.write(r0);
  launch();
  CHECK(tuner.statistics().trials == trials);
  CHECK(std::memcmp(first_x.data(), x.read().data(), count * 2) == 0);
  CHECK(std::memcmp(first_residual.data(), residual.read().data(), count * 2) == 0);
  CHECK(std::memcmp(first_residual.data(), r0.data(), count * 2) != 0);

  auto store = store::Store::open({.path = dir / "a.db", .create = false, .read_only = true, .must_be_file = true});
  REQUIRE_MESSAGE(store.ok(), store.error());
  auto keys = (*store)->list("fused_add_rmsnorm");
  REQUIRE(keys.ok());
  REQUIRE(keys->size() == 1);
  auto rows_of_key = (*store)->trials_of(keys->front().key.sha256);
  REQUIRE(rows_of_key.ok());
  // Good: ran with a right result; those that had clearly lost by then were not sampled to the end.
  const auto good = std::count_if(rows_of_key->begin(), rows_of_key->end(), [](const store::TrialRow& trial) {
    return trial.status == "ok" || trial.status == "early_stopped";
  });
  CHECK(good >= 20);
  MESSAGE("trials " << trials << ", good " << good << ", choice " << choice.config << " " << choice.why);
}

TEST_CASE("a config that loops for ever and one that writes to an illegal address cost two trials, not the process" *
          doctest::test_suite("faults")) {
  const gpu::Driver* driver = gpu_or_skip();
  if (driver == nullptr) return;
  const test::TempDir dir;
  const size_t count = 1 << 20;
  const std::vector<uint16_t> ones(count * 2, 0);  // n floats of zero
  Buffer y(*driver, ones);
  KernelDefinition definition{
      .name = "sometimes_bad",
      .source_text =
          "template <int MODE> __global__ void sometimes_bad(float* y, int n) {\n"
          "  const int i = blockIdx.x * 256 + threadIdx.x;\n"
          "  if (MODE == 3) for (volatile int* p = (volatile int*)y; *p != 123456789;) {}\n"
          "  if (MODE == 5) y[(1ull << 40) + i] = 1;\n"
          "  float v = n > 0 ? 1 : 2;  // not known to the compiler\n"
          "  for (int k = 0; k < (MODE == 2 ? 1 : 20000 * (MODE + 1)); ++k) v = v * 0.5f + 0.5f;\n"
          "  if (i < n) y[i] = v;\n}\n",
      .entry = "sometimes_bad<{MODE}>",
      .problem = {"n"},
      .params = {{"MODE", {0, 1, 2, 3, 4, 5, 6}}},
      .launch = {.grid = {"ceil_div(n, 256)"}, .block = {"256"}},
      .args = {out("y", "float", "n", Tolerance::within(1e-5, 1e-5)), scalar("n", "int", "n")},
      .defaults = {{.config = {{"MODE", "6"}}}}};
  const auto start = std::chrono::steady_clock::now();
  Tuner tuner(options(dir / "a.db", 60));
  Kernel<void(void*, int)> kernel(tuner, definition);
  const auto problem = kernel.problem({{"n", static_cast<int>(count)}});
  kernel.launch(nullptr, problem, y.pointer(), static_cast<int>(count));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  CHECK(driver->cuCtxSynchronize() == CUDA_SUCCESS);  // our own context is as well as before
  CHECK(kernel.choice(problem).config == R"({"MODE":2})");
  CHECK(tuner.statistics().trials == 7);
  CHECK(seconds < 20);
  float value = 0;
  REQUIRE(driver->cuMemcpyDtoH(&value, reinterpret_cast<CUdeviceptr>(y.pointer()), 4) == CUDA_SUCCESS);
  CHECK(value == 1.0f);

  auto store = store::Store::open({.path = dir / "a.db", .create = false, .read_only = true, .must_be_file = true});
  REQUIRE_MESSAGE(store.ok(), store.error());
  auto keys = (*store)->list("sometimes_bad");
  REQUIRE(keys.ok());
  REQUIRE(keys->size() == 1);
  auto trials = (*store)->trials_of(keys->front().key.sha256);
  REQUIRE(trials.ok());
  for (const auto& trial : *trials) {
    CAPTURE(trial.config);
    if (trial.config == R"({"MODE":3})")
      CHECK(trial.status == "run_timeout");
    else if (trial.config == R"({"MODE":5})")
      CHECK(trial.status == "run_crash");
    else
      CHECK((trial.status == "ok" || trial.status == "early_stopped"));
  }
  MESSAGE("7 configs, one endless, one faulty: " << seconds << " s");
}
