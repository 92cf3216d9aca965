// Minutes of chaos over real worker processes. The seed is printed; JITUNE_SOAK_SEED repeats one, JITUNE_SOAK_REQUESTS
// sets the number of requests.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "compile/artifact.hpp"
#include "pool/pool_support.hpp"
#include "support/support.hpp"
#include "wire/frame.hpp"

using namespace jitune;
using namespace jitune::test;
using pool::Outcome;
using pool::Pool;
using pool::Reply;

namespace {

#if defined(__SANITIZE_THREAD__)
constexpr int kRequests = 500;
#elif defined(__SANITIZE_ADDRESS__)
constexpr int kRequests = 800;
#else
constexpr int kRequests = 10000;
#endif

long from_environment(const char* name, long otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atol(text);
}

uint64_t seed() {
  static const auto chosen =
      static_cast<uint64_t>(from_environment("JITUNE_SOAK_SEED", static_cast<long>(std::random_device{}())));
  return chosen;
}

/// One way to misbehave: what the request asks for, and what may come of it.
struct Way {
  const char* word;
  int64_t number;
  int weight;
  pool::Milliseconds deadline;
  std::vector<Outcome> may_be;
};

constexpr auto kAmple = 120s;
constexpr auto kShort = 40ms;

/// The faults are numbered as in the README beside this file.
const std::vector<Way>& ways() {
  using enum Outcome;
  static const std::vector<Way> all{
      {"echo", 0, 30, kAmple, {ok}},
      {"cubin", 0, 4, kAmple, {ok}},
      {"sleep", 4, 6, kAmple, {ok}},
      {"segv", 0, 6, kAmple, {crash}},                  // 1
      {"abort", 0, 3, kAmple, {crash}},                 // 1
      {"overflow", 0, 2, kAmple, {crash}},              // 1
      {"exit", 3, 3, kAmple, {crash}},                  // 2
      {"exit", 0, 2, kAmple, {crash}},                  // 2
      {"answer-and-exit", 0, 4, kAmple, {ok}},          // 2: between requests
      {"last", 0, 2, kAmple, {ok}},                     // 2
      {"kill", 0, 3, kAmple, {crash}},                  // 3
      {"oom", 0, 1, kAmple, {crash}},                   // 3
      {"spin", 0, 2, kShort, {timeout}},                // 4
      {"sigign", 0, 2, kShort, {timeout}},              // 4
      {"stop", 0, 2, kShort, {timeout}},                // 4
      {"sleep", 60000, 2, kShort, {timeout}},           // 4
      {"garbage", 0, 3, kAmple, {protocol}},            // 8
      {"short-garbage", 0, 2, kAmple, {protocol}},      // 8
      {"hugelen", 0, 2, kAmple, {protocol}},            // 8
      {"wrongid", 0, 2, kAmple, {protocol}},            // 8
      {"twice", 0, 2, kAmple, {ok}},                    // 8
      {"partial", 0, 2, kAmple, {crash}},               // 8
      {"partial", -1, 1, kShort, {timeout}},            // 8
      {"close-out", 0, 2, kAmple, {protocol}},          // 8
      {"close-out-exit", 0, 2, kAmple, {crash}},        // 8
      {"close-in", 0, 1, kShort, {timeout, protocol}},  // 8
      {"noise", 0, 3, kAmple, {ok}},                    // 9
      {"flood", 300, 2, kAmple, {ok}},                  // 10
      {"biglog", 0, 1, kAmple, {ok}},                   // 11
      {"badsha", 0, 2, kAmple, {ok}},                   // 12
      {"notelf", 0, 2, kAmple, {ok}},                   // 12
      {"empty", 0, 2, kAmple, {ok}},                    // 12
  };
  return all;
}

/// What every request came to, and what was wrong with that.
class Ledger {
 public:
  explicit Ledger(int requests) : answers_(static_cast<size_t>(requests)), left_(requests) {}

  void note(int request, const Way& way, const Reply& reply, bool may_be_taken_back) {
    const std::lock_guard lock(mutex_);
    ++outcomes_[pool::to_string(reply.outcome)];
    if (++answers_[static_cast<size_t>(request)] == 1) --left_;
    if (const std::string wrong = wrong_with(request, way, reply, may_be_taken_back); !wrong.empty())
      if (++wrong_ <= 10) std::printf("request %d (%s): %s\n", request, way.word, wrong.c_str());
  }

  void submit() { ++submitted_; }
  int submitted() const { return submitted_; }

  int left() {
    const std::lock_guard lock(mutex_);
    return left_;
  }
  int answered() { return static_cast<int>(answers_.size()) - left(); }
  int wrong() {
    const std::lock_guard lock(mutex_);
    return wrong_;
  }
  int answered(int times) {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(std::count(answers_.begin(), answers_.end(), times));
  }
  std::string outcomes() {
    const std::lock_guard lock(mutex_);
    std::string text;
    for (const auto& [name, count] : outcomes_) text += " " + name + " " + std::to_string(count);
    return text;
  }

 private:
  static std::string wrong_with(int request, const Way& way, const Reply& reply, bool may_be_taken_back) {
    if (reply.outcome == Outcome::cancelled) return may_be_taken_back ? "" : "cancelled by nobody";
    // Where no descriptor was to be had for several tries, that is the answer (17).
    if (reply.outcome == Outcome::no_worker && reply.detail.find("Too many open files") != std::string::npos) return "";
    // A request may be given to a worker whose predecessor's last act is not known yet; that is told as what it is.
    const bool unlucky = reply.outcome == Outcome::crash || reply.outcome == Outcome::protocol;
    const bool expected = std::find(way.may_be.begin(), way.may_be.end(), reply.outcome) != way.may_be.end();
    if (!expected && !unlucky) return std::string(pool::to_string(reply.outcome)) + ": " + reply.detail;
    if (reply.outcome != Outcome::ok) return reply.detail.empty() ? "no reason given" : "";
    const std::string word = way.word;
    if (word == "echo" && reply.message != Json(request)) return "another request's answer";
    if (word == "cubin" && !compile::artifact_from_json(reply.message).ok()) return "a good cubin was refused";
    for (const char* damaged : {"badsha", "notelf", "empty"})
      if (word == damaged && compile::artifact_from_json(reply.message).ok()) return "a damaged cubin was accepted";
    return "";
  }

  std::mutex mutex_;
  std::vector<int> answers_;
  std::map<std::string, int> outcomes_;
  std::atomic<int> submitted_{0};
  int left_, wrong_ = 0;
};

pool::PoolOptions chaos_options(const std::string& slots, int slot_count) {
  // Some workers are slow to say hello (5), some never live to say it.
  auto options = fake_pool(6, {"moody-hello", "tag=" + std::to_string(::getpid()) + "-" + std::to_string(seed())});
  options.storm_deaths = 1'000'000;
  options.storm_pause = 50ms;
  options.backoff = 1ms;
  options.narrow_for = 20ms;
  options.max_requests_per_worker = 40;
  options.idle_exit = 50ms;
  options.slots = {slots, slot_count, 60s};
  return options;
}

/// Submits a share of the requests from one thread, taking some back.
void submit_share(Pool& pool, Ledger& ledger, int begin, int end, uint64_t share_seed) {
  std::mt19937_64 random(share_seed);
  std::vector<int> weights;
  for (const Way& way : ways()) weights.push_back(way.weight);
  std::discrete_distribution<size_t> pick(weights.begin(), weights.end());
  for (int i = begin; i < end; ++i) {
    const Way& way = ways()[pick(random)];
    Json request = fake(way.word, way.number);
    request["payload"] = i;
    ledger.submit();
    // The pool is restarted now and then, which may hit any of them.
    const uint64_t id = pool.submit(request,
                                    {.deadline = way.deadline,
                                     .placement = random() % 50 == 0   ? pool::Placement::alone
                                                  : random() % 20 == 0 ? pool::Placement::fresh
                                                                       : pool::Placement::any},
                                    [&, i](Reply reply) { ledger.note(i, way, reply, true); });
    if (random() % 40 == 0) pool.cancel(id);
    while (ledger.submitted() - ledger.answered() > 600) std::this_thread::sleep_for(2ms);
    if (random() % 100 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(random() % 20));
  }
}

/// Now and then no descriptor is to be had (17), or the pool is restarted.
void make_trouble(Pool& pool, const std::atomic<bool>& stop) {
  std::mt19937_64 random(seed() + 99);
  rlimit normal{};
  ::getrlimit(RLIMIT_NOFILE, &normal);
  while (!stop) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200 + random() % 400));
    if (random() % 3 == 0) {
      (void)pool.restart();
    } else {
      const rlimit few{static_cast<rlim_t>(open_descriptors()), normal.rlim_max};
      ::setrlimit(RLIMIT_NOFILE, &few);
      std::this_thread::sleep_for(15ms);
      ::setrlimit(RLIMIT_NOFILE, &normal);
    }
  }
}

}  // namespace

TEST_CASE("chaos: none lost, none twice, no zombie, no descriptor, no process left") {
  const int requests = static_cast<int>(from_environment("JITUNE_SOAK_REQUESTS", kRequests));
  std::printf("JITUNE_SOAK_SEED=%llu, %d requests\n", static_cast<unsigned long long>(seed()), requests);
  const auto start = Clock::now();
  const int descriptors = open_descriptors();
  TempDir dir;
  Ledger ledger(requests);
  int spawned = 0;
  {
    // Two pools of one process share the slots as two processes would.
    Pool one(chaos_options(dir / "run", 8)), other(chaos_options(dir / "run", 8));
    std::atomic<bool> stop{false};
    std::thread trouble([&] { make_trouble(one, stop); });
    std::vector<std::thread> threads;
    constexpr int kThreads = 4;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        submit_share(t % 2 == 0 ? one : other, ledger, requests * t / kThreads, requests * (t + 1) / kThreads,
                     seed() + static_cast<uint64_t>(t));
      });
    for (std::thread& thread : threads) thread.join();
    CHECK(wait_until([&] { return ledger.left() == 0; }, 240'000));
    stop = true;
    trouble.join();
    spawned = one.spawned() + other.spawned();
  }
  CHECK(ledger.answered(0) == 0);
  CHECK(ledger.answered(1) == requests);
  CHECK(ledger.wrong() == 0);
  CHECK(zombies() == 0);
  CHECK(open_descriptors() == descriptors);
  CHECK(processes_tagged(std::to_string(::getpid()) + "-" + std::to_string(seed())) == 0);
  std::printf("%d requests, %d workers, %.1f s:%s; lost %d, twice %d, zombies %d, descriptors %+d\n", requests, spawned,
              ms_since(start) / 1000, ledger.outcomes().c_str(), ledger.answered(0),
              requests - ledger.answered(0) - ledger.answered(1), zombies(), open_descriptors() - descriptors);
}

TEST_CASE("chaos: a host that is killed at any moment leaves no worker 1 s later") {
  std::mt19937_64 random(seed());
  constexpr int kHosts = kRequests >= 10000 ? 40 : 6;
  int worst_ms = 0;
  for (int i = 0; i < kHosts; ++i) {
    const std::string tag = "orphan-" + std::to_string(seed()) + "-" + std::to_string(i);
    const pid_t host = ::fork();
    if (host == 0) {
      ::alarm(60);
      auto options = fake_pool(6, {"slow-hello=3", "tag=" + tag});
      options.storm_deaths = 1'000'000;
      options.backoff = 0ms;
      Pool pool(options);
      for (int k = 0; k < 400; ++k) {
        const Way& way = ways()[random() % ways().size()];
        pool.submit(fake(k % 4 == 0 ? "sigign" : way.word, way.number), 10s, [](Reply) {});
      }
      for (;;) ::pause();
    }
    REQUIRE(host > 0);
    (void)wait_until([&] { return processes_tagged(tag) >= 3; }, 5000);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
    ::kill(host, SIGKILL);
    const auto killed = Clock::now();
    int status = 0;
    REQUIRE(::waitpid(host, &status, 0) == host);
    CHECK(wait_until([&] { return processes_tagged(tag) == 0; }, 1000));
    worst_ms = std::max(worst_ms, static_cast<int>(ms_since(killed)));
  }
  std::printf("%d hosts killed; the last worker was gone after %d ms at most\n", kHosts, worst_ms);
}

TEST_CASE("chaos: storms, wrong programs and starts that fail, over and over (6, 7, 18)") {
  const int descriptors = open_descriptors();
  for (int round = 0; round < 5; ++round) {
    for (const char* mode : {"wrong-protocol", "wrong-version", "garbage-hello", "die-at-start", "die-after-hello"}) {
      INFO(std::string(mode));
      auto options = fake_pool(4, {mode});
      options.backoff = 1ms;
      Pool pool(options);
      std::latch done(20);
      std::atomic<int> ok{0};
      for (int i = 0; i < 20; ++i)
        pool.submit(fake("echo"), 5s, [&](Reply reply) {
          if (reply.outcome == Outcome::ok) ++ok;
          done.count_down();
        });
      done.wait();
      CHECK(ok == 0);
      CHECK(pool.spawned() <= 12);
    }
    auto options = fake_pool(4);
    options.program.path = "/nonexistent/jitune-worker";
    CHECK(Pool(options).call(fake("echo"), 5s).outcome == Outcome::no_worker);
  }
  CHECK(zombies() == 0);
  CHECK(open_descriptors() == descriptors);
}
