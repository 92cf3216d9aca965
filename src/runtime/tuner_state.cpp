#include "runtime/tuner_state.hpp"

#include <pthread.h>

#include <cstdio>
#include <optional>
#include <utility>

#include "exchange/files.hpp"
#include "gpu/driver.hpp"
#include "jitune/error.hpp"
#include "runtime/kernel_state.hpp"
#include "tune/clock_memo.hpp"
#include "tune/compiler.hpp"

namespace jitune::runtime {

std::atomic<bool> detail::forked{false};

namespace {

constexpr std::chrono::seconds kTellMissesEvery{5};

void watch_forks() {
  static const int registered = ::pthread_atfork(nullptr, nullptr, [] { detail::forked.store(true); });
  (void)registered;
}

tune::ServiceOptions service_options(const Settings& settings, Log& log) {
  tune::ServiceOptions options;
  options.store.path = settings.database;
  options.nvrtc = settings.options.nvrtc;
  options.worker = settings.options.worker;
  options.worker_env = settings.worker_env;
  options.cuda_home = settings.cuda_home;
  options.cuda_path = settings.cuda_path;
  options.compile_workers = settings.options.compile_workers;
  options.runtime_directory = settings.runtime_directory;
  options.compile_timeout = settings.options.compile_timeout;
  options.policy = settings.policy;
  options.in_process = settings.options.isolation == Isolation::in_process;
  options.log = &log;
  return options;
}

}  // namespace

TunerState::TunerState(Settings settings)
    : settings_(std::move(settings)), log_(settings_.options.log, settings_.threshold, settings_.log_keys) {
  watch_forks();
  background_ = std::make_unique<Background>(*this);
  auto services = tune::Services::open(service_options(settings_, log_));
  if (!services) throw Error(ErrorCode::bad_options, services.error());
  services_ = std::move(*services);
  for (const std::string& path : settings_.options.bundles) {
    std::string note;
    auto bundle = exchange::open_source(path, &log_, &note);
    if (!bundle) log_.warning("bundle_unusable", "", "the bundle is not used: " + bundle.error(), path);
    if (!note.empty()) log_.warning("bundle_refused", "", path + ": " + note, path);
    if (bundle) bundles_.push_back({path, std::move(*bundle)});
  }
}

TunerState::~TunerState() {
  if (!is_forked_child()) return;
  [[maybe_unused]] const auto* behind = background_.release();
  // They belong to the parent; letting go of them, undestroyed, is all that a child may do.
  [[maybe_unused]] const auto* leaked = new std::shared_ptr<tune::Services>(std::move(services_));
  [[maybe_unused]] const auto* left = new std::vector<Bundle>(std::move(bundles_));
}

void TunerState::close() {
  const bool was_open = open_.exchange(false, std::memory_order_acq_rel);
  if (is_forked_child()) return;
  background_->stop();
  if (was_open) log_summary();
  try {
    tell_misses();
  } catch (...) {  // out of memory: counts are lost, nothing else
  }
  std::shared_ptr<tune::Services> services;
  {
    const std::lock_guard lock(mutex_);
    services.swap(services_);
    tuned_.notify_all();
  }
}

void TunerState::count_decision(const std::string& rule) {
  const std::lock_guard lock(mutex_);
  ++decisions_[rule];
}

std::map<std::string, long long> TunerState::decisions() {
  const std::lock_guard lock(mutex_);
  return decisions_;
}

/// One line at the end of the Tuner, for who reads logs rather than counters.
void TunerState::log_summary() {
  try {
    std::string text = std::to_string(launches.sum()) + " launches; decided by";
    for (const auto& [rule, count] : decisions()) text += " " + rule + " " + std::to_string(count);
    char rest[160];
    std::snprintf(rest, sizeof rest, "; %lld misses; %lld stalls of %.1f ms in all; %lld fallbacks; %lld trials",
                  misses.load(), stalls.load(), static_cast<double>(stall_us) / 1000, fallbacks.load(), trials.load());
    log_.info("summary", "", text + rest);
  } catch (...) {  // out of memory
  }
}

void TunerState::add(std::weak_ptr<KernelState> kernel) {
  const std::lock_guard lock(mutex_);
  std::erase_if(kernels_, [](const auto& each) { return each.expired(); });
  kernels_.push_back(std::move(kernel));
}

void TunerState::tell_misses_now_and_then() {
  {
    const std::lock_guard lock(mutex_);
    if (Clock::now() - misses_told_ < kTellMissesEvery) return;
    misses_told_ = Clock::now();
  }
  tell_misses();
}

void TunerState::tell_misses() {
  std::vector<std::shared_ptr<KernelState>> kernels;
  const auto services = this->services();
  if (services == nullptr) return;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& each : kernels_)
      if (auto kernel = each.lock()) kernels.push_back(std::move(kernel));
  }
  for (const auto& kernel : kernels) kernel->tell_misses(services->store());
}

std::shared_ptr<tune::Services> TunerState::services() {
  const std::lock_guard lock(mutex_);
  return services_;
}

Result<space::DeviceInfo> TunerState::device_of(CUdevice device) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = devices_.find(device); known != devices_.end()) return known->second;
  }
  auto driver = gpu::driver();
  if (!driver) return driver.failure();
  std::optional<tune::StoreClockMemo> memo;
  const auto services = this->services();
  if (services != nullptr) memo.emplace(services->store());
  auto info = gpu::device_info(**driver, device, memo ? &*memo : nullptr);
  if (!info) return info;
  const std::lock_guard lock(mutex_);
  return devices_.emplace(device, std::move(*info)).first->second;
}

bool TunerState::begin_tuning(const std::string& key_sha256) {
  const std::lock_guard lock(mutex_);
  return tuning_.insert(key_sha256).second;
}

void TunerState::end_tuning(const std::string& key_sha256) {
  const std::lock_guard lock(mutex_);
  tuning_.erase(key_sha256);
  tuned_.notify_all();
}

bool TunerState::wait_tuned(const std::string& key_sha256, Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return tuned_.wait_until(lock, deadline, [&] { return tuning_.count(key_sha256) == 0 || !is_open(); }) && is_open();
}

}  // namespace jitune::runtime
