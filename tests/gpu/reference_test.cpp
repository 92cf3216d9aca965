// References on a GPU: a kernel of the definition's source, and a function of this program, against a wrong default.
#include <vector>

#include "gpu/driver.hpp"
#include "jitune/jitune.hpp"
#include "store/store.hpp"
#include "support/support.hpp"

using namespace jitune;

namespace {

constexpr int kCount = 1 << 20;

/// y = a x + i % 3; with BLOCK 64, the default, the last block is a little off.
KernelDefinition affine() {
  return {.name = "affine",
          .source_text =
              "template <int BLOCK, int ITEMS> __global__ void affine(float* y, const float* x, float a, int n) {\n"
              "  for (int k = 0; k < ITEMS; ++k) {\n"
              "    const int i = (blockIdx.x * ITEMS + k) * BLOCK + threadIdx.x;\n"
              "    if (i < n) y[i] = a * x[i] + i % 3 + (BLOCK == 64 && i >= n - 64 ? 1.0f : 0.0f);\n  }\n}\n"
              "extern \"C\" __global__ void plain(int n, float a, const float* x, float* y) {\n"
              "  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)\n"
              "    y[i] = a * x[i] + i % 3;\n}\n",
          .entry = "affine<{BLOCK}, {ITEMS}>",
          .problem = {"n"},
          .params = {{"BLOCK", {64, 128, 256, 512}}, {"ITEMS", {1, 2, 4}}},
          .launch = {.grid = {"ceil_div(n, BLOCK * ITEMS)"}, .block = {"BLOCK"}},
          .args = {out("y", "float", "n", Tolerance::within(1e-5, 1e-5)), in("x", "float", "n"),
                   scalar("a", "float", "2.0"), scalar("n", "int", "n")},
          .defaults = {{.config = {{"BLOCK", "64"}, {"ITEMS", "1"}}}}};
}

struct Result {
  Choice choice;
  bool right = false;
  store::StudyView study;
  int wrong_results = 0;
};

/// Tunes `definition` in a first launch over x = 3, and looks at what it left.
Result tune(const gpu::Driver& driver, const KernelDefinition& definition) {
  const test::TempDir dir;
  CUdeviceptr x = 0, y = 0;
  const size_t bytes = size_t{kCount} * sizeof(float);
  REQUIRE(driver.cuMemAlloc(&x, bytes) == CUDA_SUCCESS);
  REQUIRE(driver.cuMemAlloc(&y, bytes) == CUDA_SUCCESS);
  std::vector<float> host(kCount, 3.0f);
  REQUIRE(driver.cuMemcpyHtoD(x, host.data(), bytes) == CUDA_SUCCESS);
  Result result;
  {
    Options options;
    options.track = Track::tune;
    options.database = dir / "a.db";
    options.first_call_budget = std::chrono::seconds(60);
    if (std::getenv("JITUNE_WORKER") == nullptr) options.worker = std::string(JITUNE_BINARY_DIR) + "/bin/jitune-worker";
    Tuner tuner(options);
    Kernel<void(float*, const float*, float, int)> kernel(tuner, definition);
    const auto problem = kernel.problem({{"n", kCount}});
    kernel.launch(nullptr, problem, reinterpret_cast<float*>(y), reinterpret_cast<const float*>(x), 2.0f, kCount);
    result.choice = kernel.choice(problem);
  }
  REQUIRE(driver.cuMemcpyDtoH(host.data(), y, bytes) == CUDA_SUCCESS);
  result.right = true;
  for (int i = 0; i < kCount; ++i)
    result.right = result.right && host[static_cast<size_t>(i)] == 6.0f + static_cast<float>(i % 3);
  driver.cuMemFree(x);
  driver.cuMemFree(y);
  store::Store::OpenOptions open;
  open.path = dir / "a.db";
  auto database = store::Store::open(open);
  REQUIRE(database.ok());
  const auto keys = (*database)->list();
  REQUIRE(keys.ok());
  REQUIRE(keys->size() == 1);
  const auto rows = (*database)->trials_of(keys->front().key.sha256);
  REQUIRE(rows);
  for (const auto& row : *rows) result.wrong_results += row.status == "wrong_result" ? 1 : 0;
  const auto study = (*database)->find_study(1);
  REQUIRE(study.ok());
  REQUIRE(study->has_value());
  result.study = **study;
  return result;
}

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

void check(const Result& result) {
  CHECK(result.right);
  CHECK_MESSAGE(result.choice.source == Choice::Source::tuned, result.choice.why);
  CHECK(result.choice.config.find(R"("BLOCK":64)") == std::string::npos);
  CHECK(result.wrong_results == 3);  // BLOCK 64, with each ITEMS
  CHECK_MESSAGE(result.study.end.note.find("the default config's result is wrong") != std::string::npos,
                result.study.end.note);
  CHECK(result.study.end.note.find("64 of 1048576 elements differ") != std::string::npos);
  MESSAGE(result.study.end.note << "\nwinner " << result.choice.config << " " << result.choice.time_us << " us");
}

}  // namespace

TEST_CASE("GPU: a reference kernel in the kernel's own source finds the default config wrong") {
  const gpu::Driver* driver = gpu_or_skip();
  if (driver == nullptr) return;
  auto definition = affine();
  definition.reference =
      Reference{.entry = "plain", .grid = {"device.sm_count"}, .block = {"256"}, .args = {"n", "a", "x", "y"}};
  check(tune(*driver, definition));
}

TEST_CASE("GPU: a reference function in host memory finds the default config wrong") {
  const gpu::Driver* driver = gpu_or_skip();
  if (driver == nullptr) return;
  auto definition = affine();
  int calls = 0;
  definition.host_reference = HostReference{"1", [&](const ReferenceData& data) {
                                              ++calls;
                                              const auto x = data.in<float>("x");
                                              const auto y = data.out<float>("y");
                                              CHECK(x[12345] == 3.0f);  // the caller's own buffer
                                              for (size_t i = 0; i < y.size(); ++i)
                                                y[i] = data.scalar<float>("a") * x[i] + static_cast<float>(i % 3);
                                            }};
  check(tune(*driver, definition));
  CHECK(calls == 1);
}

TEST_CASE("GPU: without either, the wrong default config is what all are held against") {
  const gpu::Driver* driver = gpu_or_skip();
  if (driver == nullptr) return;
  CHECK_FALSE(tune(*driver, affine()).right);
}
