// Who gets the next request: an idle worker, a new one, or nobody yet, for want of a slot, of room or of patience.
#include <algorithm>
#include <utility>

#include "pool/engine.hpp"

namespace jitune::pool {
namespace {

using boost::system::error_code;

constexpr int kSpawnAttempts = 6;

}  // namespace

void Engine::pump() {
  if (ending_ || lost_) return;
  if (!intact()) return lose();
  slot_missing_ = false;
  shed();
  if (const auto why = policy_.off(Clock::now())) {
    wanted_ = 0;
    fail_queue(policy_.refusal(), *why);
  } else if (count([](const auto& worker) { return worker->is_stuck(); }) >= static_cast<size_t>(width())) {
    fail_queue(Outcome::no_worker, "every worker was killed and is still there (stuck in the driver?)");
  } else {
    while (serve_next()) {
    }
  }
  rest_slots();
}

template <class Is>
size_t Engine::count(Is&& is) const {
  return static_cast<size_t>(std::count_if(workers_.begin(), workers_.end(), is));
}

/// Gives the next request to a worker, or starts a worker. False when there is nothing more to do for now.
bool Engine::serve_next() {
  const auto busy = count([](const auto& worker) { return worker->is_busy(); });
  if (alone_ != 0 && busy > 0) return false;
  alone_ = 0;
  if (queue_.empty()) return warm_one();
  const Placement placement = queue_.front().options.placement;
  const bool alone = placement == Placement::alone;
  if (alone && !make_room()) return false;
  if (busy < static_cast<size_t>(width())) {
    // One that holds a slot first: it was started for this.
    std::shared_ptr<Worker> chosen;
    for (const auto& worker : workers_) {
      if (!worker->is_idle() || (placement != Placement::any && !worker->is_fresh()) || worker->has_ended()) continue;
      if (!chosen || worker->slot != Slots::kNone) chosen = worker;
    }
    if (chosen) return give_next(*chosen);
  }
  const auto starting = count([](const auto& worker) { return worker->is_starting(); });
  if (alone && starting > 0) return false;
  if (starting < queue_.size() && workers_.size() < static_cast<size_t>(width())) return start_next();
  if (placement != Placement::any && starting == 0 && workers_.size() >= static_cast<size_t>(width())) {
    // Nobody may be left for it in a full pool, unless one that has served others makes room.
    for (const auto& worker : workers_)
      if (worker->is_idle()) {
        worker->retire();
        break;
      }
  }
  return false;
}

/// Workers that were asked for ahead of requests. Not while others need the slots: idle workers cost memory.
bool Engine::warm_one() {
  if (workers_.size() >= wanted_) return false;
  const bool started = start_next();
  if (std::exchange(slot_missing_, false)) wanted_ = 0;
  return started;
}

/// Sends every idle worker but one fresh one away. True when nobody else is left, those that can't be killed apart.
bool Engine::make_room() {
  bool kept = false;
  for (const auto& worker : std::vector(workers_)) {
    const bool keep = !kept && ((worker->is_idle() && worker->is_fresh()) || worker->is_starting());
    kept = kept || keep;
    if (!keep && worker->is_idle()) worker->retire();
  }
  return count([](const auto& worker) { return !worker->is_stuck(); }) == (kept ? 1 : 0);
}

bool Engine::give_next(Worker& worker) {
  if (worker.slot == Slots::kNone && !take_slot(worker.slot)) return false;
  Request request = std::move(queue_.front());
  queue_.pop_front();
  if (request.options.placement == Placement::alone) alone_ = request.id;
  worker.give(std::move(request));
  return true;
}

bool Engine::start_next() {
  if (Clock::now() < policy_.next_spawn()) return retry_later(policy_.next_spawn()), false;
  int slot = Slots::kNone;
  return take_slot(slot) && start_worker(slot);
}

bool Engine::start_worker(int slot) {
  auto started = spawn(options_.program, !options_.use_pidfd);
  if (const auto* failure = std::get_if<SpawnFailure>(&started)) {
    if (slots_) slots_->give_back(slot);
    // With other workers alive the pool is only narrower; alone, it gives up after a few tries.
    if (failure->transient() && (!workers_.empty() || ++spawn_attempts_ < kSpawnAttempts)) {
      if (options_.log != nullptr)
        options_.log->warning("worker_spawn", "", failure->message + "; trying again", "pool");
      retry_later(Clock::now() + options_.backoff * (1 << std::min(spawn_attempts_, 6)));
      return false;
    }
    spawn_attempts_ = 0;
    policy_.turn_off(Clock::now(), failure->message);
    if (options_.log != nullptr) options_.log->warning("no_worker", "", failure->message, failure->message);
    wanted_ = 0;
    fail_queue(Outcome::no_worker, failure->message);
    return false;
  }
  spawn_attempts_ = 0;
  ++spawned_;
  workers_.push_back(std::make_shared<Worker>(io_, *this, options_, std::move(std::get<Spawned>(started))));
  workers_.back()->slot = slot;
  if (workers_.size() >= wanted_) wanted_ = 0;
  workers_.back()->start();
  return true;
}

/// Gets a slot where slots are shared; otherwise there is nothing to get.
bool Engine::take_slot(int& slot) {
  if (!slots_) return true;
  slot = slots_->take(Clock::now());
  slot_missing_ = slot == Slots::kNone;
  if (slot == Slots::kBorrowed && options_.log != nullptr)
    options_.log->warning("compile_slots", "",
                          "no compile slot became free for " + std::to_string(options_.slots.patience.count() / 1000) +
                              " s (is a process that holds them stopped?); going on with one compiler at a time",
                          "slots");
  return !slot_missing_;
}

void Engine::release_slot(Worker& worker) {
  if (slots_) slots_->give_back(std::exchange(worker.slot, Slots::kNone));
}

/// Gives back what nobody works with, and asks again soon for what was not to be had.
void Engine::rest_slots() {
  if (!slots_) return;
  for (const auto& worker : workers_)
    if (worker->is_idle()) release_slot(*worker);
  if (!slot_missing_) return slots_->want_nothing();
  slot_timer_.expires_after(kSlotPoll);
  slot_timer_.async_wait([this](error_code ec) {
    if (!ec) pump();
  });
}

/// How many workers there may be now.
int Engine::width() {
  const int most = std::max(options_.width, 1);
  while (narrowed_ > 0 && Clock::now() >= widen_at_) {
    narrowed_ = narrowed_ * 2 < most ? narrowed_ * 2 : 0;
    widen_at_ += options_.narrow_for;
  }
  return narrowed_ > 0 ? narrowed_ : most;
}

/// Sends idle workers away that are more than the width: they hold memory.
void Engine::shed() {
  const auto most = static_cast<size_t>(width());
  size_t staying = count([](const auto& worker) { return !worker->is_leaving(); });
  for (const auto& worker : std::vector(workers_)) {
    if (staying <= most) return;
    if (!worker->is_idle()) continue;
    worker->retire();
    --staying;
  }
}

/// After a death for want of memory: fewer workers for a while.
void Engine::narrow() {
  narrowed_ = std::max(width() / 2, 1);
  widen_at_ = Clock::now() + options_.narrow_for;
  if (options_.log != nullptr)
    options_.log->warning("worker_oom", "",
                          "a worker was killed by SIGKILL, not by jitune; probably memory is short, so there are at "
                          "most " +
                              std::to_string(narrowed_) + " workers for a while",
                          std::to_string(narrowed_));
}

void Engine::retry_later(Clock::time_point when) {
  retry_timer_.expires_at(when);
  retry_timer_.async_wait([this](error_code ec) {
    if (!ec) pump();
  });
}

}  // namespace jitune::pool
