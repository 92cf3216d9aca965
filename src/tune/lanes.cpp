#include "tune/lanes.hpp"

#include <signal.h>

#include <algorithm>
#include <utility>

namespace jitune::tune {

void Lanes::stop() {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& slot : slots_) slot->quit = true;
  }
  changed_.notify_all();
  for (const auto& slot : slots_)
    if (slot->thread.joinable()) slot->thread.join();
}

Lane& Lanes::add(Measurer& measurer, std::string uuid) {
  auto slot = std::make_unique<Slot>();
  slot->lane.number = slots_.size();
  slot->lane.measurer = &measurer;
  slot->lane.uuid = std::move(uuid);
  slots_.push_back(std::move(slot));
  return slots_.back()->lane;
}

void Lanes::start(size_t number, std::function<void(Lane&)> work, std::function<void(Lane&)> finish, bool counted) {
  Slot& slot = *slots_[number];
  slot.busy = true;
  slot.finish = std::move(finish);
  {
    const std::lock_guard lock(mutex_);
    slot.work = std::move(work);
    slot.counted = counted;
    slot.started = true;
    if (counted) note_busy(1);
  }
  if (!slot.thread.joinable()) {
    sigset_t all, before;  // the application's signals are none of these threads' business
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    slot.thread = std::thread([this, &slot] { serve(slot); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  changed_.notify_all();
}

void Lanes::serve(Slot& slot) {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return slot.started || slot.quit; });
    if (!slot.started) return;
    slot.started = false;
    const auto work = std::move(slot.work);
    lock.unlock();
    std::exception_ptr thrown;
    try {
      work(slot.lane);
    } catch (...) {
      thrown = std::current_exception();
    }
    lock.lock();
    slot.thrown = std::move(thrown);
    slot.done = true;
    if (slot.counted) note_busy(-1);
    changed_.notify_all();
    if (wake_) wake_();
  }
}

void Lanes::note_busy(int change) {
  const auto now = Clock::now();
  if (counted_ > 0) busy_ms_ += std::chrono::duration<double, std::milli>(now - busy_since_).count();
  busy_since_ = now;
  counted_ += change;
}

bool Lanes::are_idle() const {
  return std::none_of(slots_.begin(), slots_.end(), [](const auto& slot) { return slot->busy; });
}

void Lanes::wait(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, limit, [&] {
    return std::any_of(slots_.begin(), slots_.end(), [](const auto& slot) { return slot->done; });
  });
}

void Lanes::collect() {
  for (const auto& slot : slots_) {
    {
      const std::lock_guard lock(mutex_);
      if (!slot->done) continue;
      slot->done = false;
    }
    slot->busy = false;
    const auto finish = std::exchange(slot->finish, nullptr);
    if (const auto thrown = std::exchange(slot->thrown, nullptr)) std::rethrow_exception(thrown);
    finish(slot->lane);
  }
}

void Lanes::finish(size_t number) {
  while (slots_[number]->busy) {
    wait(std::chrono::milliseconds(50));
    collect();
    if (look_) look_();
  }
}

void Lanes::set_wake(std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  wake_ = std::move(wake);
}

double Lanes::busy_ms() const {
  const std::lock_guard lock(mutex_);
  return busy_ms_ + (counted_ > 0 ? ms_since(busy_since_) : 0);
}

}  // namespace jitune::tune
