#include "measure/session.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "base/clock.hpp"
#include "measure/check.hpp"

namespace jitune::measure {
namespace {

constexpr double kFirstSettleMs = 30;  // a fresh context: clocks from the bottom
constexpr double kUsableShare = 0.9;   // of the GPU's free memory; the rest is headroom for whoever else is there

/// A number in [0, bound) for this seed and counter (the finaliser of splitmix64).
uint64_t draw(uint64_t seed, uint64_t counter, uint64_t bound) {
  uint64_t z = seed + (counter + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return (z ^ (z >> 31)) % bound;
}

}  // namespace

/// Everything of one study on the GPU. Members are destroyed in reverse order: the stream last.
struct Session::Study {
  struct Stream {
    const gpu::Driver* driver = nullptr;
    CUstream handle = nullptr;
    Stream() = default;
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    ~Stream() {
      if (handle != nullptr) driver->cuStreamDestroy(handle);
    }
  };

  Study(const gpu::Driver& loaded, Setup&& request, CUstream_st* handle)
      : driver(loaded),
        setup(std::move(request)),
        buffers(driver, utility, handle),
        checker(driver, utility, buffers, timer, handle) {
    stream.driver = &loaded;
    stream.handle = handle;
  }

  const gpu::Driver& driver;
  Setup setup;
  Stream stream;
  Utility utility;
  Buffers buffers;
  Timer timer;
  Checker checker;
  uint64_t rematches = 0;
  bool first_trial = true;
  bool rested = true;  // before the trial at hand

  gpu::Trouble prepare(int64_t l2_bytes) {
    if (auto bad = utility.load(driver, setup.utility_cubin, stream.handle)) return bad;
    if (auto bad = buffers.build(setup)) return bad;
    if (auto bad = timer.prepare(driver, utility, buffers, stream.handle, l2_bytes, setup.policy.cold_l2)) return bad;
    return checker.prepare();
  }

  gpu::Trouble load(const Candidate& candidate, Loaded& loaded) {
    loaded.candidate = &candidate;
    if (auto bad = loaded.module.load(driver, candidate.cubin, candidate.lowered_name)) return bad;
    if (auto bad = loaded.module.prepare(candidate.geometry)) return bad;
    if (auto bad = buffers.fit_scratch(candidate.args)) return bad;
    if (auto bad = loaded.arguments.bind(driver, candidate, buffers)) return bad;
    return Arguments::fill_symbols(driver, loaded.module, buffers, stream.handle);
  }

  gpu::Trouble take_samples(Loaded& loaded, const TrialRequest& request, TrialReply& reply);
};

gpu::Trouble Session::Study::take_samples(Loaded& loaded, const TrialRequest& request, TrialReply& reply) {
  // The check run was the config's warm-up. Whether the GPU's is due was decided before it: that run was a short one.
  Series::Rules rules{.min_samples = setup.policy.min_samples,
                      .max_samples = setup.policy.max_samples,
                      .margins = setup.policy.margins,
                      .bound_us = request.bound_us,
                      .first_us = reply.first_us,
                      .rested = rested};
  if (std::exchange(first_trial, false)) rules.settle_limit_ms = kFirstSettleMs;
  Series series(rules);
  const Clock::time_point start = Clock::now();
  for (Series::Next next = Series::Next::more; next == Series::Next::more;) {
    double us = 0;
    if (auto bad = timer.sample(loaded, us)) return bad;
    next = series.add(us, ms_since(start));
    if (next == Series::Next::lost) reply.status = TrialStatus::early_stopped;
    if (next == Series::Next::unusable) {
      reply.status = TrialStatus::launch_error;
      reply.error = "the driver's event times are not usable: zero, negative or not a number again and again";
    }
  }
  reply.samples_us = series.samples_us();
  return {};
}

Session::Session() = default;
Session::~Session() = default;

void Session::warm_up() {
  const auto loaded = gpu::driver();
  if (!loaded) return;  // setup says why
  int count = 0;
  CUdevice device = 0;
  if ((*loaded)->cuDeviceGetCount(&count) != CUDA_SUCCESS || count != 1) return;
  if ((*loaded)->cuDeviceGet(&device, 0) == CUDA_SUCCESS) (void)gpu::use_primary_context(**loaded, device);
}

SetupReply Session::setup(const Setup& request) {
  const Clock::time_point start = Clock::now();
  study_.reset();
  SetupReply reply;
  const auto failed = [&reply](const std::string& why) {
    reply.error = why;
    return reply;
  };
  const auto loaded = gpu::driver();
  if (!loaded) return failed(loaded.error());
  const gpu::Driver& driver = **loaded;
  const Result<CUdevice> device = gpu::find_device(driver, request.device_uuid);
  if (!device) return failed(device.error());
  const Result<CUcontext> context = gpu::use_primary_context(driver, *device);
  if (!context) return failed(context.error());
  const Result<space::DeviceInfo> info = gpu::device_info(driver, *device);
  if (!info) return failed(info.error());

  size_t free_bytes = 0;
  size_t total_bytes = 0;
  if (auto done = driver.check("cuMemGetInfo", driver.cuMemGetInfo(&free_bytes, &total_bytes)); !done)
    return failed(done.error());
  reply.buffer_bytes =
      Buffers::planned_bytes(request.args) + Timer::planned_bytes(info->l2_bytes, request.policy.cold_l2);
  const auto usable = static_cast<int64_t>(kUsableShare * static_cast<double>(free_bytes));
  const int64_t limit = request.memory_limit_bytes > 0 ? request.memory_limit_bytes : usable;
  if (reply.buffer_bytes > limit) {
    reply.out_of_memory = true;
    return failed("measuring needs " + std::to_string(reply.buffer_bytes) +
                  " bytes of GPU memory (buffers, copies and the reference), " + std::to_string(free_bytes) +
                  " are free and " + std::to_string(limit) + " may be used");
  }
  CUstream stream = nullptr;
  if (auto done = driver.check("cuStreamCreate", driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)); !done)
    return failed(done.error());
  study_ = std::make_unique<Study>(driver, Setup(request), stream);
  if (const gpu::Trouble bad = study_->prepare(info->l2_bytes); bad) {
    study_.reset();
    lost_ = gpu::is_sticky(bad.code);
    reply.out_of_memory = bad.code == CUDA_ERROR_OUT_OF_MEMORY;
    return failed(bad.message);
  }
  reply.ok = true;
  reply.ready_ms = ms_since(start);
  return reply;
}

TrialReply Session::trial(const TrialRequest& request) {
  const Clock::time_point start = Clock::now();
  TrialReply reply;
  if (!study_) {
    reply.error = "a trial came before a setup that worked";
    return reply;
  }
  Study& study = *study_;
  study.rested = study.timer.rested();
  reply.status = TrialStatus::ok;
  Loaded loaded;
  Finding finding;
  gpu::Trouble bad = study.load(request.candidate, loaded);
  if (!bad) bad = loaded.module.facts(request.candidate.geometry, reply.facts);
  if (!bad && request.reference)
    bad = study.checker.make_reference(loaded, reply.first_us, finding);
  else if (!bad)
    bad = study.checker.run(loaded, reply.first_us, finding);
  if (!bad && finding.status == TrialStatus::ok) bad = study.take_samples(loaded, request, reply);
  if (!bad && finding.status == TrialStatus::ok) bad = study.checker.look_again(finding);
  if (finding.status != TrialStatus::ok) {
    reply.status = finding.status;
    reply.error = finding.error;
    lost_ = lost_ || finding.data_spoiled;
  }
  if (bad) {
    lost_ = lost_ || gpu::is_sticky(bad.code);
    reply.status = gpu::is_sticky(bad.code) ? TrialStatus::run_crash : TrialStatus::launch_error;
    reply.error = bad.message;
  }
  if (reply.status != TrialStatus::ok && reply.status != TrialStatus::early_stopped) reply.samples_us.clear();
  reply.context_lost = lost_;
  reply.wall_ms = ms_since(start);
  return reply;
}

RematchReply Session::rematch(const RematchRequest& request) {
  RematchReply reply;
  if (!study_) {
    reply.error = "a rematch came before a setup that worked";
    return reply;
  }
  Study& study = *study_;
  const size_t count = request.candidates.size();
  std::vector<Loaded> loaded(count);
  reply.samples_us.assign(count, {});
  const auto failed = [&](size_t index, const gpu::Trouble& bad) {
    lost_ = lost_ || gpu::is_sticky(bad.code);
    reply.error = "finalist " + std::to_string(index) + ": " + bad.message;
    reply.context_lost = lost_;
    return reply;
  };
  // Scratch grows to the largest first: the addresses that arguments hold must not move afterwards.
  for (size_t i = 0; i < count; ++i)
    if (auto bad = study.buffers.fit_scratch(request.candidates[i].args)) return failed(i, bad);
  for (size_t i = 0; i < count; ++i) {
    if (auto bad = study.load(request.candidates[i], loaded[i])) return failed(i, bad);
    double warm_up_us = 0;
    if (auto bad = study.timer.sample(loaded[i], warm_up_us)) return failed(i, bad);
  }
  const uint64_t seed = study.setup.seed + (++study.rematches << 32);
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  for (int round = 0; round < request.rounds; ++round) {
    for (size_t i = count; i > 1; --i)
      std::swap(order[i - 1], order[draw(seed, static_cast<uint64_t>(round) * count + i, i)]);
    for (const size_t i : order) {
      double us = 0;
      if (auto bad = study.timer.sample(loaded[i], us)) return failed(i, bad);
      reply.samples_us[i].push_back(us);
    }
  }
  reply.ok = true;
  return reply;
}

Result<space::KernelFacts> Session::facts(const FactsRequest& request) {
  if (!study_) return Failure{"a question for facts came before a setup that worked"};
  gpu::Module module;
  space::KernelFacts facts;
  gpu::Trouble bad = module.load(study_->driver, request.cubin, request.lowered_name);
  if (!bad) bad = module.prepare(request.geometry);
  if (!bad) bad = module.facts(request.geometry, facts);
  if (!bad) return facts;
  lost_ = lost_ || gpu::is_sticky(bad.code);
  return Failure{bad.message};
}

}  // namespace jitune::measure
