#include "tune/measurer.hpp"

#include <algorithm>
#include <future>
#include <utility>

#include "gpu/driver.hpp"
#include "measure/serve.hpp"
#include "tune/device_lock.hpp"

namespace jitune::tune {
namespace {

constexpr std::chrono::milliseconds kSetupLimit{60000};  // context, allocations, copies of the caller's data
constexpr std::chrono::milliseconds kLookForCancel{50};
constexpr std::chrono::milliseconds kFactsLimit{10000};
constexpr std::chrono::milliseconds kReferenceLimit{30000};  // nothing is known of the kernel's time yet
// A context holds some 0.5 GiB on an H200; as much is left to whoever else uses the GPU.
constexpr int64_t kMemoryForSpare = int64_t{2} << 30;

measure::TrialReply failed(measure::TrialStatus status, std::string error, double wall_ms) {
  measure::TrialReply reply;
  reply.status = status;
  reply.error = std::move(error);
  reply.wall_ms = wall_ms;
  return reply;
}

/// Of a config that no worker could be found for.
measure::TrialReply not_run(const std::string& why) {
  measure::TrialReply reply = failed(measure::TrialStatus::run_crash, why, 0);
  reply.not_run = true;
  return reply;
}

}  // namespace

Measurer::Measurer(Options options) : options_(std::move(options)), pool_(make_pool()) {}

std::unique_ptr<pool::Pool> Measurer::make_pool() const {
  pool::PoolOptions pool;
  pool.program.path = options_.worker;
  pool.program.args = {"measure", "--device=" + options_.device_uuid};
  pool.program.environment = pool::worker_environment(true);
  pool.width = 1;
  pool.max_requests_per_worker = 1 << 30;      // it must live through a study
  pool.max_resident_bytes = int64_t{1} << 50;  // mapped GPU memory may count as resident
  pool.log = options_.log;
  return std::make_unique<pool::Pool>(std::move(pool));
}

Measurer::~Measurer() = default;

/// As Pool::call, but a study that was cancelled does not wait for the answer. One that is long in coming may be that
/// of a kernel that never ends: nothing is timed meanwhile, so that a spare worker can make its context.
pool::Reply Measurer::call(Json request, std::chrono::milliseconds limit) {
  if (options_.in_process) return call_here(request);
  auto promise = std::make_shared<std::promise<pool::Reply>>();
  auto answer = promise->get_future();
  const uint64_t id =
      pool_->submit(std::move(request), limit, [promise](pool::Reply reply) { promise->set_value(std::move(reply)); });
  const auto suspicious = Clock::now() + limit / 2;
  while (answer.wait_for(kLookForCancel) != std::future_status::ready) {
    if (was_cancelled()) {
      pool_->cancel(id);
      break;
    }
    if (ready_ && Clock::now() >= suspicious) prepare_spare();
  }
  return answer.get();
}

void Measurer::prepare_spare() {
  if (has_spare_ || free_bytes_ < kMemoryForSpare) return;
  if (!spare_) spare_ = make_pool();
  spare_->warm_up(1);
  has_spare_ = true;
}

/// The worker is dead and gone: the spare one takes its place, if there is one.
void Measurer::use_spare() {
  if (!has_spare_) return;
  const std::lock_guard lock(pool_mutex_);
  pool_.swap(spare_);
  has_spare_ = false;
  if (options_.log != nullptr) options_.log->debug("spare_worker", "", "a spare measuring worker takes over");
}

/// As a worker would answer. Nothing bounds it: a kernel that never ends never returns.
pool::Reply Measurer::call_here(const Json& request) {
  pool::Reply reply;
  const auto started = Clock::now();
  const auto driver = gpu::driver();
  if (driver && context_ != nullptr) (void)(*driver)->cuCtxSetCurrent(static_cast<CUcontext>(context_));
  if (!session_) session_ = std::make_unique<measure::Session>(true);
  reply.message = measure::answer(*session_, request);
  reply.outcome = pool::Outcome::ok;
  reply.wall_ms = ms_since(started);
  return reply;
}

/// False, with the reason as trouble(): there is nothing to go on with. In process a lost context is the application's.
bool Measurer::restart() {
  if (!options_.in_process) {
    if (pool_->restart()) {
      use_spare();
      return true;
    }
    setup_error_ = "a killed measuring worker is stuck in the driver";
    return false;
  }
  const bool lost = session_ && session_->lost();
  session_.reset();
  if (lost) setup_error_ = "the application's context is lost: a config failed in it (isolation = in_process)";
  return !lost;
}

void Measurer::warm_up() {
  if (!options_.in_process) pool_->warm_up(1);
}

Measurer::Begun Measurer::begin(const measure::Setup& setup, Clock::time_point deadline,
                                std::function<bool()> cancelled) {
  Begun begun;
  while (!turn_.try_acquire_until(std::min(deadline, Clock::now() + kLookForCancel)))
    if (Clock::now() >= deadline || (cancelled && cancelled())) {
      begun.error = "another study of this process is measuring on this GPU";
      return begun;
    }
  in_study_ = true;
  cancelled_ = std::move(cancelled);
  auto lock = lock_device(options_.device_uuid, deadline, [this] { return was_cancelled(); });
  if (!lock) {
    let_go();
    begun.error = lock.error();
    return begun;
  }
  device_lock_ = std::move(*lock);
  setup_ = setup;
  reference_.reset();
  host_outputs_.reset();
  ready_ = false;
  usable_ = true;
  device_lost_ = false;
  sort_wrong_results_ = false;
  method_pinned_ = false;
  setup_error_.clear();
  const pool::Reply reply = call(measure::to_json(setup_), kSetupLimit);
  if (reply.outcome != pool::Outcome::ok) {
    begun.error = "the measuring worker failed while it was set up: " + reply.detail;
    if (!reply.stderr_tail.empty()) begun.error += "\nlast words:\n" + reply.stderr_tail;
    end();
    return begun;
  }
  const auto answer = measure::setup_reply_from_json(reply.message);
  if (!answer || !answer->ok) {
    begun.error = answer ? answer->error : answer.error();
    begun.out_of_memory = answer && answer->out_of_memory;
    end();
    return begun;
  }
  free_bytes_ = answer->free_bytes;
  ready_ = true;
  begun.ok = true;
  return begun;
}

/// Brings a fresh worker to where the dead one was: buffers, and the outputs that others are compared with.
bool Measurer::ensure_ready() {
  if (was_cancelled()) {
    setup_error_ = "the study was cancelled";
    return false;
  }
  if (ready_) return true;
  if (!usable_) return false;
  const pool::Reply reply = call(measure::to_json(setup_), kSetupLimit);
  auto answer = reply.outcome == pool::Outcome::ok ? measure::setup_reply_from_json(reply.message)
                                                   : Result<measure::SetupReply>(Failure{reply.detail});
  if (!answer || !answer->ok) {
    usable_ = false;
    device_lost_ = !(answer && answer->out_of_memory);
    setup_error_ = "a fresh measuring worker could not be set up: " + (answer ? answer->error : answer.error());
    return false;
  }
  ready_ = true;
  if (host_outputs_) {
    auto sent = send_host_outputs();
    if (sent) return true;
    usable_ = false;
    setup_error_ = "the host's reference could not be given to a fresh worker: " + sent.error();
    return false;
  }
  if (!reference_) return true;
  measure::TrialRequest request;
  request.candidate = *reference_;
  request.reference = true;
  const auto again = run(request, kReferenceLimit);
  if (again.status == measure::TrialStatus::ok) return true;
  usable_ = false;
  setup_error_ = "the reference ran before but failed on a fresh worker: " + again.error;
  return false;
}

/// The next candidate must not share the GPU with a kernel that still runs: waits until the process is gone.
void Measurer::replace_worker() {
  ready_ = false;
  usable_ = restart() && usable_;
}

measure::TrialReply Measurer::run(const measure::TrialRequest& request, std::chrono::milliseconds limit) {
  const pool::Reply reply = call(measure::to_json(request), limit);
  if (reply.outcome == pool::Outcome::ok) {
    auto answer = measure::trial_reply_from_json(reply.message);
    if (answer) {
      if (answer->context_lost) replace_worker();
      if (answer->device_lost) {
        usable_ = false;
        device_lost_ = true;
        setup_error_ = "the GPU failed: " + answer->error;
        answer->not_run = true;  // it says nothing of the config
      }
      return std::move(*answer);
    }
    replace_worker();
    return failed(measure::TrialStatus::run_crash, "the worker's answer makes no sense: " + answer.error(),
                  reply.wall_ms);
  }
  if (reply.outcome == pool::Outcome::cancelled) {
    ready_ = false;
    return not_run("the study was cancelled");
  }
  replace_worker();
  const auto status =
      reply.outcome == pool::Outcome::timeout ? measure::TrialStatus::run_timeout : measure::TrialStatus::run_crash;
  return failed(status, reply.detail, reply.wall_ms);
}

measure::TrialReply Measurer::set_reference(const measure::Candidate& candidate, std::chrono::milliseconds limit) {
  reference_.reset();
  if (!ensure_ready()) return not_run(setup_error_);
  measure::TrialRequest request;
  request.candidate = candidate;
  request.reference = true;
  pin(request);
  auto reply = run(request, limit);
  if (reply.status == measure::TrialStatus::ok) reference_ = candidate;
  if (!reply.samples_us.empty() && candidate.order.empty())
    pin_method(reply.method, reply.launches, reply.also_launches);
  return reply;
}

Result<void> Measurer::move_data(const measure::HostDataRequest& request) {
  const pool::Reply reply = call(measure::to_json(request), kSetupLimit);
  if (reply.outcome != pool::Outcome::ok) {
    replace_worker();
    return Failure{reply.detail};
  }
  auto answer = measure::host_data_reply_from_json(reply.message);
  if (!answer) return answer.failure();
  if (answer->context_lost) replace_worker();
  if (!answer->ok) return Failure{answer->error};
  return {};
}

Result<void> Measurer::read_inputs(const SharedMemory& memory, const std::vector<int64_t>& offsets, int problem) {
  if (!ensure_ready()) return Failure{setup_error_};
  return move_data({measure::HostDataRequest::What::inputs, memory.name(), offsets, 0, 0, problem});
}

Result<void> Measurer::send_host_outputs() {
  using What = measure::HostDataRequest::What;
  int problem = 0;
  for (const HostOutputs& outputs : *host_outputs_) {
    if (auto sent = move_data({What::outputs, outputs.first.name(), outputs.offsets, 0, 0, problem}); !sent)
      return sent;
    if (outputs.second)
      if (auto sent = move_data({What::outputs_again, outputs.second->name(), outputs.offsets, outputs.first_poison,
                                 outputs.second_poison, problem});
          !sent)
        return sent;
    ++problem;
  }
  return {};
}

Result<void> Measurer::set_reference(std::shared_ptr<const AllHostOutputs> outputs) {
  reference_.reset();
  host_outputs_.reset();
  if (!ensure_ready()) return Failure{setup_error_};
  host_outputs_ = std::move(outputs);
  return send_host_outputs();
}

/// A fresh worker must go on as the first one began, or its times would not be comparable.
void Measurer::pin_method(measure::Policy::Method method, int launches, const std::vector<int>& also) {
  setup_.policy.method = method;
  setup_.launches = launches;
  for (size_t i = 0; i < std::min(also.size(), setup_.also.size()); ++i) setup_.also[i].launches = also[i];
  method_pinned_ = true;
}

/// A worker that has taken no samples yet is to take them as is decided.
void Measurer::pin(measure::TrialRequest& request) const {
  if (!method_pinned_) return;
  request.method = setup_.policy.method;
  request.launches = setup_.launches;
  for (const auto& problem : setup_.also) request.also_launches.push_back(problem.launches);
}

measure::TrialReply Measurer::trial(const measure::Candidate& candidate, double bound_us, std::vector<double> margins,
                                    std::chrono::milliseconds limit) {
  if (!ensure_ready()) return not_run(setup_error_);
  measure::TrialRequest request{candidate, false, sort_wrong_results_, bound_us, std::move(margins)};
  pin(request);
  auto reply = run(request, limit);
  if (!method_pinned_ && reply.status == measure::TrialStatus::ok && !reply.samples_us.empty())
    pin_method(reply.method, reply.launches, reply.also_launches);
  return reply;
}

measure::RematchReply Measurer::rematch(const measure::RematchRequest& request, std::chrono::milliseconds limit) {
  measure::RematchReply failed_reply;
  if (!ensure_ready()) {
    failed_reply.error = setup_error_;
    return failed_reply;
  }
  const pool::Reply reply = call(measure::to_json(request), limit);
  if (reply.outcome == pool::Outcome::ok) {
    auto answer = measure::rematch_reply_from_json(reply.message);
    if (answer) {
      if (answer->context_lost) replace_worker();
      return std::move(*answer);
    }
    failed_reply.error = answer.error();
  } else {
    failed_reply.error = reply.detail;
  }
  replace_worker();
  return failed_reply;
}

Result<space::KernelFacts> Measurer::facts(const measure::FactsRequest& request) {
  if (!ensure_ready()) return Failure{setup_error_};
  const pool::Reply reply = call(measure::to_json(request), kFactsLimit);
  if (reply.outcome == pool::Outcome::ok) return measure::facts_from_json(reply.message);
  replace_worker();
  return Failure{reply.detail};
}

void Measurer::end() {
  if (!in_study_) return;
  if (has_spare_) (void)spare_->restart();
  has_spare_ = false;
  // The process ends with its buffers: the application gets its GPU memory back at once.
  if (!options_.keep_worker || options_.in_process) (void)restart();
  ready_ = false;
  reference_.reset();
  host_outputs_.reset();
  setup_ = {};
  cancelled_ = {};
  device_lock_.reset();
  let_go();
}

void Measurer::let_go() {
  in_study_ = false;
  turn_.release();
}

}  // namespace jitune::tune
