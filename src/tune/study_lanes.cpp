// A study's GPUs: how they are taken, how configs get to them and back, and what their loss means.
#include <algorithm>
#include <limits>
#include <utility>

#include "key/device_class.hpp"
#include "tune/study.hpp"

namespace jitune::tune {
namespace {

using measure::TrialStatus;

constexpr std::chrono::milliseconds kLookAround{50};  // for a cancelled study or a budget that is used up
constexpr int kLossesOfOneConfig = 2;                 // then it may be what the GPUs are lost by
constexpr double kUnlikeGpus = 1.05;  // GPUs of a class differ by a few percent, and not alike for all configs

}  // namespace

/// A lane for each GPU. A context takes longer than the first compilation, so the first one's worker starts at once.
Result<void> Study::open_lanes() {
  std::vector<const space::DeviceInfo*> devices{&instance_.device()};
  for (const auto& device : request_.more_devices) devices.push_back(&device);
  for (const auto* device : devices) {
    for (size_t i = 0; i < lanes_.size(); ++i)
      if (lanes_[i].uuid == device->uuid) return Failure{"GPU " + device->uuid + " is named twice"};
    if (const auto differences = key::class_differences(instance_.device(), *device); !differences.empty()) {
      std::string text;
      for (const auto& difference : differences) text += (text.empty() ? "" : ", ") + difference;
      return Failure{"GPU " + device->uuid + " (" + device->name + ") is not of the class of " +
                     instance_.device().uuid + " (" + instance_.device().name +
                     "), so its times say nothing of it: " + text};
    }
    auto measurer = services_.measurer(device->uuid);
    if (!measurer) return measurer.failure();
    lanes_.add(**measurer, device->uuid);
  }
  lanes_[0].measurer->warm_up();
  return {};
}

/// Takes the GPUs and has their buffers made. The first one must be had; others join when they can, while it measures:
/// the driver makes one context after the other, so that all at once would only keep the first one waiting (on two
/// H200s 286 ms instead of 154).
bool Study::begin_lanes(const measure::Setup& setup) {
  const auto wait_until = request_.budget.count() > 0 ? explore_until_ : Clock::now() + std::chrono::minutes(10);
  const auto started = Clock::now();
  auto first = std::make_shared<Measurer::Begun>();
  for (size_t i = 0; i < lanes_.size(); ++i) {
    auto begun = std::make_shared<Measurer::Begun>();
    auto work = [this, setup, wait_until, begun](Lane& lane) {
      measure::Setup own = setup;
      own.device_uuid = lane.uuid;
      lane.measurer->use_context(request_.context);
      *begun = lane.measurer->begin(own, wait_until, [this] { return give_up_.load(); });
      lane.held = begun->ok;
    };
    auto finish = [this, begun, first](Lane& lane) {
      if (lane.number == 0) *first = *begun;
      if (!begun->ok) {
        end_lane(lane, begun->error);
        return;
      }
      lane.state = Lane::State::begun;
      if (yardstick_) join(lane);
    };
    lanes_.start(i, std::move(work), std::move(finish), i == 0);
    if (i > 0) continue;
    lanes_.finish(0);
    outcome_.costs.wait_ms += ms_since(started);
    if (!first->ok) return fail(first->out_of_memory ? "out_of_memory" : "error", first->error);
  }
  return true;
}

/// A further GPU measures the yardstick: its time tells how this GPU's times compare with the first one's, and its
/// outputs are what others are compared with there, where there is no reference to trust.
void Study::join(Lane& lane) {
  auto reply = std::make_shared<measure::TrialReply>();
  auto work = [this, yardstick = yardstick_, reply, method = method_, launches = launches_, also = also_launches_,
               sort = sort_wrong_results_](Lane& there) {
    there.measurer->pin_method(method, launches, also);
    there.measurer->sort_wrong_results(sort);
    if (!trust(there)) return;
    constexpr double kNoBound = std::numeric_limits<double>::infinity();
    *reply = trusted_reference_ ? there.measurer->trial(*yardstick, kNoBound, {}, kFirstRunLimit)
                                : there.measurer->set_reference(*yardstick, kFirstRunLimit);
  };
  auto finish = [this, reply](Lane& there) {
    const auto summary = measure::summarise(reply->samples_us);
    if (!there.measurer->usable())
      end_lane(there, there.measurer->trouble());
    else if (reply->status != TrialStatus::ok || summary.samples == 0)
      end_lane(there, "the reference config, which ran on another one, fails: " + reply->error);
    if (there.state == Lane::State::ended) return;
    there.offset = summary.median_us / yardstick_us_;
    set_anchor(there, yardstick_, summary.median_us, yardstick_us_);
    there.state = Lane::State::joined;
    ++outcome_.devices;
  };
  lanes_.start(lane.number, std::move(work), std::move(finish), false);
}

/// On the lane's thread: makes sure that its worker has the definition's own reference, if there is one. Read only of
/// what does not change once trials run.
bool Study::trust(Lane& lane) const {
  if (!trusted_reference_ || lane.trusted) return true;
  lane.trusted = trusted_outputs_
                     ? lane.measurer->set_reference(trusted_outputs_).ok()
                     : lane.measurer->set_reference(*trusted_kernel_, kFirstRunLimit).status == TrialStatus::ok;
  return lane.trusted;
}

/// Something on an idle lane's worker, waited for.
void Study::on_lane(Lane& lane, const std::function<void(Measurer&)>& work) {
  lanes_.start(
      lane.number, [&work](Lane& there) { work(*there.measurer); }, [](Lane&) {});
  lanes_.finish(lane.number);
}

/// The first config that ran and was right: now the other GPUs can be told what is right, and how long it takes.
void Study::found_yardstick(Lane& lane, const Good& good, const measure::TrialReply& reply, bool is_default) {
  yardstick_ = good.candidate;
  yardstick_us_ = good.median_us;
  method_ = reply.method;
  sort_wrong_results_ = !is_default && !trusted_reference_;
  lane.measurer->sort_wrong_results(sort_wrong_results_);
  lane.state = Lane::State::joined;
  ++outcome_.devices;
  for (size_t i = 0; i < lanes_.size(); ++i)
    if (lanes_.is_idle(i) && lanes_[i].state == Lane::State::begun) join(lanes_[i]);
}

void Study::set_anchor(Lane& lane, std::shared_ptr<const measure::Candidate> candidate, double raw_us, double us) {
  lane.anchor = std::move(candidate);
  lane.anchor_us = us;
  lane.drift.set_anchor(raw_us);
  lane.trials_since_anchor = 0;
  lane.measured_ms = 0;
}

bool Study::lanes_left() {
  for (size_t i = 0; i < lanes_.size(); ++i)
    if (lanes_[i].state != Lane::State::ended) return true;
  return false;
}

/// A lane that could take a trial now; null when there is none. Without a yardstick one alone is asked.
Lane* Study::free_lane() {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    if (lane.state == Lane::State::ended) continue;
    if (!yardstick_) return lanes_.is_idle(i) && lane.state == Lane::State::begun ? &lane : nullptr;
    if (lane.state == Lane::State::joined && lanes_.is_idle(i)) return &lane;
  }
  return nullptr;
}

/// Where finalists are told apart: the first GPU that is left. Asked while no trial runs.
Lane* Study::judge() {
  for (size_t i = 0; i < lanes_.size(); ++i)
    if (lanes_[i].state == Lane::State::joined) return &lanes_[i];
  return nullptr;
}

/// One GPU is lost, or was never to be had. The study ends with the last one.
void Study::end_lane(Lane& lane, const std::string& why) {
  lane.state = Lane::State::ended;
  lost_device_ |= lane.measurer->device_lost();
  if (lanes_left()) {
    services_.log().warning("device_left_out", instance_.model().name(),
                            "the study goes on without GPU " + lane.uuid + ": " + why, request_.key.sha256 + lane.uuid);
  } else if (outcome_.outcome.empty()) {
    outcome_.outcome = "error";
    outcome_.note = why;
  }
}

/// What a config is held against while it is sampled: the best that ran on the same GPU. One from another GPU counts
/// with an allowance, for the yardstick tells how fast a GPU is at the yardstick.
double Study::bound_on(const Lane& lane) const {
  return lane.anchor ? std::min(lane.anchor_us, kUnlikeGpus * best_us_) : best_us_;
}

/// Sends a config to an idle lane; note_flight follows when it is back.
void Study::start_trial(Lane& lane, Item item) {
  auto flight = std::make_shared<Flight>();
  flight->item = std::move(item);
  flight->bound_us = bound_on(lane);
  flight->as_reference = yardstick_ == nullptr && !trusted_reference_;
  flight->limit = run_limit();
  if (yardstick_) flight->margins = early_stop_->margins(best_samples_);
  ++in_flight_;
  lanes_.start(
      lane.number, [this, flight](Lane& there) { fly(there, *flight); },
      [this, flight](Lane& there) {
        --in_flight_;
        note_flight(there, *flight);
      });
}

/// On the lane's thread: nothing of the study is touched but what never changes.
void Study::fly(Lane& lane, Flight& flight) const {
  follow_drift(lane, flight);
  if (!trust(lane)) {
    flight.error = "the reference, which ran on another GPU, fails on this one";
    flight.reply.not_run = !lane.measurer->usable();
    return;
  }
  const auto started = Clock::now();
  auto candidate = make_candidate(flight.item.compiled, lane.measurer);
  if (!candidate) {
    flight.error = candidate.error();
    flight.reply.not_run = !lane.measurer->usable();
    return;
  }
  flight.candidate = std::make_shared<const measure::Candidate>(std::move(*candidate));
  flight.scale = lane.scale();
  const double bound = flight.bound_us > 0 ? flight.bound_us * flight.scale : std::numeric_limits<double>::infinity();
  flight.reply = flight.as_reference
                     ? lane.measurer->set_reference(*flight.candidate, flight.limit)
                     : lane.measurer->trial(*flight.candidate, bound, std::move(flight.margins), flight.limit);
  lane.measured_ms += ms_since(started);
}

void Study::note_flight(Lane& lane, Flight& flight) {
  const bool usable = lane.measurer->usable();
  if (!usable) end_lane(lane, lane.measurer->trouble());
  for (const auto* reply : {flight.anchor_reply ? &*flight.anchor_reply : nullptr, &flight.reply})
    if (reply != nullptr) {
      note_costs(*reply);
      used_gpu(*reply);
    }
  if (flight.reply.not_run) {
    requeue(std::move(flight.item));
    return;
  }
  if (!flight.candidate) {
    auto row = row_of(flight.item.compiled);
    row.status = measure::to_string(TrialStatus::launch_error);
    row.error = flight.error;
    add_row(std::move(row));
    return;
  }
  const auto status = flight.reply.status;
  if (usable && (status == TrialStatus::run_timeout || status == TrialStatus::run_crash))
    (void)services_.store().record_failure(flight.item.compiled.job.build.sha256, request_.key.problem,
                                           measure::to_string(status), flight.reply.error);
  note_reply(lane, flight);
}

/// A config that was running where a GPU was lost is tried on another one.
void Study::requeue(Item item) {
  if (++item.losses < kLossesOfOneConfig)
    queue_.push_front(std::move(item));
  else if (lanes_left())
    services_.log().warning("config_loses_gpus", instance_.model().name(),
                            space::short_text(item.compiled.job.config) + " was running on " +
                                std::to_string(item.losses) + " GPUs when they were lost and is not tried again",
                            request_.key.sha256);
}

/// Measures one config on this lane, and waits for it.
void Study::run_on(Lane& lane, Compiled compiled) {
  if (refused(compiled)) return;
  start_trial(lane, {std::move(compiled)});
  lanes_.finish(lane.number);
  write_rows();
}

/// Waits for what is in flight; `everything`: and has measured what is queued.
void Study::drain(bool everything) {
  while (in_flight_ > 0 || (everything && !queue_.empty())) {
    if (was_cancelled() || !lanes_left()) everything = false;
    Lane* lane = everything && !queue_.empty() ? free_lane() : nullptr;
    if (lane != nullptr) {
      Item next = std::move(queue_.front());
      queue_.pop_front();
      if (!refused(next.compiled)) start_trial(*lane, std::move(next));
    } else {
      write_rows();
      lanes_.wait(kLookAround);
      lanes_.collect();
    }
  }
  write_rows();
}

/// One step of exploring: something is measured, or has been. False: there is nothing left to do. A GPU that is free
/// gets its next config before anything else is done: writing rows and asking the search go on while it measures.
bool Study::step() {
  Lane* lane = free_lane();
  if (lane != nullptr && !queue_.empty()) {
    Item next = std::move(queue_.front());
    queue_.pop_front();
    start_trial(*lane, std::move(next));
    return true;
  }
  if (lane != nullptr)
    if (auto compiled = rest_->take()) {
      handle(*lane, std::move(*compiled));
      return true;
    }
  write_rows();
  refill();
  if (lane == nullptr) {
    lanes_.wait(kLookAround);
    return true;
  }
  if (auto compiled = rest_->next(std::min(explore_until_, Clock::now() + kLookAround))) {
    handle(*lane, std::move(*compiled));
    return true;
  }
  if (rest_->pending() > 0) return true;  // a lane is done, or somebody may have cancelled, or the time is up
  if (in_flight_ == 0) return !space_used_up_;
  lanes_.wait(kLookAround);
  return true;
}

}  // namespace jitune::tune
