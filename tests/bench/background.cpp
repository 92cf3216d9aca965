// What the background track costs an application that launches a short kernel and waits for it, again and again:
//   bench_background [--launches 20000] [--micros 50] [--limit SECONDS] [--count ELEMENTS] [--idle-gpu]
// Phases: before (default config, nothing tuned), while it is tuned, after the swap. Once rationed as Options say, once
// with rationing off. Every element of the result is checked every 1,000 launches. Exit code 1: a result was wrong or
// no swap happened. With --idle-gpu, on a machine with several GPUs of a class of which nothing uses the second: once
// as Options say, which measures on an idle GPU, and once on the application's own (tuning_devices = own); exit code 1
// too where no other GPU than the application's tuned in the first. The figures are for people; tests/gpu/RESULTS.md
// keeps them.
#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gpu/driver.hpp"
#include "jitune/jitune.hpp"

namespace {

using namespace jitune;
using Increment = Kernel<void(device_ptr, int)>;
using SteadyClock = std::chrono::steady_clock;

struct Arguments {
  int launches = 20'000;
  double micros = 50;
  double limit_s = 60;
  int count = 0;  // 0: calibrated
  bool idle_gpu = false;
};

std::mutex said_mutex;
std::string said;  // the study's line in the log, which says where it was made

void note(void*, const Event& event) noexcept {
  if (event.code != "tuned" && event.code != "idle_gpu_unusable" && event.level != LogLevel::warning) return;
  const std::lock_guard lock(said_mutex);
  if (said.empty() || event.code != "tuned") said += std::string(event.text) + " ";
}

double us_since(SteadyClock::time_point start) {
  return std::chrono::duration<double, std::micro>(SteadyClock::now() - start).count();
}

[[noreturn]] void fail(const std::string& why) {
  std::printf("bench_background: %s\n", why.c_str());
  std::exit(1);
}

KernelDefinition increment() {
  return {.name = "increment",
          .source_text =
              "template <int BLOCK, int ITEMS> __global__ void increment(float* x, int n) {\n"
              "  int i = blockIdx.x * (BLOCK * ITEMS) + threadIdx.x;\n"
              "  for (int k = 0; k < ITEMS; ++k, i += BLOCK)\n"
              "    if (i < n) x[i] += 1;\n"
              "}\n",
          .entry = "increment<{BLOCK}, {ITEMS}>",
          .problem = {"n"},
          .params = {{"BLOCK", {32, 64, 128, 256, 512, 1024}}, {"ITEMS", {1, 2, 4, 8}}},
          .launch = {.grid = {"ceil_div(n, BLOCK * ITEMS)"}, .block = {"BLOCK"}},
          .args = {inout("x", "float", "n"), scalar("n", "int", "n")},
          .defaults = {{.config = {{"BLOCK", "64"}, {"ITEMS", "1"}}}}};
}

/// The application: one buffer, one stream, launch and wait.
class Application {
 public:
  explicit Application(int most) : host_(static_cast<size_t>(most)) {
    auto loaded = gpu::driver();
    if (!loaded) fail(loaded.error());
    driver_ = *loaded;
    CUdevice device = 0;
    if (driver_->cuDeviceGet(&device, 0) != CUDA_SUCCESS) fail("there is no GPU");
    if (auto context = gpu::use_primary_context(*driver_, device); !context) fail(context.error());
    check(driver_->cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "making a stream");
    check(driver_->cuMemAlloc(&x_, host_.size() * sizeof(float)), "allocating");
    check(driver_->cuMemcpyHtoD(x_, host_.data(), host_.size() * sizeof(float)), "copying");
  }

  /// Launches, waits, and says what both took.
  double launch(Increment& kernel, const Problem& problem, int count) {
    const auto start = SteadyClock::now();
    kernel.launch(stream_, problem, device_ptr{x_}, count);
    check(driver_->cuStreamSynchronize(stream_), "waiting");
    const double us = us_since(start);
    ++launched_;
    return us;
  }

  /// Whether the first `count` elements were incremented by every launch. Begins anew.
  bool is_right(int count) {
    const auto used = static_cast<size_t>(count);
    check(driver_->cuMemcpyDtoH(host_.data(), x_, used * sizeof(float)), "copying back");
    const auto want = static_cast<float>(launched_);
    const bool right = std::all_of(host_.begin(), host_.begin() + count, [&](float value) { return value == want; });
    std::fill(host_.begin(), host_.begin() + count, 0.0f);
    check(driver_->cuMemcpyHtoD(x_, host_.data(), used * sizeof(float)), "copying");
    launched_ = 0;
    return right;
  }

 private:
  void check(CUresult code, const char* what) const {
    if (code != CUDA_SUCCESS) fail(driver_->describe(what, code));
  }
  const gpu::Driver* driver_ = nullptr;
  CUstream stream_ = nullptr;
  CUdeviceptr x_ = 0;
  std::vector<float> host_;
  long long launched_ = 0;
};

struct Series {
  std::vector<double> us;
  double per_second() const {
    double sum = 0;
    for (const double each : us) sum += each;
    return sum > 0 ? static_cast<double>(us.size()) * 1e6 / sum : 0;
  }
  double quantile(double share) const {
    if (us.empty()) return 0;
    auto sorted = us;
    std::sort(sorted.begin(), sorted.end());
    return sorted[std::min(sorted.size() - 1, static_cast<size_t>(share * static_cast<double>(sorted.size())))];
  }
};

void print(const char* name, const Series& series, const Series& before) {
  std::printf("  %-8s %7zu launches  %8.0f /s (%.3f)  p50 %7.1f  p99 %7.1f (%.2f)  p99.9 %8.1f  max %8.1f us\n", name,
              series.us.size(), series.per_second(), series.per_second() / before.per_second(), series.quantile(0.5),
              series.quantile(0.99), series.quantile(0.99) / before.quantile(0.99), series.quantile(0.999),
              series.quantile(1));
}

/// The elements for which the default config takes about `micros` with the wait.
int calibrate(Application& application, Increment& kernel, double micros, int most) {
  int count = most / 16;
  for (int round = 0; round < 8; ++round) {
    const auto problem = kernel.problem({{"n", count}}).on(Track::heuristic);
    Series series;
    for (int i = 0; i < 200; ++i) series.us.push_back(application.launch(kernel, problem, count));
    (void)application.is_right(count);
    const double us = series.quantile(0.5);
    if (us > micros * 0.97 && us < micros * 1.03) break;
    count = std::clamp(static_cast<int>(count * std::clamp(micros / us, 0.5, 2.0)), 1024, most);
  }
  return count;
}

/// One run with these options. False: a wrong result, or no swap within the limit.
bool run(Application& application, const Arguments& arguments, const char* name, Options options, int count) {
  said.clear();
  options.log.function = note;
  Tuner tuner(options);
  Increment kernel(tuner, increment());
  const auto untuned = kernel.problem({{"n", count}}).on(Track::heuristic);
  const auto problem = kernel.problem({{"n", count}});
  bool right = true;
  auto launch = [&](const Problem& which, Series& series) {
    series.us.push_back(application.launch(kernel, which, count));
    if (series.us.size() % 1000 == 0) right = application.is_right(count) && right;
  };
  Series before, tuning, after;
  for (int i = 0; i < 100; ++i) (void)application.launch(kernel, untuned, count);
  right = application.is_right(count) && right;
  for (int i = 0; i < arguments.launches; ++i) launch(untuned, before);
  right = application.is_right(count) && right;

  const auto start = SteadyClock::now();
  const double first_us = application.launch(kernel, problem, count);
  while (us_since(start) < arguments.limit_s * 1e6) {
    if (tuning.us.size() % 64 == 0 && kernel.choice(problem).source != Choice::Source::default_config) break;
    launch(problem, tuning);
  }
  const double swap_s = us_since(start) / 1e6;
  const auto choice = kernel.choice(problem);
  right = application.is_right(count) && right;
  for (int i = 0; i < arguments.launches; ++i) launch(problem, after);
  right = application.is_right(count) && right;
  const auto quiet = SteadyClock::now();
  while (us_since(quiet) < 8e6 && kernel.choice(problem).why.find("confirmed") == std::string::npos)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const bool swapped = choice.source != Choice::Source::default_config;
  std::printf("%s: first call %.1f ms; %s after %.1f s, %lld trials; results %s\n", name, first_us / 1000,
              swapped ? "swapped" : "NOT SWAPPED", swap_s, tuner.statistics().trials, right ? "right" : "WRONG");
  print("before", before, before);
  print("tuning", tuning, before);
  print("after", after, before);
  std::printf("  %s %s\n  then: %s\n", choice.config.c_str(), choice.why.c_str(), kernel.choice(problem).why.c_str());
  const std::lock_guard lock(said_mutex);
  std::printf("  %s\n", said.c_str());
  const bool elsewhere = said.find("on an idle GPU (") != std::string::npos;
  if (arguments.idle_gpu && elsewhere != options.tuning_devices.empty()) {
    std::printf("  TUNED ON %s GPU THAN WAS WANTED\n", elsewhere ? "ANOTHER" : "NO OTHER");
    return false;
  }
  return right && swapped;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) arguments.idle_gpu = arguments.idle_gpu || std::strcmp(argv[i], "--idle-gpu") == 0;
  for (int i = 1; i + 1 < argc; i += std::strcmp(argv[i], "--idle-gpu") == 0 ? 1 : 2) {
    if (std::strcmp(argv[i], "--launches") == 0) arguments.launches = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--micros") == 0) arguments.micros = std::atof(argv[i + 1]);
    if (std::strcmp(argv[i], "--limit") == 0) arguments.limit_s = std::atof(argv[i + 1]);
    if (std::strcmp(argv[i], "--count") == 0) arguments.count = std::atoi(argv[i + 1]);
  }
  const int most = arguments.count > 0 ? arguments.count : 32 << 20;
  Application application(most);
  Options options;
  options.track = Track::background;
  options.database = "off";
  int count = arguments.count;
  if (count == 0) {
    Tuner tuner(options);
    Increment kernel(tuner, increment());
    count = calibrate(application, kernel, arguments.micros, most);
  }
  std::printf("%d elements; launch and wait; ratios are to `before`\n", count);
  if (arguments.idle_gpu) {
    bool good = run(application, arguments, "an idle GPU tunes", options, count);
    options.tuning_devices = {"own"};
    good = run(application, arguments, "the application's GPU tunes", options, count) && good;
    return good ? 0 : 1;
  }
  bool good = run(application, arguments, "rationed", options, count);
  options.background_share = 1;
  options.background_compile_share = 1;
  good = run(application, arguments, "not rationed", options, count) && good;
  return good ? 0 : 1;
}
