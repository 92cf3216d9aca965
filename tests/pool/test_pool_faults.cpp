// Workers that crash, hang, lie or never come.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <latch>
#include <optional>
#include <random>
#include <thread>

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

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a crash costs its request only and says how the worker died") {
  auto options = fake_pool();
  options.storm_deaths = 100;
  Pool pool(options);
  struct Case {
    const char* word;
    int64_t number;
    const char* detail;
  };
  for (const Case& one : {Case{"segv", 0, "killed by SIGSEGV"}, Case{"abort", 0, "killed by SIGABRT"},
                          Case{"exit", 3, "exited with code 3"}, Case{"exit", 0, "exited with code 0"},
                          Case{"overflow", 0, "killed by SIGSEGV"}, Case{"close-out-exit", 0, "exited with code 5"},
                          Case{"partial", 0, "bytes of an unfinished message"}}) {
    INFO(std::string(one.word));
    const Reply reply = pool.call(fake(one.word, one.number), 20s);
    CHECK(reply.outcome == Outcome::crash);
    CHECK_MESSAGE(contains(reply.detail, one.detail), reply.detail);
    CHECK(pool.call(fake("echo"), 5s).outcome == Outcome::ok);
  }
  CHECK(zombies() == 0);
}

TEST_CASE("last words of a crash are kept, at most 2 KiB of them") {
  Pool pool(fake_pool());
  const Reply reply = pool.call(fake("last-words"), 5s);
  CHECK(reply.outcome == Outcome::crash);
  CHECK(contains(reply.stderr_tail, "the end is near"));
  CHECK(pool.call(fake("flood", 100), 5s).outcome == Outcome::ok);
  const Reply quiet = pool.call(fake("segv"), 5s);
  CHECK(quiet.stderr_tail.size() <= 2048);
  CHECK_FALSE(contains(quiet.stderr_tail, "the end is near"));
}

TEST_CASE("a SIGKILL that is not ours is taken for lack of memory") {
  Pool pool(fake_pool());
  const Reply reply = pool.call(fake("kill"), 5s);
  CHECK(reply.outcome == Outcome::crash);
  CHECK(contains(reply.detail, "SIGKILL, not by us; probably out of memory"));
  CHECK(pool.call(fake("oom"), 20s).outcome == Outcome::crash);
}

TEST_CASE("a worker that dies between requests costs nothing") {
  Pool pool(fake_pool());
  const int64_t pid = wire::get_int(pool.call(fake("self"), 5s).message, "pid");
  ::kill(static_cast<pid_t>(pid), SIGKILL);
  CHECK(wait_until([&] { return !exists(pid); }));
  CHECK(pool.call(fake("echo"), 5s).outcome == Outcome::ok);
}

TEST_CASE("a deadline is kept by SIGKILL, whatever the worker does against it") {
  Pool pool(fake_pool());
  CHECK(pool.call(fake("echo"), 5s).outcome == Outcome::ok);
  for (const char* word : {"spin", "sigign", "stop", "partial", "sleep"}) {
    INFO(std::string(word));
    const int64_t pid = wire::get_int(pool.call(fake("self"), 5s).message, "pid");
    const auto start = Clock::now();
    const Reply reply = pool.call(fake(word, std::string(word) == "partial" ? -1 : 60000), 150ms);
    const double took = ms_since(start);
    CHECK(reply.outcome == Outcome::timeout);
    CHECK(contains(reply.detail, "no answer within 0.1 s"));
    CHECK(took >= 150);
    CHECK(took < 150 + 200);   // 50 ms is the aim; the machine that runs this may be busy
    CHECK_FALSE(exists(pid));  // gone, not only killed
  }
  // Time-outs are not deaths: no storm comes of them.
  CHECK(pool.call(fake("echo"), 5s).outcome == Outcome::ok);
}

TEST_CASE("a worker that SIGKILL does not end costs its request and its place, and nobody waits for it twice") {
  constexpr auto kStuckAfter = 400ms;
  auto options = fake_pool();
  options.stuck_after = kStuckAfter;
  Pool pool(options);
  const auto started = Clock::now();
  const Reply reply = pool.call(fake("stuck", 4000), 300ms);
  if (reply.outcome == Outcome::protocol) {
    skip("a worker that cannot be killed", "tracing of processes is not allowed here");
    return;
  }
  CHECK(reply.outcome == Outcome::timeout);
  CHECK_MESSAGE(contains(reply.detail, "can't be killed"), reply.detail);
  CHECK(ms_since(started) >= 700);
  CHECK(ms_since(started) < 3000);
  // The only place is taken: told at once, by a request and by every restart.
  const auto asked = Clock::now();
  const Reply next = pool.call(fake("echo"), 10s);
  CHECK(next.outcome == Outcome::no_worker);
  CHECK_MESSAGE(contains(next.detail, "stuck in the driver"), next.detail);
  CHECK_FALSE(pool.restart());
  CHECK_FALSE(pool.restart());
  CHECK(ms_since(asked) < 300);
  // Once it is gone after all, its place is free again.
  CHECK(wait_until([&] { return pool.call(fake("echo"), 5s).outcome == Outcome::ok; }, 10000));
  CHECK(pool.restart());
  CHECK(zombies() == 0);
}

TEST_CASE("a pool with a stuck worker still goes on with its other place, and ends within a second") {
  auto options = fake_pool(2);
  options.stuck_after = 300ms;
  std::optional<Pool> pool(std::in_place, options);
  const Reply reply = pool->call(fake("stuck", 4000), 200ms);
  if (reply.outcome == Outcome::protocol) {
    skip("a worker that cannot be killed", "tracing of processes is not allowed here");
    return;
  }
  CHECK(reply.outcome == Outcome::timeout);
  for (int i = 0; i < 5; ++i) CHECK(pool->call(fake("echo"), 5s).outcome == Outcome::ok);
  const auto ended = Clock::now();
  pool.reset();
  CHECK(ms_since(ended) < 1500);
  CHECK(wait_until([] { return zombies() == 0; }, 10000));  // reaped by whoever waits for it
}

TEST_CASE("a slow start does not eat the first deadline") {
  Pool pool(fake_pool(1, {"slow-hello=400"}));
  const Reply reply = pool.call(fake("sleep", 10), 200ms);
  CHECK(reply.outcome == Outcome::ok);
  CHECK(reply.wall_ms < 200);
}

TEST_CASE("nonsense on the protocol is told with its bytes") {
  auto options = fake_pool();
  options.storm_deaths = 100;
  Pool pool(options);
  struct Case {
    const char* word;
    const char* detail;
  };
  for (const Case& one : {Case{"garbage", "6b 65 72 6e 65 6c 20"},  // "kernel "
                          Case{"short-garbage", "6f 6b"},           // "ok", shorter than a header
                          Case{"hugelen", "4294967295 bytes is over the cap"}, Case{"wrongid", "instead of request"},
                          Case{"twice", ""}, Case{"close-out", "closed its output"}, Case{"close-in", ""}}) {
    INFO(std::string(one.word));
    const auto start = Clock::now();
    // Workers that go on are found out at once, not at the deadline; only a closed input shows at the next request.
    const bool hangs = std::string(one.word) == "close-in";
    const Reply reply = pool.call(fake(one.word), hangs ? 100ms : 2000ms);
    if (std::string(one.word) == "twice") {
      CHECK(reply.outcome == Outcome::ok);
      // The second answer, to nobody, costs the worker; a request that it got in between must not be mixed up with it.
      CHECK(wait_until([&] { return pool.call(fake("echo"), 5s).outcome == Outcome::ok; }));
      continue;
    }
    if (hangs) {
      CHECK(reply.outcome == Outcome::timeout);
      continue;
    }
    CHECK(reply.outcome == Outcome::protocol);
    CHECK_MESSAGE(contains(reply.detail, one.detail), reply.detail);
    CHECK(ms_since(start) < 1500);
    if (std::string(one.word) == "garbage") CHECK(contains(reply.detail, "Did something print"));
    CHECK(pool.call(fake("echo"), 5s).outcome == Outcome::ok);
  }
}

TEST_CASE("stray output of a library in the worker does not reach the protocol") {
  Pool pool(fake_pool());
  const Reply reply = pool.call(fake("noise"), 5s);
  CHECK(reply.outcome == Outcome::ok);
  CHECK(reply.message == "quiet");
  CHECK(wait_until([&] { return contains(pool.call(fake("exit", 1), 5s).stderr_tail, ""); }));
  CHECK(pool.spawned() >= 1);
}

TEST_CASE("a flood on stderr neither blocks the worker nor fills our memory") {
  Pool pool(fake_pool());
  const Reply reply = pool.call(fake("flood", 100 << 10), 60s);  // 100 MiB
  CHECK(reply.outcome == Outcome::ok);
  CHECK(reply.stderr_tail.size() <= 2048);
}

TEST_CASE("a worker that can't be started: one reason with the path, at once") {
  struct Case {
    std::string path, reason;
  };
  TempDir dir;
  write_file(dir / "text", "just text\n");
  ::chmod((dir / "text").c_str(), 0755);
  write_file(dir / "data", "just text\n");
  ::chmod((dir / "data").c_str(), 0644);
  for (const Case& one : {Case{"/nonexistent/jitune-worker", "No such file"}, Case{dir / "text", "Exec format error"},
                          Case{dir / "data", "Permission denied"}, Case{dir.path(), "Permission denied"}}) {
    CAPTURE(one.path);
    auto options = fake_pool(2);
    options.program.path = one.path;
    Pool pool(options);
    const auto start = Clock::now();
    const Reply reply = pool.call(fake("echo"), 5s);
    CHECK(reply.outcome == Outcome::no_worker);
    CHECK(contains(reply.detail, one.path));
    CHECK_MESSAGE(contains(reply.detail, one.reason), reply.detail);
    CHECK(pool.call(fake("echo"), 5s).outcome == Outcome::no_worker);
    CHECK(ms_since(start) < 1000);
    CHECK(pool.spawned() == 0);
    CHECK(zombies() == 0);
  }
}

TEST_CASE("a wrong hello is refused, naming both sides") {
  for (const char* mode : {"wrong-protocol", "wrong-version", "wrong-kind"}) {
    INFO(std::string(mode));
    Pool pool(fake_pool(1, {mode}));
    const Reply reply = pool.call(fake("echo"), 5s);
    CHECK(reply.outcome == Outcome::no_worker);
    CHECK(contains(reply.detail, "jitune-fake-worker"));
    CHECK(contains(reply.detail, "test_pool"));
    CHECK(pool.spawned() == 1);
  }
  Pool pool(fake_pool(1, {"garbage-hello"}));
  const Reply reply = pool.call(fake("echo"), 20s);
  CHECK(reply.outcome == Outcome::no_worker);
  CHECK(contains(reply.detail, "57 65 6c 63"));  // "Welc"
}

TEST_CASE("no hello in time") {
  auto options = fake_pool(1, {"no-hello"});
  options.hello_timeout = 100ms;
  Pool pool(options);
  const Reply reply = pool.call(fake("echo"), 5s);
  CHECK(reply.outcome == Outcome::no_worker);
  CHECK(contains(reply.detail, "did not say hello within 0.1 s"));
}

TEST_CASE("a worker that dies at its start: a few tries, then its own words") {
  for (const char* mode : {"die-at-start", "die-after-hello"}) {
    INFO(std::string(mode));
    Pool pool(fake_pool(3, {mode}));
    const Reply reply = pool.call(fake("echo"), 20s);
    if (std::string(mode) == "die-at-start") {
      CHECK(reply.outcome == Outcome::no_worker);
      CHECK(contains(reply.detail, "libnothing.so"));
    } else {
      CHECK(reply.outcome != Outcome::ok);
    }
    CHECK(pool.spawned() <= 8);
  }
}

TEST_CASE("a crash storm ends in no_worker") {
  auto options = fake_pool(3);
  options.storm_pause = 1500ms;
  Pool pool(options);
  std::latch done(40);
  std::atomic<int> crashed{0}, refused{0};
  std::string reason;
  for (int i = 0; i < 40; ++i)
    pool.submit(fake("segv"), 10s, [&](Reply reply) {
      if (reply.outcome == Outcome::crash) ++crashed;
      if (reply.outcome == Outcome::gave_up) {
        ++refused;
        reason = reply.detail;
      }
      done.count_down();
    });
  done.wait();
  CHECK(pool.spawned() <= 8);
  CHECK(crashed >= 5);
  CHECK(crashed + refused == 40);
  CHECK(contains(reason, "5 workers in a row"));
  CHECK(contains(reason, "SIGSEGV"));
}

TEST_CASE("a pool that gave up comes back after its pause or a restart") {
  auto options = fake_pool();
  options.storm_deaths = 2;
  options.storm_pause = 1500ms;
  Pool pool(options);
  CHECK(pool.call(fake("segv"), 5s).outcome == Outcome::crash);
  CHECK(pool.call(fake("segv"), 5s).outcome == Outcome::crash);
  CHECK(pool.call(fake("echo"), 5s).outcome == Outcome::gave_up);
  std::this_thread::sleep_for(1550ms);
  CHECK(pool.call(fake("echo"), 5s).outcome == Outcome::ok);
  options.storm_pause = 60s;
  options.storm_deaths = 1;
  Pool other(options);
  CHECK(other.call(fake("segv"), 5s).outcome == Outcome::crash);
  CHECK(other.call(fake("echo"), 5s).outcome == Outcome::gave_up);
  CHECK(other.restart());
  CHECK(other.call(fake("echo"), 5s).outcome == Outcome::ok);
}

TEST_CASE("damaged and foreign cubins, and a log of 20 MB") {
  Pool pool(fake_pool());
  const auto artifact = [&](const char* word) {
    const Reply reply = pool.call(fake(word), 60s);
    REQUIRE(reply.outcome == Outcome::ok);
    return compile::artifact_from_json(reply.message);
  };
  CHECK(artifact("cubin").ok());
  const auto damaged = artifact("badsha");
  REQUIRE_FALSE(damaged.ok());
  CHECK(contains(damaged.error(), "SHA-256"));
  const auto foreign = artifact("notelf");
  REQUIRE_FALSE(foreign.ok());
  CHECK(contains(foreign.error(), "not a 64-bit ELF"));
  const auto empty = artifact("empty");
  REQUIRE_FALSE(empty.ok());
  CHECK(contains(empty.error(), "empty"));
  const auto log = artifact("biglog");
  REQUIRE(log.ok());
  CHECK(log->log.size() <= 16384);
  CHECK(log->log.rfind("first line", 0) == 0);
  CHECK(contains(log->log, "last line"));
  CHECK(contains(log->log, "bytes cut"));
}

TEST_CASE("odd bytes in a source reach the worker as they are") {
  Pool pool(fake_pool());
  for (const std::string& odd :
       {std::string("a\0b", 3), std::string("\xef\xbb\xbfint x;\r\n"), std::string("\xff\xfe\x80 \xc3(")}) {
    const Json payload = wire::to_binary(odd);
    CHECK(pool.call({{"fake", "echo"}, {"payload", payload}}, 5s).message == payload);
  }
}

TEST_CASE("chaos: every request is answered once, whatever its worker does") {
  auto options = fake_pool(3);
  options.storm_deaths = 1000000;
  options.backoff = 0ms;
  options.hello_timeout = 20s;
  const int descriptors = open_descriptors();
  {
    Pool pool(options);
    constexpr int kRequests = 300;
    std::atomic<int> answered[kRequests] = {};
    std::atomic<int> wrong{0};
    std::latch done(kRequests);
    std::mt19937 random(7);
    const char* words[] = {"echo", "echo",   "sleep",   "segv",    "abort", "exit",
                           "spin", "sigign", "partial", "garbage", "noise", "answer-and-exit"};
    for (int i = 0; i < kRequests; ++i) {
      const std::string word = words[random() % std::size(words)];
      Json request = fake(word, 3);
      request["payload"] = i;
      const auto deadline = word == "spin" || word == "sigign" ? 30ms : 20000ms;
      pool.submit(request, deadline, [&, i, word](Reply reply) {
        if (answered[i]++ == 0) done.count_down();
        if (word == "echo" && reply.outcome == Outcome::ok && reply.message != i) ++wrong;
        if (word == "segv" && reply.outcome == Outcome::ok) ++wrong;
      });
    }
    done.wait();
    CHECK(wrong == 0);
    for (const auto& count : answered) CHECK(count == 1);
  }
  CHECK(zombies() == 0);
  CHECK(open_descriptors() == descriptors);
}
