// A stand-in for CUPTI's activity interface over the stand-in driver: one record for the latest launch since the last
// flush, a quarter of a microsecond shorter than events see it, as launch latency is on a GPU.
#include <cstdint>
#include <cstring>

#include "fake_cuda.hpp"

namespace {

constexpr int kOk = 0, kNoMore = 12, kNotReady = 15;
constexpr int kConcurrentKernel = 10;
constexpr double kLatencyUs = 0.25;
constexpr size_t kRecordBytes = 208;

using GiveBuffer = void (*)(uint8_t**, size_t*, size_t*);
using TakeBuffer = void (*)(void*, uint32_t, uint8_t*, size_t, size_t);
GiveBuffer give_buffer = nullptr;
TakeBuffer take_buffer = nullptr;
bool recording = false;
double told_start_us = -1;

}  // namespace

extern "C" {

int cuptiActivityRegisterCallbacks(GiveBuffer give, TakeBuffer take) {
  give_buffer = give;
  take_buffer = take;
  return kOk;
}

int cuptiActivityEnable(int kind) {
  if (kind != kConcurrentKernel || give_buffer == nullptr) return kNotReady;
  recording = true;
  return kOk;
}

int cuptiActivityDisable(int /*kind*/) {
  recording = false;
  return kOk;
}

int cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid_bytes, void** record) {
  if (*record != nullptr || valid_bytes < kRecordBytes) return kNoMore;
  *record = buffer;
  return kOk;
}

int cuptiActivityFlushAll(unsigned /*flag*/) {
  const double start_us = fake_cuda_last_start_us();
  if (!recording || start_us == told_start_us || fake_cuda_last_us() <= kLatencyUs) return kOk;
  told_start_us = start_us;
  uint8_t* buffer = nullptr;
  size_t bytes = 0, most = 0;
  give_buffer(&buffer, &bytes, &most);
  if (buffer == nullptr || bytes < kRecordBytes) return kNotReady;
  std::memset(buffer, 0, kRecordBytes);
  const auto start_ns = static_cast<uint64_t>(start_us * 1000) + 1'000'000;
  const auto end_ns = start_ns + static_cast<uint64_t>((fake_cuda_last_us() - kLatencyUs) * 1000 + 0.5);
  std::memcpy(buffer, &kConcurrentKernel, sizeof kConcurrentKernel);
  std::memcpy(buffer + 16, &start_ns, sizeof start_ns);
  std::memcpy(buffer + 24, &end_ns, sizeof end_ns);
  take_buffer(nullptr, 0, buffer, bytes, kRecordBytes);
  return kOk;
}
}
