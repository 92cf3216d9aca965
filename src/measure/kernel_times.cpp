#include "measure/kernel_times.hpp"

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "base/clock.hpp"

namespace jitune::measure {
namespace {

// Of cupti_activity.h. Kernel records have grown at their end only since CUDA 6: the times have kept their place.
constexpr int kConcurrentKernel = 10;
constexpr size_t kStartOffset = 16, kEndOffset = 24;
constexpr size_t kRecordAlignment = 8;
constexpr size_t kBufferBytes = size_t{64} << 10;
constexpr double kRecordLimitMs = 100;

struct Record {
  uint64_t start_ns = 0, end_ns = 0;
};

/// What CUPTI calls back with, on threads of its own and without a word for whom.
struct Inbox {
  std::mutex mutex;
  std::vector<Record> records;
  int (*next_record)(uint8_t*, size_t, void**) = nullptr;
};
Inbox& inbox() {
  static auto* const kept = new Inbox;  // CUPTI may call until the process is gone
  return *kept;
}

void give_buffer(uint8_t** buffer, size_t* bytes, size_t* most_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kRecordAlignment, kBufferBytes));
  *bytes = *buffer == nullptr ? 0 : kBufferBytes;
  *most_records = 0;
}

void take_buffer(void* /*context*/, uint32_t /*stream*/, uint8_t* buffer, size_t /*bytes*/, size_t valid_bytes) {
  Inbox& in = inbox();
  void* record = nullptr;
  const std::lock_guard lock(in.mutex);
  while (valid_bytes > 0 && in.next_record(buffer, valid_bytes, &record) == 0) {
    int kind = 0;
    std::memcpy(&kind, record, sizeof kind);
    if (kind != kConcurrentKernel) continue;
    Record seen;
    std::memcpy(&seen.start_ns, static_cast<const char*>(record) + kStartOffset, sizeof seen.start_ns);
    std::memcpy(&seen.end_ns, static_cast<const char*>(record) + kEndOffset, sizeof seen.end_ns);
    in.records.push_back(seen);
  }
  std::free(buffer);
}

std::vector<std::string> places(const std::string& toolkit_dir) {
  std::vector<std::string> files;
  for (const char* version : {"13", "12"}) {
    const std::string name = std::string("libcupti.so.") + version;
    if (!toolkit_dir.empty())
      for (const char* dir :
           {"/", "/../extras/CUPTI/lib64/", "/../../../extras/CUPTI/lib64/", "/../../cuda_cupti/lib/"})
        files.push_back(toolkit_dir + dir + name);
    files.push_back(name);
  }
  return files;
}

gpu::Trouble failure(const std::string& text) {
  // Says nothing of the context, which goes on.
  return {CUDA_ERROR_NOT_SUPPORTED, text};
}

}  // namespace

Result<std::unique_ptr<KernelTimes>> KernelTimes::open(const std::string& toolkit_dir) {
  std::string tried;
  for (const std::string& file : places(toolkit_dir)) {
    auto library = DynamicLibrary::open(file);
    if (!library) {
      tried += "\n  " + library.error();
      continue;
    }
    std::unique_ptr<KernelTimes> times(new KernelTimes);
    using Callback = void (*)();
    const auto register_callbacks =
        reinterpret_cast<int (*)(Callback, Callback)>(library->find("cuptiActivityRegisterCallbacks"));
    const auto enable = reinterpret_cast<int (*)(int)>(library->find("cuptiActivityEnable"));
    inbox().next_record =
        reinterpret_cast<int (*)(uint8_t*, size_t, void**)>(library->find("cuptiActivityGetNextRecord"));
    times->flush_all_ = reinterpret_cast<int (*)(unsigned)>(library->find("cuptiActivityFlushAll"));
    times->disable_ = reinterpret_cast<int (*)(int)>(library->find("cuptiActivityDisable"));
    if (register_callbacks == nullptr || enable == nullptr || inbox().next_record == nullptr ||
        times->flush_all_ == nullptr || times->disable_ == nullptr) {
      tried += "\n  " + file + ": it lacks functions of the activity interface";
      times->disable_ = nullptr;
      continue;
    }
    library->keep();
    int code = register_callbacks(reinterpret_cast<Callback>(give_buffer), reinterpret_cast<Callback>(take_buffer));
    if (code == 0) code = enable(kConcurrentKernel);
    if (code == 0) return times;
    times->disable_ = nullptr;
    return Failure{"CUPTI (" + file + ") does not record kernels: error " + std::to_string(code) +
                   "; another profiler in this process, or a driver that is too old for it. Measure without it "
                   "(--method auto)"};
  }
  return Failure{"kernel times by CUPTI were asked for, but libcupti was not found:" + tried +
                 "\nInstall it with the CUDA Toolkit, or measure without it (--method auto)"};
}

KernelTimes::~KernelTimes() {
  if (disable_ == nullptr) return;
  disable_(kConcurrentKernel);
  flush_all_(0);
}

gpu::Trouble KernelTimes::flush() {
  const int code = flush_all_(0);
  return code == 0 ? gpu::Trouble{} : failure("cuptiActivityFlushAll: error " + std::to_string(code));
}

gpu::Trouble KernelTimes::forget() {
  if (auto bad = flush()) return bad;
  const std::lock_guard lock(inbox().mutex);
  inbox().records.clear();
  return {};
}

gpu::Trouble KernelTimes::latest(double& us) {
  for (const Clock::time_point begun = Clock::now(); ms_since(begun) < kRecordLimitMs; ::usleep(50)) {
    if (auto bad = flush()) return bad;
    const std::lock_guard lock(inbox().mutex);
    Record last;
    for (const Record& record : inbox().records)
      if (record.start_ns >= last.start_ns) last = record;
    if (last.end_ns == 0) continue;
    us = last.end_ns > last.start_ns ? static_cast<double>(last.end_ns - last.start_ns) / 1000 : 0;
    return {};
  }
  return failure("CUPTI delivered no record of the kernel within 100 ms");
}

}  // namespace jitune::measure
