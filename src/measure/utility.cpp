#include "measure/utility.hpp"

#include <algorithm>
#include <string>

#include "measure/device_memory.hpp"

namespace jitune::measure {
namespace {

constexpr unsigned kThreads = 256;
constexpr uint64_t kMostBlocks = 2048;  // a few waves of the largest GPUs; the kernels stride over the rest
constexpr unsigned long long kClockSpanNs = 10'000;
constexpr int kRawBytes = 15;  // as in utility.cu

constexpr std::array kNames{"jitune_fill",     "jitune_compare", "jitune_unwritten", "jitune_guards",
                            "jitune_checksum", "jitune_decode",  "jitune_spin",      "jitune_clock"};

static_assert(static_cast<int>(Type::half) == 0 && static_cast<int>(Type::boolean) == 14);
static_assert(static_cast<int>(Fill::Kind::normal) == 1 && static_cast<int>(Fill::Kind::constant) == 7);

int type_code(const space::ArgSpec& arg) {
  return arg.type ? static_cast<int>(*arg.type) : kRawBytes;
}

}  // namespace

Utility::~Utility() {
  if (module_ != nullptr) driver_->cuModuleUnload(module_);
}

gpu::Trouble Utility::load(const gpu::Driver& driver, std::string_view cubin, CUstream stream) {
  driver_ = &driver;
  stream_ = stream;
  if (cubin.size() < 64) return {CUDA_ERROR_INVALID_IMAGE, "the setup came without the worker's own kernels"};
  if (auto bad = trouble(driver, "loading the worker's own kernels", driver.cuModuleLoadData(&module_, cubin.data())))
    return bad;
  for (size_t i = 0; i < kNames.size(); ++i)
    if (auto bad = trouble(driver, kNames[i], driver.cuModuleGetFunction(&functions_[i], module_, kNames[i])))
      return bad;
  return {};
}

gpu::Trouble Utility::run(Kernel kernel, uint64_t items, void** params) const {
  if (items == 0) return {};
  const auto blocks = static_cast<unsigned>(std::min((items + kThreads - 1) / kThreads, kMostBlocks));
  return trouble(*driver_, kNames[kernel],
                 driver_->cuLaunchKernel(functions_[kernel], blocks, 1, 1, items == 1 ? 1 : kThreads, 1, 1, 0, stream_,
                                         params, nullptr));
}

gpu::Trouble Utility::fill(CUdeviceptr data, const space::ArgSpec& arg, uint64_t seed) const {
  // Without a type the buffer is bytes, whatever its elements.
  auto count = static_cast<uint64_t>(arg.type ? arg.count : arg.bytes());
  int type = type_code(arg);
  int kind = static_cast<int>(arg.fill.kind);
  double low = arg.fill.low;
  double high = arg.fill.high;
  long long bound = arg.index_bound;
  void* params[] = {&data, &count, &type, &kind, &low, &high, &bound, &seed};
  return run(kFill, count, params);
}

gpu::Trouble Utility::compare(CUdeviceptr got, CUdeviceptr expected, CUdeviceptr skip, const space::ArgSpec& arg,
                              uint32_t poison, CUdeviceptr result) const {
  auto count = static_cast<uint64_t>(arg.count);
  int type = type_code(arg);
  int element_bytes = static_cast<int>(arg.element_bytes);
  int exact = arg.tolerance.exact || !arg.type ? 1 : 0;
  int nan_equal = arg.tolerance.nan_equal ? 1 : 0;
  double rtol = arg.tolerance.rtol;
  double atol = arg.tolerance.atol;
  void* params[] = {&got,   &expected,  &skip, &count, &type,   &element_bytes,
                    &exact, &nan_equal, &rtol, &atol,  &poison, &result};
  return run(kCompare, count, params);
}

gpu::Trouble Utility::unwritten(CUdeviceptr first, CUdeviceptr second, const space::ArgSpec& arg, uint32_t first_poison,
                                uint32_t second_poison, CUdeviceptr skip, CUdeviceptr found) const {
  auto count = static_cast<uint64_t>(arg.count);
  int element_bytes = static_cast<int>(arg.element_bytes);
  void* params[] = {&first, &second, &count, &element_bytes, &first_poison, &second_poison, &skip, &found};
  return run(kUnwritten, count, params);
}

gpu::Trouble Utility::guards(CUdeviceptr table, int count, uint32_t pattern, CUdeviceptr damaged) const {
  void* params[] = {&table, &count, &pattern, &damaged};
  return run(kGuards, static_cast<uint64_t>(std::max(0, count)) * kThreads, params);
}

gpu::Trouble Utility::checksum(CUdeviceptr data, int64_t bytes, CUdeviceptr sum) const {
  auto size = static_cast<unsigned long long>(bytes);
  void* params[] = {&data, &size, &sum};
  return run(kChecksum, (size + 7) / 8, params);
}

gpu::Trouble Utility::decode(CUdeviceptr data, uint64_t index, const space::ArgSpec& arg, CUdeviceptr number) const {
  int type = type_code(arg);
  void* params[] = {&data, &index, &type, &number};
  return run(kDecode, 1, params);
}

gpu::Trouble Utility::clock(CUdeviceptr result) const {
  unsigned long long span_ns = kClockSpanNs;
  void* params[] = {&span_ns, &result};
  return run(kClock, 1, params);
}

gpu::Trouble Utility::spin(int64_t cycles) const {
  long long count = cycles;
  void* params[] = {&count};
  return run(kSpin, 1, params);
}

}  // namespace jitune::measure
