#include "measure/session.hpp"

#include <utility>

#include "base/clock.hpp"
#include "base/shared_memory.hpp"
#include "measure/several.hpp"
#include "measure/workbench.hpp"

namespace jitune::measure {
namespace {

/// The application's own context, which must be of this GPU.
Result<CUcontext> context_of(const gpu::Driver& driver, CUdevice device) {
  CUcontext context = nullptr;
  CUdevice current = 0;
  if (driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr)
    return Failure{"no context is current, which measuring in the application's process needs"};
  if (driver.cuCtxGetDevice(&current) != CUDA_SUCCESS || current != device)
    return Failure{"the current context is of another GPU"};
  return context;
}

/// A setup for each problem of a study. One that has measured before goes on as it did.
std::vector<Setup> setups_of(const Setup& request) {
  using Method = Policy::Method;
  std::vector<Setup> setups{request};
  for (const Setup::Problem& problem : request.also) {
    Setup& setup = setups.emplace_back(request);
    setup.args = problem.args;
    setup.data.clear();  // a caller's data are of another problem
    setup.launches = problem.launches;
    if (problem.launches > 0 && request.policy.method != Method::cupti)
      setup.policy.method = problem.launches > 1 ? Method::graph : Method::stream;
  }
  return setups;
}

constexpr double kUsableShare = 0.9;  // of the GPU's free memory; the rest is headroom for whoever else is there

}  // namespace

Session::Session(bool in_process) : in_process_(in_process) {}
Session::~Session() = default;

void Session::warm_up(const std::string& device_uuid) {
  const auto loaded = gpu::driver();
  if (!loaded) return;  // setup says why
  int count = 0;
  CUdevice device = 0;
  if (!device_uuid.empty()) {
    const auto named = gpu::find_device(**loaded, device_uuid);
    if (!named) return;
    device = *named;
  } else if ((*loaded)->cuDeviceGetCount(&count) != CUDA_SUCCESS || count != 1 ||
             (*loaded)->cuDeviceGet(&device, 0) != CUDA_SUCCESS) {
    return;
  }
  (void)gpu::use_primary_context(**loaded, device);
}

SetupReply Session::setup(const Setup& request) {
  const Clock::time_point start = Clock::now();
  study_.clear();
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
  const gpu::Sharing sharing = gpu::sharing(driver, *device);
  if (sharing.mps)
    return failed(
        "the GPU's contexts go through MPS, where a fault of a config would reach every other client: tuning is off; "
        "stop the MPS daemon (echo quit | nvidia-cuda-mps-control) or tune where there is none");
  for (const DataSource& source : request.data)
    if (source.kind == DataSource::Kind::device && !in_process_)
      return failed("an address of another process was given as data");
  const Result<CUcontext> context =
      in_process_ ? context_of(driver, *device) : gpu::use_primary_context(driver, *device);
  if (!context && (sharing.exclusive || sharing.prohibited))
    return failed(context.error() +
                  (sharing.prohibited ? "; the GPU is in prohibited compute mode (nvidia-smi -c DEFAULT allows it)"
                                      : "; the GPU is in exclusive compute mode and another process holds it: tuning "
                                        "is off. Allow a second context (nvidia-smi -c DEFAULT), or run jit-prewarm "
                                        "while nothing else uses the GPU"));
  if (!context) return failed(context.error());
  const Result<space::DeviceInfo> info = gpu::device_info(driver, *device);
  if (!info) return failed(info.error());

  size_t free_bytes = 0;
  size_t total_bytes = 0;
  if (auto done = driver.check("cuMemGetInfo", driver.cuMemGetInfo(&free_bytes, &total_bytes)); !done)
    return failed(done.error());
  const auto setups = setups_of(request);
  for (const Setup& each : setups)
    reply.buffer_bytes += Buffers::planned_bytes(each.args) + Timer::planned_bytes(info->l2_bytes, each.policy.cold_l2);
  const auto usable = static_cast<int64_t>(kUsableShare * static_cast<double>(free_bytes));
  const int64_t limit = request.memory_limit_bytes > 0 ? request.memory_limit_bytes : usable;
  if (reply.buffer_bytes > limit) {
    reply.out_of_memory = true;
    return failed("measuring needs " + std::to_string(reply.buffer_bytes) +
                  " bytes of GPU memory (buffers, copies and the reference), " + std::to_string(free_bytes) +
                  " are free and " + std::to_string(limit) + " may be used");
  }
  const int64_t left = (limit - reply.buffer_bytes) / static_cast<int64_t>(setups.size());
  for (const Setup& each : setups) {
    CUstream stream = nullptr;
    if (auto done = driver.check("cuStreamCreate", driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)); !done) {
      study_.clear();
      return failed(done.error());
    }
    study_.push_back(std::make_unique<Workbench>(driver, Setup(each), stream, left));
    if (const gpu::Trouble bad = study_.back()->prepare(info->l2_bytes, study_.size() > 1 ? study_[0].get() : nullptr);
        bad) {
      study_.clear();
      lost_ = gpu::is_sticky(bad.code);
      reply.out_of_memory = bad.code == CUDA_ERROR_OUT_OF_MEMORY;
      return failed(bad.message);
    }
  }
  weights_ = {request.weight};
  texts_ = {request.text};
  study_[0]->set_weight(request.weight);
  for (size_t i = 0; i < request.also.size(); ++i) {
    weights_.push_back(request.also[i].weight);
    texts_.push_back(request.also[i].text);
    study_[0]->add_problem(*study_[i + 1], request.also[i].weight);
  }
  reply.ok = true;
  reply.free_bytes = static_cast<int64_t>(free_bytes) - reply.buffer_bytes;
  reply.ready_ms = ms_since(start);
  return reply;
}

TrialReply Session::trial(const TrialRequest& request) {
  TrialReply reply;
  if (study_.empty() || request.candidate.also.size() + 1 != study_.size()) {
    reply.error = study_.empty() ? "a trial came before a setup that worked"
                                 : "the candidate is for another number of problems than the setup";
    return reply;
  }
  if (study_.size() == 1) return trial_at(0, request);
  SeveralProblems several(weights_, texts_);
  for (size_t i = 0; i < study_.size(); ++i) {
    TrialRequest part = request;
    part.bound_us = several.next_bound_us(request.bound_us);
    if (i > 0) part.candidate = request.candidate.also[i - 1];
    if (i > 0 && request.launches > 0) {
      part.launches = i <= request.also_launches.size() ? request.also_launches[i - 1] : 0;
      if (part.method != Policy::Method::cupti)
        part.method = part.launches > 1 ? Policy::Method::graph : Policy::Method::stream;
    }
    if (!several.add(trial_at(i, part))) break;
  }
  return std::move(several).result();
}

TrialReply Session::trial_at(size_t problem, const TrialRequest& request) {
  const Clock::time_point start = Clock::now();
  TrialReply reply;
  reply.status = TrialStatus::ok;
  Finding finding;
  const gpu::Trouble bad = study_[problem]->trial(request, reply, finding);
  if (finding.status != TrialStatus::ok) {
    reply.status = finding.status;
    reply.error = finding.error;
    reply.group = finding.group;
    lost_ = lost_ || finding.data_spoiled;
  }
  if (bad) {
    lost_ = lost_ || gpu::is_sticky(bad.code);
    reply.device_lost = gpu::is_device_lost(bad.code);
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
  if (study_.empty()) {
    reply.error = "a rematch came before a setup that worked";
    return reply;
  }
  size_t failed = 0;
  if (const gpu::Trouble bad = study_[0]->rematch(request, reply, failed); bad) {
    lost_ = lost_ || gpu::is_sticky(bad.code);
    reply.error = "finalist " + std::to_string(failed) + ": " + bad.message;
    reply.context_lost = lost_;
    return reply;
  }
  reply.ok = true;
  return reply;
}

HostDataReply Session::host_data(const HostDataRequest& request) {
  HostDataReply reply;
  if (request.problem < 0 || static_cast<size_t>(request.problem) >= study_.size()) {
    reply.error = "a move of data came before a setup that worked";
    return reply;
  }
  auto memory = SharedMemory::open(request.shm_name);
  if (!memory) {
    reply.error = memory.error();
    return reply;
  }
  const gpu::Trouble bad = study_[static_cast<size_t>(request.problem)]->host_data(request, *memory);
  lost_ = lost_ || (bad && gpu::is_sticky(bad.code));
  reply.ok = !bad;
  reply.error = bad.message;
  reply.context_lost = lost_;
  return reply;
}

Result<space::KernelFacts> Session::facts(const FactsRequest& request) {
  if (study_.empty()) return Failure{"a question for facts came before a setup that worked"};
  gpu::Module module;
  space::KernelFacts facts;
  gpu::Trouble bad = module.load(study_[0]->driver(), request.cubin, request.lowered_name);
  if (!bad) bad = module.prepare(request.geometry);
  if (!bad) bad = module.facts(request.geometry, facts);
  if (!bad) return facts;
  lost_ = lost_ || gpu::is_sticky(bad.code);
  return Failure{bad.message};
}

}  // namespace jitune::measure
