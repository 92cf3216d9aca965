#include "measure/session.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/clock.hpp"
#include "measure/check.hpp"

namespace jitune::measure {
namespace {

constexpr double kHopeless = 6;       // a first launch so much slower than the best is not worth a warm-up
constexpr double kUsableShare = 0.9;  // of the GPU's free memory; the rest is headroom for whoever else is there

/// A number in [0, bound) for this seed and counter (the finaliser of splitmix64).
uint64_t draw(uint64_t seed, uint64_t counter, uint64_t bound) {
  uint64_t z = seed + (counter + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return (z ^ (z >> 31)) % bound;
}

bool is_time(double us) {
  return us > 0 && us < std::numeric_limits<double>::infinity();
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
  const Policy& policy = setup.policy;
  if (!(reply.first_us > kHopeless * request.bound_us))
    if (auto bad = timer.warm_up(loaded)) return bad;
  int dropped = 0;
  while (!is_settled(reply.samples_us, policy.min_samples, policy.max_samples)) {
    double us = 0;
    if (auto bad = timer.sample(loaded, us)) return bad;
    if (!is_time(us)) {
      if (++dropped <= policy.max_samples) continue;
      reply.status = TrialStatus::launch_error;
      reply.error = "the driver's event times are not usable (zero or negative " + std::to_string(dropped) + " times)";
      return {};
    }
    reply.samples_us.push_back(us);
    if (has_lost(reply.samples_us, request.bound_us, policy.margins)) {
      reply.status = TrialStatus::early_stopped;
      return {};
    }
  }
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
    if (auto bad = study.timer.warm_up(loaded[i])) return failed(i, bad);
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
