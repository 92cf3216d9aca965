#include "pool/engine.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <csignal>
#include <system_error>
#include <utility>

namespace jitune::pool {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr Milliseconds kEndGrace{1000};

/// Waits for processes that we can't wait for ourselves, for as long as it takes.
void reap_elsewhere(std::vector<pid_t> pids) {
  if (pids.empty()) return;
  try {
    std::thread([pids = std::move(pids)] {
      for (const pid_t pid : pids)
        while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
        }
    }).detach();
  } catch (const std::system_error&) {  // no thread to be had: init gets them when the program ends
  }
}

/// All signals blocked while a thread is made, so that it starts, and stays, with all of them blocked.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

Engine::Engine(PoolOptions options)
    : options_(std::move(options)),
      guard_(asio::make_work_guard(io_)),
      retry_timer_(io_),
      slot_timer_(io_),
      end_timer_(io_),
      policy_(options_.storm_deaths, options_.storm_pause, options_.backoff) {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  canary_ = UniqueFd(fds[0]);
  const UniqueFd other(fds[1]);
  struct stat info {};
  if (::fstat(canary_.get(), &info) == 0) {
    canary_device_ = info.st_dev;
    canary_inode_ = info.st_ino;
  }
  if (options_.slots.directory.empty()) return;
  if (auto slots = Slots::open(options_.slots)) {
    slots_ = std::move(*slots);
  } else if (options_.log != nullptr) {
    options_.log->warning("compile_slots", "", slots.error(), "open");
  }
}

Engine::~Engine() = default;

std::shared_ptr<Engine> Engine::start(const PoolOptions& options) {
  std::shared_ptr<Engine> engine(new Engine(options));
  const BlockSignals blocked;
  engine->thread_ = std::thread([engine] { engine->run(); });
  ::pthread_setname_np(engine->thread_.native_handle(), "jitune-pool");
  return engine;
}

template <class F>
bool Engine::post(F&& action) {
  const std::lock_guard lock(mutex_);
  if (closed_) return false;
  asio::post(io_, std::forward<F>(action));
  return true;
}

bool Engine::submit(Request& request) {
  const std::lock_guard lock(mutex_);
  if (closed_) return false;  // before the request is moved away
  asio::post(io_, [this, request = std::move(request)]() mutable {
    if (lost_ || ending_) return deliver(request.done, refusal(Outcome::no_worker, "the pool has ended"));
    if (request.options.placement == Placement::any) {
      queue_.push_back(std::move(request));
    } else {
      queue_.push_front(std::move(request));
    }
    pump();
  });
  return true;
}

bool Engine::warm_up(int count) {
  return post([this, count] {
    wanted_ = std::max(wanted_, static_cast<size_t>(std::clamp(count, 0, options_.width)));
    pump();
  });
}

void Engine::cancel(uint64_t id) {
  post([this, id] {
    const auto queued = std::find_if(queue_.begin(), queue_.end(), [&](const Request& one) { return one.id == id; });
    if (queued != queue_.end()) {
      const Request request = std::move(*queued);
      queue_.erase(queued);
      deliver(request.done, refusal(Outcome::cancelled, "cancelled before it was sent"));
      return pump();
    }
    for (const auto& worker : std::vector(workers_))
      if (worker->request_id() == id) worker->kill(Outcome::cancelled, "cancelled");
  });
}

void Engine::cancel_all() {
  post([this] {
    fail_queue(Outcome::cancelled, "cancelled before it was sent");
    for (const auto& worker : std::vector(workers_))
      if (worker->request_id() != 0) worker->kill(Outcome::cancelled, "cancelled");
    pump();
  });
}

std::future<bool> Engine::restart() {
  auto restart = std::make_shared<Restart>();
  std::future<bool> done = restart->done.get_future();
  const bool posted = post([this, restart] {
    policy_.reset();
    narrowed_ = 0;
    restart->waiting_for = workers_;
    restarts_.push_back(std::move(*restart));
    for (const auto& worker : std::vector(workers_)) worker->kill(Outcome::cancelled, "the pool was restarted");
    settle_restarts();
    // One that did not go before will not go now: whoever asks again is told at once.
    if (std::any_of(workers_.begin(), workers_.end(), [](const auto& worker) { return worker->is_stuck(); }))
      for (Restart& waiting : std::exchange(restarts_, {})) waiting.done.set_value(false);
    pump();
  });
  if (!posted) restart->done.set_value(true);
  return done;
}

void Engine::shut_down() {
  post([this] { end(); });
  if (on_io_thread()) {  // destroyed from a callback: the thread ends by itself after it
    thread_.detach();
  } else if (thread_.joinable()) {
    thread_.join();
  }
}

Json Engine::hello() const {
  const std::lock_guard lock(mutex_);
  return hello_;
}

void Engine::run() {
  while (!lost_) {
    // Asio does not notice that its descriptors were closed; it would only spin. So look once a second.
    if (io_.run_one_for(std::chrono::seconds(1)) == 0) {
      if (io_.stopped()) return;
      if (!intact()) lose();
    }
  }
}

bool Engine::intact() const {
  struct stat info {};
  return ::fstat(canary_.get(), &info) == 0 && info.st_dev == canary_device_ && info.st_ino == canary_inode_;
}

/// The host closed all descriptors (it became a daemon, say), ours too, and may have opened others in their place.
/// Nothing of ours may be closed or written to any more, so all of it is left as it is.
void Engine::lose() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  lost_ = true;
  static std::mutex leaked_mutex;
  static auto* leaked = new std::vector<std::shared_ptr<Engine>>;
  {
    const std::lock_guard lock(leaked_mutex);
    leaked->push_back(shared_from_this());
  }
  const std::string reason = "this program closed jitune's descriptors; create the Tuner after that";
  if (options_.log != nullptr) options_.log->warning("descriptors_closed", "", reason, "pool");
  std::vector<pid_t> pids;
  for (const auto& worker : workers_) {
    ::kill(worker->process().pid, SIGKILL);
    pids.push_back(worker->process().pid);
    worker->abandon(Outcome::no_worker, reason);
  }
  reap_elsewhere(std::move(pids));
  fail_queue(Outcome::no_worker, reason);
  for (Restart& restart : restarts_) restart.done.set_value(false);
  restarts_.clear();
  while (io_.poll_one() > 0) {  // what was posted before the door closed
  }
}

void Engine::fail_queue(Outcome outcome, const std::string& reason) {
  const std::deque<Request> requests = std::exchange(queue_, {});
  for (const Request& request : requests) deliver(request.done, refusal(outcome, reason));
}

void Engine::said_hello(const Json& hello) {
  {
    const std::lock_guard lock(mutex_);
    hello_ = hello;
  }
  pump();
}

void Engine::refused(const std::string& reason) {
  policy_.turn_off(Clock::now(), reason);
  if (options_.log != nullptr) options_.log->warning("no_worker", "", reason, reason);
  pump();
}

void Engine::answered(Worker& worker) {
  policy_.succeeded();
  release_slot(worker);  // the next one in line may be another process
  pump();
}

void Engine::stuck(Worker& worker) {
  release_slot(worker);
  if (options_.log != nullptr)
    options_.log->warning("worker_stuck", "",
                          "worker " + std::to_string(worker.process().pid) + " was killed and is still there",
                          std::to_string(worker.process().pid));
  for (Restart& restart : std::exchange(restarts_, {})) restart.done.set_value(false);
  pump();
}

void Engine::gone(Worker& worker, const Death& death) {
  release_slot(worker);
  std::erase_if(workers_, [&](const auto& one) { return one.get() == &worker; });
  settle_restarts();
  if (ending_) {
    if (workers_.empty()) finish();
    return;
  }
  // Several workers may be killed before a smaller width takes effect: that is no storm yet.
  const bool excused = death.likely_oom && width() > 1;
  if (death.likely_oom) narrow();
  if (!death.blame.empty() && !excused) {
    if (options_.log != nullptr) options_.log->debug("worker_died", "", death.blame);
    if (policy_.failed(Clock::now(), death.blame, death.at_start) && options_.log != nullptr)
      options_.log->warning("worker_storm", "", *policy_.off(Clock::now()));
  }
  pump();
}

void Engine::settle_restarts() {
  std::erase_if(restarts_, [&](Restart& restart) {
    const bool all_gone = std::none_of(restart.waiting_for.begin(), restart.waiting_for.end(), [&](const auto& one) {
      return std::find(workers_.begin(), workers_.end(), one) != workers_.end();
    });
    if (all_gone) restart.done.set_value(true);
    return all_gone;
  });
}

void Engine::end() {
  if (ending_ || lost_) return;
  ending_ = true;
  retry_timer_.cancel();
  slot_timer_.cancel();
  fail_queue(Outcome::cancelled, "the pool has ended");
  for (const auto& worker : std::vector(workers_)) worker->kill(Outcome::cancelled, "the pool has ended");
  if (workers_.empty()) return finish();
  end_timer_.expires_after(kEndGrace);
  end_timer_.async_wait([this](error_code ec) {
    if (!ec) finish();
  });
}

/// Leaves nothing for the io thread to wait for, so that it ends. Every handler that is left runs and finds nothing to
/// do.
void Engine::finish() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  end_timer_.cancel();
  std::vector<pid_t> pids;
  for (const auto& worker : std::exchange(workers_, {})) {
    worker->abandon(Outcome::cancelled, "the pool has ended");
    pids.push_back(worker->release());
  }
  if (!pids.empty() && options_.log != nullptr)
    options_.log->warning("worker_stuck", "", std::to_string(pids.size()) + " workers were still there at the end",
                          "end");
  reap_elsewhere(std::move(pids));
  for (Restart& restart : std::exchange(restarts_, {})) restart.done.set_value(false);
  guard_.reset();
}

}  // namespace jitune::pool
