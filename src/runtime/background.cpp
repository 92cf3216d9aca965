#include "runtime/background.hpp"

#include <pthread.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <utility>

#include "gpu/idle.hpp"
#include "runtime/capture.hpp"
#include "runtime/kernel_state.hpp"
#include "runtime/tuner_state.hpp"
#include "runtime/tuning_devices.hpp"
#include "tune/compiler.hpp"
#include "tune/device_lock.hpp"

namespace jitune::runtime {
namespace {

constexpr std::chrono::milliseconds kQuiet{1000};  // without a launch: the GPU is taken to be free
constexpr std::chrono::milliseconds kLookForQuiet{200};
constexpr std::chrono::milliseconds kPiece{20};       // of a pause
constexpr std::chrono::milliseconds kHeldPause{500};  // before looking again at a key that another process tunes
constexpr int kMostHeld = 1200;
constexpr size_t kMostKept = 64 << 20;  // bytes of a snapshot

}  // namespace

void Background::add(BackgroundJob job) {
  const std::lock_guard lock(mutex_);
  if (stop_) return;
  jobs_.push_back(std::move(job));
  if (!thread_.joinable()) {
    // The application's signals are for its own threads.
    sigset_t all, old;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &old);
    thread_ = std::thread([this] { run(); });
    ::pthread_sigmask(SIG_SETMASK, &old, nullptr);
  }
  changed_.notify_all();
}

void Background::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  jobs_.clear();
  unconfirmed_.clear();
}

bool Background::wait(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, time, [&] { return stop_; });
}

void Background::queue(std::deque<BackgroundJob>& jobs, BackgroundJob job) {
  const std::lock_guard lock(mutex_);
  jobs.push_back(std::move(job));
}

/// Whether no launch was made through this Tuner for a while.
bool Background::is_quiet() {
  const long long launches = tuner_.launches.sum();
  if (launches != launches_seen_) {
    launches_seen_ = launches;
    quiet_since_ = Clock::now();
    return false;
  }
  return Clock::now() - quiet_since_ >= kQuiet;
}

/// After `busy_ms` of the GPU: the rest of that time is the application's, unless it does not want it.
void Background::pause(double busy_ms) {
  const double pause_ms = busy_ms * (1 / tuner_.settings().options.background_share - 1);
  const auto until =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(pause_ms));
  while (!is_quiet() && tuner_.may_tune()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    if (left.count() <= 0 || !wait(std::min(kPiece, left))) return;
  }
}

/// The next job; a rematch only while the application is quiet. Nothing: look again.
std::optional<BackgroundJob> Background::next(std::unique_lock<std::mutex>& lock) {
  auto take = [](std::deque<BackgroundJob>& jobs) {
    std::optional<BackgroundJob> job(std::move(jobs.front()));
    jobs.pop_front();
    return job;
  };
  if (!jobs_.empty()) return take(jobs_);
  if (!unconfirmed_.empty() && is_quiet()) return take(unconfirmed_);
  if (unconfirmed_.empty())
    changed_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
  else
    changed_.wait_for(lock, kLookForQuiet, [&] { return stop_ || !jobs_.empty(); });
  return std::nullopt;
}

void Background::run() {
  if (auto driver = gpu::driver()) {
    // Whatever the application captures, this thread must neither fail by it nor end it.
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    (*driver)->cuThreadExchangeStreamCaptureMode(&mode);
  }
  std::unique_lock lock(mutex_);
  while (!stop_) {
    auto job = next(lock);
    if (!job || stop_) continue;
    lock.unlock();
    try {
      tune(std::move(*job));
    } catch (const std::exception& error) {
      tuner_.log().warning("background_failed", "", error.what());
    }
    job.reset();
    lock.lock();
  }
}

tune::Rationing Background::rationing(const BackgroundJob& job, tune::Services& services) {
  const auto& options = tuner_.settings().options;
  tune::Rationing rationing;
  if (!job.confirms && options.background_share < 1) {
    rationing.share = options.background_share;
    rationing.after_measuring = [this](double busy_ms) { pause(busy_ms); };
  }
  if (options.background_compile_share < 1)
    if (auto compiler = services.compiler())
      rationing.compile_width =
          std::max(1, static_cast<int>(std::lround((*compiler)->width() * options.background_compile_share)));
  return rationing;
}

/// The GPUs of the same class where nothing runs and which may be used, so that the application's own is left alone;
/// one of them where none was named. What is measured there stays rationed: whoever begins to use it meets little of
/// it.
std::vector<space::DeviceInfo> Background::idle_devices(const BackgroundJob& job) {
  const auto& names = tuner_.settings().options.tuning_devices;
  std::vector<space::DeviceInfo> idle;
  if (job.confirms) return idle;
  auto found = find_tuning_devices(names.empty() ? std::vector<std::string>{"all"} : names, job.instance->device());
  if (!names.empty())
    for (const std::string& why : found.wrong)
      tuner_.log().warning("tuning_device", job.instance->model().name(), "Options::tuning_devices: " + why, why);
  for (auto& device : found.devices) {
    if (tune::is_device_locked(device.uuid) || !gpu::is_idle(device.uuid)) continue;
    idle.push_back(std::move(device));
    if (names.empty()) break;
  }
  return idle;
}

tune::Outcome Background::study(const BackgroundJob& job, tune::Services& services, const space::Instance& instance,
                                std::vector<space::DeviceInfo> more_devices) {
  tune::Request request;
  request.more_devices = std::move(more_devices);
  request.instance = &instance;
  request.key = job.key;
  request.budget = tuner_.settings().options.background_budget;
  request.resume = job.confirms || job.resumes;
  request.data = job.data.sources();
  request.scalars = job.data.scalars();
  request.cancelled = [&] { return !tuner_.may_tune() || (job.confirms && tuner_.launches.sum() != launches_seen_); };
  request.rationing = rationing(job, services);
  auto outcome = tune::tune(services, request);
  tuner_.trials.fetch_add(outcome.trials, std::memory_order_relaxed);
  tuner_.compilations.fetch_add(outcome.compilations, std::memory_order_relaxed);
  return outcome;
}

void Background::tune(BackgroundJob job) {
  const auto services = tuner_.services();
  if (services == nullptr || !tuner_.may_tune()) return;
  const std::string name = job.instance->model().name();
  auto idle = idle_devices(job);
  std::optional<space::Instance> twin;
  if (const auto kernel = job.kernel.lock(); !idle.empty() && kernel != nullptr)
    if (auto bound = space::Instance::bind(kernel->shared_model(), job.instance->problem(), idle.front()))
      twin = std::move(*bound);
  if (!idle.empty()) idle.erase(idle.begin());
  // Memory of one GPU can't be mapped by IPC into a context on another.
  if (auto exported = job.data.export_snapshot(!twin); !exported) {
    tuner_.log().warning("snapshot_failed", name, exported.error() + "; fills are used", job.key.sha256);
    job.data = {};
  }
  const long long launches = tuner_.launches.sum();
  auto outcome =
      study(job, *services, twin ? *twin : *job.instance, twin ? std::move(idle) : std::vector<space::DeviceInfo>());
  bool elsewhere = twin.has_value();
  if (elsewhere && (outcome.outcome == "error" || outcome.outcome == "out_of_memory")) {
    tuner_.log().info("idle_gpu_unusable", name, twin->device().uuid + ": " + outcome.note);
    elsewhere = false;
    outcome = study(job, *services, *job.instance, {});
  }
  const std::string how = job.confirms ? "quiet rematch: "
                          : elsewhere  ? "in the background, on an idle GPU (" + twin->device().uuid + "): "
                                       : "in the background: ";
  tuner_.log().info("tuned", name,
                    how + outcome.outcome + ": " + std::to_string(outcome.trials) + " trials" +
                        (outcome.note.empty() ? "" : "; " + outcome.note));
  if (!tuner_.may_tune()) {
    tuner_.end_tuning(job.key.sha256);
    return;
  }
  if (outcome.outcome == "held" && ++job.held < kMostHeld) {
    if (wait(kHeldPause)) queue(jobs_, std::move(job));
    return;
  }
  if (job.confirms && outcome.outcome == "cancelled") {  // the application woke up
    queue(unconfirmed_, std::move(job));
    return;
  }
  const bool disturbed =
      !job.confirms && !elsewhere && tuner_.launches.sum() != launches && outcome.outcome != "answered";
  swap_in(job, outcome, disturbed, elsewhere);
  if (!job.confirms) tuner_.end_tuning(job.key.sha256);
  if (outcome.winner && disturbed) {
    // A large snapshot is not kept in GPU memory until the application is quiet; its data are not those of the rematch.
    if (job.data.copied_bytes() > kMostKept) return;
    job.confirms = true;
    queue(unconfirmed_, std::move(job));
  }
}

/// Puts the plan with the winner, or the reason for none, in the old one's place.
void Background::swap_in(const BackgroundJob& job, const tune::Outcome& outcome, bool disturbed, bool elsewhere) {
  const auto kernel = job.kernel.lock();
  if (kernel == nullptr) return;
  std::string found = outcome.outcome == "answered" ? "tuned elsewhere"
                      : job.confirms                ? "tuned in the background, confirmed by a quiet rematch"
                      : disturbed                   ? "tuned in the background; provisional until a quiet rematch"
                      : elsewhere                   ? "tuned in the background, on an idle GPU"
                                                    : "tuned in the background";
  const std::string why_default =
      "background tuning ended in " + outcome.outcome + (outcome.note.empty() ? "" : ": " + outcome.note);
  if (!outcome.winner) tuner_.log().warning("tuning_failed", kernel->model().name(), why_default, job.key.sha256);
  if (job.confirms && !outcome.winner) return;  // the first result stands
  kernel->refresh(job.problem, job.context, job.key.sha256, {std::move(found), why_default});
}

}  // namespace jitune::runtime
