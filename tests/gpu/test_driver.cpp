#include <cstring>
#include <vector>

#include "gpu/module.hpp"
#include "gpu_support.hpp"
#include "measure/device_memory.hpp"
#include "measure/utility.hpp"
#include "support/support.hpp"

using namespace jitune;
using measure::DeviceMemory;

namespace {

gpu::Module load(const test::Bench& bench, const std::string& source, const std::string& entry) {
  const test::Compiled compiled = test::compile(bench, source, entry);
  gpu::Module module;
  const gpu::Trouble bad = module.load(*bench.driver, compiled.cubin, compiled.lowered_name);
  REQUIRE_MESSAGE(!bad, bad.message);
  return module;
}

template <class T>
std::vector<T> read(const test::Bench& bench, CUdeviceptr from, size_t count) {
  std::vector<T> values(count);
  REQUIRE(bench.driver->cuCtxSynchronize() == CUDA_SUCCESS);
  REQUIRE(bench.driver->cuMemcpyDtoH(values.data(), from, count * sizeof(T)) == CUDA_SUCCESS);
  return values;
}

void run(const gpu::Module& module, const space::Geometry& geometry, std::vector<void*> params) {
  const gpu::Trouble bad = module.launch(geometry, nullptr, params.data());
  REQUIRE_MESSAGE(!bad, bad.message);
}

}  // namespace

TEST_CASE("devices are there and make sense") {
  const test::Bench bench = test::bench();
  if (!bench) return;
  const auto devices = gpu::devices();
  REQUIRE(devices);
  for (const space::DeviceInfo& device : *devices) {
    MESSAGE(device.name << " " << device.uuid << " " << device.arch() << ", " << device.sm_count << " SMs, L2 "
                        << device.l2_bytes << " bytes, driver " << device.driver);
    CHECK(device.cc() >= 70);
    CHECK(device.sm_count > 0);
    CHECK(device.uuid.size() == 40);
    CHECK(device.memory_bytes > int64_t{1} << 30);
    CHECK(device.l2_bytes >= 1 << 20);
    CHECK(device.smem_optin_bytes >= 48 << 10);
    CHECK(device.max_clock_mhz > 500);
    CHECK(gpu::find_device(*bench.driver, device.uuid));
  }
}

TEST_CASE("a compiled template loads, tells facts and launches") {
  const test::Bench bench = test::bench();
  if (!bench) return;
  const gpu::Module module = load(bench,
                                  "__constant__ float offset;\n"
                                  "template <typename T, int N> __global__ void fill(T* y, T a) {\n"
                                  "  y[blockIdx.x * N + threadIdx.x] = a + T(offset);\n}\n",
                                  "fill<float, 128>");
  space::Geometry geometry;
  geometry.grid = {4, 1, 1};
  geometry.block = {128, 1, 1};
  space::KernelFacts facts;
  REQUIRE_FALSE(module.facts(geometry, facts));
  CHECK(facts.regs > 0);
  CHECK(facts.max_blocks_per_sm >= 8);
  CUdeviceptr symbol = 0;
  size_t bytes = 0;
  REQUIRE_FALSE(module.symbol("offset", symbol, bytes));
  CHECK(bytes == 4);
  const float offset = 0.5f;
  REQUIRE(bench.driver->cuMemcpyHtoD(symbol, &offset, 4) == CUDA_SUCCESS);
  DeviceMemory memory;
  REQUIRE_FALSE(memory.allocate(*bench.driver, 512 * 4, "test"));
  CUdeviceptr y = memory.address();
  float a = 2;
  run(module, geometry, {&y, &a});
  CHECK(read<float>(bench, y, 512) == std::vector<float>(512, 2.5f));
}

TEST_CASE("dynamic shared memory above 48 KiB") {
  const test::Bench bench = test::bench();
  if (!bench) return;
  gpu::Module module = load(bench,
                            "extern \"C\" __global__ void k(int* y, int n) { extern __shared__ int s[];\n"
                            "  for (int i = threadIdx.x; i < n; i += blockDim.x) s[i] = i; __syncthreads();\n"
                            "  if (threadIdx.x == 0) *y = s[n - 1]; }",
                            "k");
  DeviceMemory memory;
  REQUIRE_FALSE(memory.allocate(*bench.driver, 4, "test"));
  CUdeviceptr y = memory.address();
  space::Geometry geometry;
  geometry.block = {256, 1, 1};
  geometry.shared_bytes = 64 << 10;
  int n = 16 << 10;
  if (bench.device.smem_optin_bytes >= 64 << 10) {
    std::vector<void*> params{&y, &n};
    CHECK(module.launch(geometry, nullptr, params.data()).code == CUDA_ERROR_INVALID_VALUE);
    REQUIRE_FALSE(module.prepare(geometry));
    run(module, geometry, params);
    CHECK(read<int>(bench, y, 1)[0] == n - 1);
  }
  geometry.shared_bytes = 1 << 20;
  const gpu::Trouble refused = module.prepare(geometry);
  CHECK(refused.code == CUDA_ERROR_INVALID_VALUE);
  CHECK_FALSE(gpu::is_sticky(refused.code));
  CHECK(bench.driver->cuCtxSynchronize() == CUDA_SUCCESS);
}

TEST_CASE("cooperative, dependent and cluster launches") {
  const test::Bench bench = test::bench();
  if (!bench) return;
  DeviceMemory memory;
  REQUIRE_FALSE(memory.allocate(*bench.driver, 4096, "test"));
  CUdeviceptr y = memory.address();
  space::Geometry geometry;
  geometry.grid = {8, 1, 1};
  geometry.block = {32, 1, 1};
  gpu::Module plain =
      load(bench, "extern \"C\" __global__ void k(int* y) { if (threadIdx.x == 0) y[blockIdx.x] = 7; }", "k");
  geometry.cooperative = true;
  run(plain, geometry, {&y});
  CHECK(read<int>(bench, y, 8) == std::vector<int>(8, 7));
  geometry.grid = {1'000'000, 1, 1};
  std::vector<void*> params{&y};
  CHECK(plain.launch(geometry, nullptr, params.data()).code == CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  geometry.cooperative = false;
  geometry.grid = {8, 1, 1};
  if (bench.device.cc() < 90) return test::skip("gpu", "clusters need compute capability 9.0");
  geometry.programmatic_dependent = true;
  run(plain, geometry, {&y});
  geometry.programmatic_dependent = false;
  gpu::Module cluster = load(bench,
                             "extern \"C\" __global__ void k(int* y) { unsigned r, n;\n"
                             "  asm(\"mov.u32 %0, %%cluster_ctarank;\" : \"=r\"(r));\n"
                             "  asm(\"mov.u32 %0, %%cluster_nctarank;\" : \"=r\"(n));\n"
                             "  if (threadIdx.x == 0) y[blockIdx.x] = r * 100 + n; }",
                             "k");
  geometry.cluster = {4, 1, 1};
  REQUIRE_FALSE(cluster.prepare(geometry));
  run(cluster, geometry, {&y});
  CHECK(read<int>(bench, y, 8) == std::vector<int>{4, 104, 204, 304, 4, 104, 204, 304});
  geometry.grid = {16, 1, 1};
  geometry.cluster = {16, 1, 1};
  CHECK(cluster.launch(geometry, nullptr, params.data()).code == CUDA_ERROR_INVALID_CLUSTER_SIZE);
  REQUIRE_FALSE(cluster.prepare(geometry));
  run(cluster, geometry, {&y});
  CHECK(read<int>(bench, y, 16)[15] == 1516);
  CHECK(bench.driver->cuCtxSynchronize() == CUDA_SUCCESS);
}

TEST_CASE("tensor maps are encoded, and bad ones refused") {
  const test::Bench bench = test::bench();
  if (!bench) return;
  if (bench.device.cc() < 90) return test::skip("gpu", "TMA needs compute capability 9.0");
  DeviceMemory memory;
  REQUIRE_FALSE(memory.allocate(*bench.driver, 64 * 256 * 2, "test"));
  CUtensorMap map;
  space::ArgSpec arg;
  arg.kind = ArgKind::tensor_map;
  arg.name = "map";
  arg.dims = {64, 256};
  arg.box = {64, 128};
  arg.swizzle = 128;
  arg.l2_promotion = 128;
  const gpu::Trouble made = gpu::encode_tensor_map(*bench.driver, arg, Type::bfloat16, memory.address(), map);
  CHECK_MESSAGE(!made, made.message);
  CHECK(gpu::encode_tensor_map(*bench.driver, arg, Type::bfloat16, memory.address() + 2, map));
  arg.box = {128, 128};  // 256 bytes a row do not fit a swizzle of 128
  const gpu::Trouble wide = gpu::encode_tensor_map(*bench.driver, arg, Type::bfloat16, memory.address(), map);
  CHECK(wide.code == CUDA_ERROR_INVALID_VALUE);
  CHECK(wide.message.find("tensor map `map`") == 0);
}

TEST_CASE("the worker's own kernels do on the GPU what they do on the host") {
  const test::Bench bench = test::bench();
  if (!bench) return;
  const test::Compiled compiled = test::compile(bench, measure::utility_source(), "jitune_fill");
  measure::Utility utility;
  const gpu::Trouble loaded = utility.load(*bench.driver, compiled.cubin, nullptr);
  REQUIRE_MESSAGE(!loaded, loaded.message);
  DeviceMemory memory;
  REQUIRE_FALSE(memory.allocate(*bench.driver, 1 << 20, "test"));
  const auto fill = [&](Type type, int64_t count, const Fill& how) {
    space::ArgSpec arg;
    arg.type = type;
    arg.element_bytes = type_info(type).size_bytes;
    arg.count = count;
    arg.fill = how;
    arg.tolerance = Tolerance::within(0.01, 0.001);
    REQUIRE_FALSE(utility.fill(memory.address(), arg, 1));
    return arg;
  };
  fill(Type::half, 100, Fill::constant(0.1));
  CHECK(read<uint16_t>(bench, memory.address(), 100) == std::vector<uint16_t>(100, 0x2E66));
  fill(Type::bfloat16, 100, Fill::constant(-0.1));
  CHECK(read<uint16_t>(bench, memory.address(), 100) == std::vector<uint16_t>(100, 0xBDCD));
  fill(Type::fp8_e4m3, 100, Fill::constant(448));
  CHECK(read<uint8_t>(bench, memory.address(), 100) == std::vector<uint8_t>(100, 0x7E));
  fill(Type::int64, 100, Fill::constant(-3));
  CHECK(read<int64_t>(bench, memory.address(), 100) == std::vector<int64_t>(100, -3));

  const int64_t count = 100'000;
  const space::ArgSpec arg = fill(Type::float32, count, Fill::normal(3, 2));
  const auto values = read<float>(bench, memory.address(), static_cast<size_t>(count));
  double sum = 0;
  for (const float value : values) sum += value;
  CHECK(sum / static_cast<double>(count) == doctest::Approx(3).epsilon(0.01));

  // Two elements of a copy changed: number, first place and worst error.
  const CUdeviceptr copy = memory.address() + 512 * 1024;
  REQUIRE(bench.driver->cuMemcpyDtoD(copy, memory.address(), static_cast<size_t>(count) * 4) == CUDA_SUCCESS);
  for (const size_t at : {size_t{70'001}, size_t{90'000}}) {
    const float changed = values[at] + 5;
    REQUIRE(bench.driver->cuMemcpyHtoD(copy + at * 4, &changed, 4) == CUDA_SUCCESS);
  }
  DeviceMemory result;
  REQUIRE_FALSE(result.allocate(*bench.driver, 24, "test"));
  REQUIRE(bench.driver->cuMemsetD8Async(result.address(), 0, 24, nullptr) == CUDA_SUCCESS);
  REQUIRE_FALSE(utility.compare(copy, memory.address(), 0, arg, 0x7fc0dead, result.address()));
  const auto found = read<uint64_t>(bench, result.address(), 3);
  CHECK(found[0] == 2);
  CHECK(static_cast<uint64_t>(count) - found[1] == 70'001);
  double worst = 0;
  std::memcpy(&worst, &found[2], sizeof worst);
  CHECK(worst == doctest::Approx(5).epsilon(0.001));
}
