#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "fake_cuda/cubin.hpp"
#include "fake_cuda/loaded.hpp"
#include "gpu/driver.hpp"
#include "gpu/module.hpp"
#include "support/support.hpp"

using namespace jitune;

namespace {

constexpr const char* kLibrary = JITUNE_BINARY_DIR "/tests/fake_cuda/libcuda.so.1";

/// What driver() says in a process of its own, where nothing was loaded before.
std::string driver_failure(bool with_library, const char* spec) {
  int said[2];
  REQUIRE(::pipe(said) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (spec != nullptr) ::setenv("JITUNE_FAKE_CUDA", spec, 1);
    if (with_library) const fake_cuda::Loaded loaded(kLibrary);
    const auto driver = gpu::driver();
    const std::string text = driver ? "loaded" : driver.error();
    const ssize_t written = ::write(said[1], text.data(), text.size());
    ::_exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  ::close(said[1]);
  std::string text;
  char chunk[4096];
  for (ssize_t got = 0; (got = ::read(said[0], chunk, sizeof chunk)) > 0;) text.append(chunk, static_cast<size_t>(got));
  ::close(said[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 0);
  return text;
}

const fake_cuda::Loaded& fake(const std::string& spec = "{}") {
  static const fake_cuda::Loaded loaded(kLibrary);
  static const auto ready = gpu::driver();
  REQUIRE(ready);
  loaded.configure(spec);
  return loaded;
}

const gpu::Driver& standin(const std::string& spec = "{}") {
  fake(spec);
  const gpu::Driver& driver = **gpu::driver();
  REQUIRE(gpu::use_primary_context(driver, 0));
  return driver;
}

}  // namespace

// First: the fork children must start without a driver.
TEST_CASE("what is missing is said, with what to do") {
  CHECK(driver_failure(true, nullptr) == "loaded");
  const std::string no_gpu = driver_failure(true, R"({"devices": []})");
  CHECK(no_gpu.find("no CUDA GPU is visible to this process (cuInit: CUDA_ERROR_NO_DEVICE") == 0);
  CHECK(no_gpu.find("CUDA_VISIBLE_DEVICES") != std::string::npos);
  CHECK(driver_failure(true, R"({"init": 999})").find("the CUDA driver does not start (cuInit: CUDA error 999)") == 0);
  const std::string no_library = driver_failure(false, nullptr);
  if (no_library == "loaded" || no_library.find("no CUDA GPU") == 0)
    jitune::test::skip("cpu", "this machine has a driver of its own");
  else
    CHECK(no_library.find("the CUDA driver (libcuda.so.1) cannot be loaded: ") == 0);
}

TEST_CASE("devices and their facts") {
  standin(R"({"devices": [{"name": "One", "cc": "8.6", "sm_count": 84, "l2_bytes": 6291456, "clock_mhz": 1860},
                          {"uuid": "GPU-00112233-4455-6677-8899-aabbccddeeff", "cc": "12.0"}]})");
  const auto devices = gpu::devices();
  REQUIRE(devices);
  REQUIRE(devices->size() == 2);
  const space::DeviceInfo& one = (*devices)[0];
  CHECK(one.name == "One");
  CHECK(one.uuid == "GPU-fa4e0000-0000-4000-8000-000000000000");
  CHECK(one.cc_major == 8);
  CHECK(one.cc_minor == 6);
  CHECK(one.arch() == "sm_86");
  CHECK(one.sm_count == 84);
  CHECK(one.memory_bytes == int64_t{8} << 30);
  CHECK(one.l2_bytes == 6291456);
  CHECK(one.smem_optin_bytes == 232448);
  CHECK(one.smem_per_sm_bytes == 228 << 10);
  CHECK(one.smem_reserved_bytes == 1024);
  CHECK(one.regs_per_sm == 65536);
  CHECK(one.max_threads_per_block == 1024);
  CHECK(one.max_threads_per_sm == 2048);
  CHECK(one.max_blocks_per_sm == 32);
  CHECK(one.max_clock_mhz == 1860);
  CHECK(one.max_memory_clock_mhz == 2619);
  CHECK(one.cooperative);
  CHECK(one.driver == std::to_string(CUDA_VERSION / 1000) + "." + std::to_string(CUDA_VERSION % 1000 / 10));
  CHECK((*devices)[1].uuid == "GPU-00112233-4455-6677-8899-aabbccddeeff");
  CHECK((*devices)[1].cc() == 120);

  const gpu::Driver& driver = **gpu::driver();
  CHECK(*gpu::find_device(driver, "GPU-00112233-4455-6677-8899-aabbccddeeff") == 1);
  CHECK(*gpu::find_device(driver, "MIG-00112233-4455-6677-8899-aabbccddeeff") == 1);
  CHECK_FALSE(gpu::find_device(driver, "GPU-1"));
  CHECK_FALSE(gpu::device_info(driver, 7));
}

TEST_CASE("a primary context is one a device, and current on each thread that asks") {
  const gpu::Driver& driver = standin(R"({"devices": [{}, {"uuid": "GPU-00112233-4455-6677-8899-aabbccddeeff"}]})");
  const auto first = gpu::use_primary_context(driver, 0);
  REQUIRE(first);
  CHECK(*gpu::use_primary_context(driver, 0) == *first);
  std::thread([&] {
    CUcontext current = nullptr;
    CHECK(driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS);
    CHECK(current == nullptr);
    const auto second = gpu::use_primary_context(driver, 1);
    REQUIRE(second);
    CHECK(*second != *first);
    CUdevice device = 0;
    CHECK(driver.cuCtxGetDevice(&device) == CUDA_SUCCESS);
    CHECK(device == 1);
  }).join();
  CUdevice device = 9;
  CHECK(driver.cuCtxGetDevice(&device) == CUDA_SUCCESS);
  CHECK(device == 0);
  CHECK_FALSE(gpu::use_primary_context(driver, 5));
}

TEST_CASE("which errors destroy the context") {
  for (const CUresult harmless :
       {CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_IMAGE,
        CUDA_ERROR_NO_BINARY_FOR_GPU, CUDA_ERROR_NOT_FOUND, CUDA_ERROR_NOT_READY, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
        CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, CUDA_ERROR_INVALID_CLUSTER_SIZE, CUDA_ERROR_NOT_SUPPORTED,
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_UNSUPPORTED_PTX_VERSION})
    CHECK_FALSE(gpu::is_sticky(harmless));
  for (const CUresult fatal :
       {CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_TIMEOUT, CUDA_ERROR_ASSERT, CUDA_ERROR_HARDWARE_STACK_ERROR,
        CUDA_ERROR_ILLEGAL_INSTRUCTION, CUDA_ERROR_MISALIGNED_ADDRESS, CUDA_ERROR_INVALID_ADDRESS_SPACE,
        CUDA_ERROR_INVALID_PC, CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_ECC_UNCORRECTABLE, CUDA_ERROR_NVLINK_UNCORRECTABLE,
        CUDA_ERROR_CONTEXT_IS_DESTROYED, CUDA_ERROR_DEINITIALIZED, CUDA_ERROR_DEVICE_UNAVAILABLE,
        CUDA_ERROR_SYSTEM_NOT_READY, CUDA_ERROR_UNKNOWN})
    CHECK(gpu::is_sticky(fatal));
  CHECK(gpu::is_sticky(static_cast<CUresult>(1001)));  // newer than we are
}

TEST_CASE("errors are described by name, or by number when the driver knows none") {
  const gpu::Driver& driver = standin();
  CHECK(driver.describe("here", CUDA_ERROR_ILLEGAL_ADDRESS) ==
        "here: CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)");
  CHECK(driver.describe("here", static_cast<CUresult>(1001)) == "here: CUDA error 1001");
  CHECK(driver.check("here", CUDA_SUCCESS));
  CHECK(driver.check("here", CUDA_ERROR_NOT_FOUND).error() == "here: CUDA_ERROR_NOT_FOUND (named symbol not found)");
}

TEST_CASE("modules load, tell facts, launch, and go with their object unless kept") {
  const gpu::Driver& driver = standin(R"({"kernels": [{"match": "k", "regs": 50, "static_smem": 2048, "local": 8}]})");
  const int64_t before =
      fake(R"({"kernels": [{"match": "k", "regs": 50, "static_smem": 2048, "local": 8}]})").modules();
  const std::string cubin = fake_cuda::make_cubin({"k"}, {{"table", 64}});
  space::Geometry geometry;
  geometry.block = {256, 1, 1};
  {
    gpu::Module module;
    CHECK_FALSE(module);
    REQUIRE_FALSE(module.load(driver, cubin, "k"));
    CHECK(module);
    REQUIRE_FALSE(module.prepare(geometry));
    space::KernelFacts facts;
    REQUIRE_FALSE(module.facts(geometry, facts));
    CHECK(facts.regs == 50);
    CHECK(facts.static_smem_bytes == 2048);
    CHECK(facts.local_bytes == 8);
    CHECK(facts.max_blocks_per_sm == 5);
    CUdeviceptr address = 0;
    size_t bytes = 0;
    REQUIRE_FALSE(module.symbol("table", address, bytes));
    CHECK(address != 0);
    CHECK(bytes == 64);
    CHECK(module.symbol("chair", address, bytes).code == CUDA_ERROR_NOT_FOUND);
    CHECK_FALSE(module.launch(geometry, nullptr, nullptr));
    gpu::Module moved(std::move(module));
    CHECK(moved.function() != nullptr);
    REQUIRE_FALSE(moved.load(driver, cubin, "k"));  // a second load lets go of the first
    CHECK(fake_cuda::Loaded(kLibrary).modules() == before + 1);
    const gpu::Trouble missing = moved.load(driver, cubin, "absent");
    CHECK(missing.code == CUDA_ERROR_NOT_FOUND);
    CHECK(missing.message.find("`absent`") != std::string::npos);
    CHECK_FALSE(moved);
    CHECK(moved.load(driver, "short", "k").code == CUDA_ERROR_INVALID_IMAGE);
    std::string foreign = cubin;
    foreign[18] = 62;  // x86-64
    CHECK(moved.load(driver, foreign, "k").code == CUDA_ERROR_INVALID_IMAGE);
  }
  CHECK(fake_cuda::Loaded(kLibrary).modules() == before);
  {
    gpu::Module kept;
    REQUIRE_FALSE(kept.load(driver, cubin, "k"));
    kept.keep();
  }
  CHECK(fake_cuda::Loaded(kLibrary).modules() == before + 1);
}

TEST_CASE("limits are raised as far as the geometry needs, and refusals name it") {
  const gpu::Driver& driver = standin(R"({"kernels": [{"match": "k", "static_smem": 40960}]})");
  gpu::Module module;
  REQUIRE_FALSE(module.load(driver, fake_cuda::make_cubin({"k"}), "k"));
  space::Geometry geometry;
  geometry.block = {128, 1, 1};
  geometry.shared_bytes = 20'000;  // with 40 KiB of its own that is more than 48 KiB
  CHECK(module.launch(geometry, nullptr, nullptr).code == CUDA_ERROR_INVALID_VALUE);
  REQUIRE_FALSE(module.prepare(geometry));
  CHECK_FALSE(module.launch(geometry, nullptr, nullptr));
  geometry.shared_bytes = 232'448;
  CHECK(module.prepare(geometry).message.find("232448 bytes, more than this GPU gives a block") != std::string::npos);

  geometry.shared_bytes = 0;
  geometry.grid = {32, 1, 1};
  geometry.cluster = {16, 0, 0};  // what is 0 counts as 1
  CHECK(module.launch(geometry, nullptr, nullptr).code == CUDA_ERROR_INVALID_CLUSTER_SIZE);
  REQUIRE_FALSE(module.prepare(geometry));
  CHECK_FALSE(module.launch(geometry, nullptr, nullptr));
  geometry.cluster = {5, 1, 1};
  const gpu::Trouble uneven = module.launch(geometry, nullptr, nullptr);
  CHECK(uneven.message.find("launch of grid 32x1x1, block 128x1x1, cluster 5x1x1: CUDA_ERROR_INVALID_VALUE") == 0);
  geometry.cluster = {0, 0, 0};
  geometry.cooperative = true;
  geometry.programmatic_dependent = true;
  CHECK_FALSE(module.launch(geometry, nullptr, nullptr));
  geometry.grid = {1'000'000, 1, 1};
  CHECK(module.launch(geometry, nullptr, nullptr).code == CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
}

TEST_CASE("tensor maps: sizes are checked before the driver sees them") {
  const gpu::Driver& driver = standin();
  CUtensorMap map;
  space::ArgSpec arg;
  arg.kind = ArgKind::tensor_map;
  arg.name = "A_map";
  arg.dims = {64, 128};
  arg.box = {32, 64};
  const auto encode = [&](const space::ArgSpec& changed, CUdeviceptr base = 0x10000) {
    return gpu::encode_tensor_map(driver, changed, Type::half, base, map);
  };
  CHECK_FALSE(encode(arg));
  const auto refuse = [&](auto change, const char* why) {
    space::ArgSpec changed = arg;
    change(changed);
    const gpu::Trouble bad = encode(changed);
    CAPTURE(bad.message);
    CHECK(bad.code == CUDA_ERROR_INVALID_VALUE);
    CHECK(bad.message.find("tensor map `A_map`") == 0);
    CHECK(bad.message.find(why) != std::string::npos);
  };
  refuse([](auto& a) { a.dims.clear(); }, "0 dims, 1 to 5");
  refuse([](auto& a) { a.dims.assign(6, 2); }, "6 dims");
  refuse([](auto& a) { a.box = {32}; }, "box has 1 values for 2 dims");
  refuse([](auto& a) { a.box = {32, 257}; }, "box 1 is 257");
  refuse([](auto& a) { a.dims = {64, 0}; }, "dim 1 is 0");
  refuse([](auto& a) { a.strides_bytes = {128, 128}; }, "strides_bytes has 2 values");
  refuse([](auto& a) { a.element_strides = {1}; }, "element_strides has 1 values");
  refuse([](auto& a) { a.swizzle = 48; }, "swizzle is 0, 32, 64 or 128");
  refuse([](auto& a) { a.interleave = 64; }, "interleave 0, 16 or 32");
  refuse([](auto& a) { a.l2_promotion = 1; }, "l2_promotion 0, 64, 128 or 256");
  refuse([](auto& a) { a.strides_bytes = {100}; }, "refused by the driver");
  CHECK(encode(arg, 0x10008).code == CUDA_ERROR_INVALID_VALUE);
}
