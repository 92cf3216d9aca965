#include "pool/pool.hpp"

#include <unistd.h>

#include <atomic>
#include <exception>
#include <future>
#include <mutex>
#include <utility>

#include "pool/engine.hpp"
#include "wire/frame.hpp"

namespace jitune::pool {

const char* to_string(Outcome outcome) noexcept {
  switch (outcome) {
    case Outcome::ok:
      return "ok";
    case Outcome::timeout:
      return "timeout";
    case Outcome::crash:
      return "crash";
    case Outcome::protocol:
      return "protocol";
    case Outcome::cancelled:
      return "cancelled";
    case Outcome::no_worker:
      return "no_worker";
    case Outcome::gave_up:
      return "gave_up";
  }
  return "unknown";
}

struct Pool::Impl {
  explicit Impl(PoolOptions given) : options(std::move(given)) {}

  PoolOptions options;
  const pid_t owner = ::getpid();
  std::atomic<uint64_t> next_id{1};
  std::mutex mutex;
  std::shared_ptr<Engine> engine_;  // with mutex
  int spawned_before = 0;           // with mutex: by engines that were lost

  /// After fork() the child has the pool's memory but not its thread; locks may be held by nobody.
  bool forked() const { return ::getpid() != owner; }

  std::shared_ptr<Engine> current() {
    const std::lock_guard lock(mutex);
    return engine_;
  }

  /// Runs `use` on the engine, starting one when there is none or it was lost. Says why there is none, or "".
  template <class F>
  std::string with_engine(F&& use) {
    for (int attempt = 0; attempt < 2; ++attempt) {
      std::shared_ptr<Engine> engine;
      try {
        const std::lock_guard lock(mutex);
        if (!engine_) engine_ = Engine::start(options);
        engine = engine_;
      } catch (const std::exception& error) {  // asio and the standard library have one each
        return std::string("the pool's thread could not be started: ") + error.what();
      }
      if (use(*engine)) return "";
      retire(engine);
    }
    return "this program closes jitune's descriptors";
  }

  /// Forgets an engine that has lost its descriptors. Its last callbacks may call us, so the lock is not held for them.
  void retire(const std::shared_ptr<Engine>& engine) {
    {
      const std::lock_guard lock(mutex);
      if (engine_ != engine) return;
      spawned_before += engine->spawned();
      engine_.reset();
    }
    engine->shut_down();
  }
};

Pool::Pool(PoolOptions options) : impl_(std::make_shared<Impl>(std::move(options))) {}

Pool::~Pool() {
  if (impl_->forked()) {
    // Closing anything here would reach into what parent and child share; the child leaves it all as it is.
    static auto* left = new std::vector<std::shared_ptr<Impl>>;
    left->push_back(std::move(impl_));
    return;
  }
  if (const auto engine = impl_->current()) engine->shut_down();
}

uint64_t Pool::submit(Json request, Milliseconds deadline, Callback done) {
  return submit(std::move(request), RequestOptions{deadline}, std::move(done));
}

uint64_t Pool::submit(Json request, RequestOptions options, Callback done) {
  if (impl_->forked()) {
    deliver(done, refusal(Outcome::no_worker, "this process was forked from the one that owns the workers"));
    return 0;
  }
  const uint64_t id = impl_->next_id++;
  Request one{id, wire::encode({{"id", id}, {"request", std::move(request)}}), std::move(options), std::move(done)};
  if (one.frame.size() - wire::kHeaderBytes > wire::kMaxPayloadBytes) {
    deliver(one.done,
            refusal(Outcome::protocol, "a request of " + std::to_string(one.frame.size()) +
                                           " bytes is over the cap of " + std::to_string(wire::kMaxPayloadBytes)));
    return id;
  }
  const std::string why_not = impl_->with_engine([&](Engine& engine) { return engine.submit(one); });
  if (!why_not.empty()) deliver(one.done, refusal(Outcome::no_worker, why_not));
  return id;
}

void Pool::cancel(uint64_t id) {
  if (impl_->forked()) return;
  if (const auto engine = impl_->current()) engine->cancel(id);
}

void Pool::cancel_all() {
  if (impl_->forked()) return;
  if (const auto engine = impl_->current()) engine->cancel_all();
}

Reply Pool::call(Json request, Milliseconds deadline) {
  if (!impl_->forked()) {
    const auto engine = impl_->current();
    if (engine && engine->on_io_thread())
      return refusal(Outcome::no_worker, "call() from a callback would wait for itself");
  }
  auto promise = std::make_shared<std::promise<Reply>>();
  auto answer = promise->get_future();
  submit(std::move(request), deadline, [promise](Reply reply) { promise->set_value(std::move(reply)); });
  return answer.get();
}

void Pool::warm_up(int count) {
  if (impl_->forked()) return;
  (void)impl_->with_engine([&](Engine& engine) { return engine.warm_up(count); });
}

bool Pool::restart() {
  if (impl_->forked()) return true;
  const auto engine = impl_->current();
  if (!engine) return true;
  if (engine->on_io_thread()) return false;
  auto done = engine->restart();
  return done.wait_for(impl_->options.stuck_after + Milliseconds(100)) == std::future_status::ready && done.get();
}

Json Pool::hello() const {
  if (impl_->forked()) return {};
  const auto engine = impl_->current();
  return engine ? engine->hello() : Json();
}

int Pool::spawned() const {
  if (impl_->forked()) return 0;
  const std::lock_guard lock(impl_->mutex);
  return impl_->spawned_before + (impl_->engine_ ? impl_->engine_->spawned() : 0);
}

}  // namespace jitune::pool
