// What the pool does when nothing goes wrong, and what its callers may ask of it.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <mutex>
#include <set>
#include <thread>

#include "pool/pool_support.hpp"
#include "support/support.hpp"
#include "wire/frame.hpp"

using namespace jitune;
using namespace jitune::test;
using pool::Outcome;
using pool::Pool;
using pool::Reply;

TEST_CASE("a request comes back with its answer, and one worker serves many") {
  Pool pool(fake_pool());
  CHECK(pool.spawned() == 0);
  CHECK(pool.hello().is_null());
  for (int i = 0; i < 20; ++i) {
    const Json payload = {{"i", i}, {"text", "a\nb"}, {"deep", {{"list", {1, 2.5, true, nullptr}}}}};
    const Reply reply = pool.call({{"fake", "echo"}, {"payload", payload}}, 5s);
    REQUIRE(reply.outcome == Outcome::ok);
    CHECK(reply.message == payload);
    CHECK(reply.detail.empty());
    CHECK(reply.wall_ms > 0);
  }
  CHECK(pool.spawned() == 1);
  CHECK(wire::get_string(pool.hello(), "hello") == "compile");
  CHECK(wire::get_int(pool.hello(), "pid") > 0);
}

TEST_CASE("large messages pass in both directions") {
  Pool pool(fake_pool());
  const std::string big(3u << 20, 'x');
  const Reply echoed = pool.call({{"fake", "echo"}, {"payload", wire::to_binary(big)}}, 20s);
  REQUIRE(echoed.outcome == Outcome::ok);
  CHECK(echoed.message == wire::to_binary(big));
  const Reply bytes = pool.call(fake("bytes", 5 << 20), 20s);
  REQUIRE(bytes.outcome == Outcome::ok);
  CHECK(bytes.message.get_binary().size() == 5u << 20);
}

#ifndef __SANITIZE_THREAD__  // it takes minutes over 256 MiB
TEST_CASE("a request over the cap is refused without a worker") {
  Pool pool(fake_pool());
  const Reply reply = pool.call({{"payload", wire::to_binary(std::string(wire::kMaxPayloadBytes, 'x'))}}, 5s);
  CHECK(reply.outcome == Outcome::protocol);
  CHECK(reply.detail.find("over the cap") != std::string::npos);
  CHECK(pool.spawned() == 0);
}
#endif

TEST_CASE("width bounds the workers, and requests run at the same time") {
  Pool pool(fake_pool(4));
  std::mutex mutex;
  std::set<int64_t> pids;
  std::latch done(12);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 12; ++i) {
    pool.submit(fake("sleep", 100), 10s, [&](Reply reply) {
      CHECK(reply.outcome == Outcome::ok);
      done.count_down();
    });
  }
  done.wait();
  const auto took = std::chrono::steady_clock::now() - start;
  CHECK(took >= 300ms);  // three rounds on four workers
  CHECK(took < 900ms);   // and not twelve on one
  CHECK(pool.spawned() == 4);
}

TEST_CASE("warm_up starts workers before the first request") {
  Pool pool(fake_pool(3, {"slow-hello=100"}));
  pool.warm_up(2);
  CHECK(wait_until([&] { return pool.spawned() == 2 && !pool.hello().is_null(); }));
  pool.warm_up(99);  // no more than the width
  CHECK(wait_until([&] { return pool.spawned() == 3; }));
  std::this_thread::sleep_for(30ms);
  CHECK(pool.spawned() == 3);
  CHECK(pool.call(fake("self"), 5s).outcome == Outcome::ok);
}

TEST_CASE("cancel: a queued request is dropped, a running one costs its worker, an unknown one nothing") {
  Pool pool(fake_pool());
  std::atomic<int> running_done{0}, queued_done{0};
  std::atomic<Outcome> running_outcome{Outcome::ok}, queued_outcome{Outcome::ok};
  const auto running = pool.submit(fake("sleep", 60000), 120s, [&](Reply reply) {
    running_outcome = reply.outcome;
    ++running_done;
  });
  const auto queued = pool.submit(fake("sleep", 60000), 120s, [&](Reply reply) {
    queued_outcome = reply.outcome;
    ++queued_done;
  });
  CHECK(wait_until([&] { return !pool.hello().is_null(); }));
  pool.cancel(queued);
  CHECK(wait_until([&] { return queued_done == 1; }));
  CHECK(queued_outcome == Outcome::cancelled);
  CHECK(running_done == 0);
  pool.cancel(running);
  CHECK(wait_until([&] { return running_done == 1; }));
  CHECK(running_outcome == Outcome::cancelled);
  pool.cancel(running);
  pool.cancel(12345);
  CHECK(pool.call(fake("echo"), 5s).outcome == Outcome::ok);
  CHECK(running_done == 1);
  CHECK(queued_done == 1);
  CHECK(pool.spawned() == 2);
}

TEST_CASE("cancel_all empties the pool and leaves it usable") {
  Pool pool(fake_pool(2));
  std::latch done(6);
  std::atomic<int> cancelled{0};
  for (int i = 0; i < 6; ++i)
    pool.submit(fake("sleep", 60000), 120s, [&](Reply reply) {
      if (reply.outcome == Outcome::cancelled) ++cancelled;
      done.count_down();
    });
  pool.cancel_all();
  done.wait();
  CHECK(cancelled == 6);
  CHECK(pool.call(fake("echo"), 5s).outcome == Outcome::ok);
}

TEST_CASE("restart: every worker is another one afterwards, and the old ones are gone") {
  Pool pool(fake_pool(2));
  CHECK(pool.restart());  // nothing there yet
  const int64_t before = wire::get_int(pool.call(fake("self"), 5s).message, "pid");
  REQUIRE(exists(before));
  std::atomic<bool> cancelled{false};
  pool.submit(fake("sleep", 60000), 120s, [&](Reply reply) { cancelled = reply.outcome == Outcome::cancelled; });
  CHECK(wait_until([&] { return pool.spawned() >= 1; }));
  CHECK(pool.restart());
  CHECK_FALSE(exists(before));
  CHECK(wait_until([&] { return cancelled.load(); }));
  const int64_t after = wire::get_int(pool.call(fake("self"), 5s).message, "pid");
  CHECK(after != before);
}

TEST_CASE("a worker is replaced after its number of requests") {
  auto options = fake_pool();
  options.max_requests_per_worker = 3;
  Pool pool(options);
  std::set<int64_t> pids;
  for (int i = 0; i < 9; ++i) {
    const Reply reply = pool.call(fake("self"), 5s);
    REQUIRE(reply.outcome == Outcome::ok);
    pids.insert(wire::get_int(reply.message, "pid"));
  }
  CHECK(pids.size() == 3);
  CHECK(pool.spawned() == 3);
}

TEST_CASE("a worker that has grown too large is replaced") {
  auto options = fake_pool();
  options.max_resident_bytes = 300 << 20;
  Pool pool(options);
  const int64_t first = wire::get_int(pool.call(fake("self"), 5s).message, "pid");
  CHECK(pool.call(fake("hoard", 10 << 20), 20s).outcome == Outcome::ok);
  CHECK(wire::get_int(pool.call(fake("self"), 5s).message, "pid") == first);
  CHECK(pool.call(fake("hoard", 400 << 20), 20s).outcome == Outcome::ok);
  CHECK(wire::get_int(pool.call(fake("self"), 5s).message, "pid") != first);
}

TEST_CASE("a worker that announces its last answer gets no further request") {
  Pool pool(fake_pool());
  for (int i = 0; i < 3; ++i) {
    CHECK(pool.call(fake("last"), 5s).outcome == Outcome::ok);
    CHECK(pool.call(fake("echo"), 5s).outcome == Outcome::ok);
  }
  CHECK(pool.spawned() == 4);
}

TEST_CASE("an answer counts although its worker died right after it") {
  Pool pool(fake_pool());
  for (int i = 0; i < 5; ++i) {
    CHECK(pool.call(fake("answer-and-exit"), 5s).outcome == Outcome::ok);
    // Else the next request may be given to the dying one; sanitizers take long to let a process end.
    std::this_thread::sleep_for(500ms);
  }
}

TEST_CASE("callbacks may submit, cancel and throw; call() from one is refused") {
  Pool pool(fake_pool());
  std::latch done(1);
  Outcome nested = Outcome::ok;
  bool restarted = true;
  pool.submit(fake("echo"), 5s, [&](Reply) {
    nested = pool.call(fake("echo"), 5s).outcome;
    restarted = pool.restart();
    pool.submit(fake("echo"), 5s, [&](Reply reply) {
      CHECK(reply.outcome == Outcome::ok);
      done.count_down();
    });
    throw std::runtime_error("a callback's own trouble");
  });
  done.wait();
  CHECK(nested == Outcome::no_worker);
  CHECK_FALSE(restarted);
}

TEST_CASE("the destructor cancels what is left, leaves no process, no zombie and no descriptor") {
  const int descriptors = open_descriptors();
  std::atomic<int> cancelled{0}, all{0};
  int64_t pid = 0;
  {
    Pool pool(fake_pool(3));
    pid = wire::get_int(pool.call(fake("self"), 5s).message, "pid");
    for (int i = 0; i < 10; ++i)
      pool.submit(fake(i % 2 == 0 ? "sigign" : "sleep", 60000), 120s, [&](Reply reply) {
        ++all;
        if (reply.outcome == Outcome::cancelled) ++cancelled;
      });
    std::this_thread::sleep_for(50ms);
    const auto start = std::chrono::steady_clock::now();
    std::thread watch([start] { (void)start; });
    watch.join();
  }
  CHECK(all == 10);
  CHECK(cancelled == 10);
  CHECK_FALSE(exists(pid));
  CHECK(zombies() == 0);
  CHECK(open_descriptors() == descriptors);
}

TEST_CASE("a pool may be destroyed from one of its callbacks") {
  auto pool = std::make_shared<Pool>(fake_pool());
  std::latch done(1);
  pool->submit(fake("echo"), 5s, [&, keep = pool](Reply) mutable {
    keep.reset();
    pool.reset();
    done.count_down();
  });
  done.wait();
  CHECK(wait_until([] { return zombies() == 0; }));
}

TEST_CASE("many threads, many requests: each is answered once and by its own answer") {
  Pool pool(fake_pool(3));
  std::atomic<int> right{0}, calls{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const int64_t number = t * 1000 + i;
        pool.submit({{"fake", "echo"}, {"payload", number}}, 20s, [&, number](Reply reply) {
          ++calls;
          if (reply.outcome == Outcome::ok && reply.message == number) ++right;
        });
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wait_until([&] { return calls == 200; }, 20000));
  CHECK(right == 200);
}
