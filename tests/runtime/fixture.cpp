#include "runtime/fixture.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "compile/nvrtc.hpp"

namespace jitune::test {
namespace {

const std::string kFakeDirectory = std::string(JITUNE_BINARY_DIR) + "/tests/fake_cuda";

std::string in_front() {
  const char* old = std::getenv("LD_LIBRARY_PATH");
  return old == nullptr ? kFakeDirectory : kFakeDirectory + ":" + old;
}

const fake_cuda::Loaded& loaded() {
  static const fake_cuda::Loaded library(kFakeDirectory + "/libcuda.so.1");
  return library;
}

}  // namespace

std::string with_own_gpu(const std::string& spec) {
  if (spec.find("\"devices\"") != std::string::npos) return spec;
  char device[100];
  std::snprintf(device, sizeof device, "{\"devices\": [{\"uuid\": \"GPU-fa4e0000-0000-4000-8001-%012x\"}]%s",
                static_cast<unsigned>(::getpid()), spec.find(':') == std::string::npos ? "" : ", ");
  return device + spec.substr(spec.find('{') + 1);
}

FakeGpu::FakeGpu(const std::string& spec)
    : library_path_("LD_LIBRARY_PATH", in_front().c_str()), spec_("JITUNE_FAKE_CUDA", with_own_gpu(spec).c_str()) {
  loaded().configure(with_own_gpu(spec));
  loaded().set_capturing(false);
  loaded().set_foreign_capture(0);
  auto driver = gpu::driver();
  REQUIRE_MESSAGE(driver.ok(), driver.error());
  driver_ = *driver;
  CUdevice device = 0;
  REQUIRE(driver_->cuDeviceGet(&device, 0) == CUDA_SUCCESS);
  REQUIRE(gpu::use_primary_context(*driver_, device).ok());
}

FakeGpu::~FakeGpu() {
  for (const CUdeviceptr each : buffers_) driver_->cuMemFree(each);
}

float* FakeGpu::buffer(size_t count, float value) {
  CUdeviceptr address = 0;
  REQUIRE(driver_->cuMemAlloc(&address, count * sizeof(float)) == CUDA_SUCCESS);
  buffers_.push_back(address);
  const std::vector<float> host(count, value);
  REQUIRE(driver_->cuMemcpyHtoD(address, host.data(), count * sizeof(float)) == CUDA_SUCCESS);
  return reinterpret_cast<float*>(address);
}

std::vector<float> FakeGpu::read(const float* data, size_t count) const {
  std::vector<float> host(count);
  REQUIRE(driver_->cuMemcpyDtoH(host.data(), reinterpret_cast<CUdeviceptr>(data), count * sizeof(float)) ==
          CUDA_SUCCESS);
  return host;
}

const fake_cuda::Loaded& FakeGpu::fake() const {
  return loaded();
}

Options quiet_options(Track track, const std::string& database) {
  Options options;
  options.track = track;
  options.database = database;
  options.compile_workers = 2;
  options.worker = std::string(JITUNE_BINARY_DIR) + "/bin/jitune-worker";
  options.log.function = [](void*, const Event&) noexcept {};
  return options;
}

bool have_nvrtc() {
  compile::NvrtcSearchOptions where;
  if (const char* home = std::getenv("CUDA_HOME")) where.cuda_home = home;
  const auto search = compile::find_nvrtc(where);
  if (search.found.empty()) skip("nvrtc", compile::explain_missing(search));
  return !search.found.empty();
}

}  // namespace jitune::test
