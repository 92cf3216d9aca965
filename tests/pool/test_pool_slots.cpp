// Slots that several processes share, the width after deaths for want of memory, idle workers, deadlines that change.
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <latch>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/files.hpp"
#include "pool/pool_support.hpp"
#include "pool/slots.hpp"
#include "support/support.hpp"
#include "wire/frame.hpp"

using namespace jitune;
using namespace jitune::test;
using pool::Outcome;
using pool::Placement;
using pool::Pool;
using pool::Reply;
using pool::Slots;

namespace {

std::unique_ptr<Slots> open_slots(const TempDir& dir, int count, pool::Milliseconds patience = 60s) {
  auto slots = Slots::open({dir / "run", count, patience});
  REQUIRE_MESSAGE(slots.ok(), slots.error());
  return std::move(*slots);
}

/// The times at which the scripted workers began and ended their work, from the file that they appended them to.
std::vector<std::pair<double, double>> work_of(const std::string& path) {
  std::vector<std::pair<double, double>> spans;
  std::ifstream file(path);
  double begin = 0, end = 0;
  for (int64_t pid = 0; file >> pid >> begin >> end;) spans.emplace_back(begin, end);
  return spans;
}

int most_at_once(const std::vector<std::pair<double, double>>& spans) {
  std::vector<std::pair<double, int>> events;
  for (const auto& [begin, end] : spans) {
    events.emplace_back(begin, 1);
    events.emplace_back(end, -1);
  }
  std::sort(events.begin(), events.end());
  int now = 0, most = 0;
  for (const auto& event : events) most = std::max(most, now += event.second);
  return most;
}

Json work(const std::string& path, int ms) {
  return {{"fake", "work"}, {"number", ms}, {"path", path}};
}

/// A process of its own that runs `requests` pieces of work on `width` workers. Its exit code is 0 when all went well.
pid_t start_host(const pool::PoolOptions& options, const std::string& path, int requests, int ms) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::alarm(100);
  int good = 0;
  try {
    Pool pool(options);
    std::latch done(requests);
    std::atomic<int> answered{0};
    for (int i = 0; i < requests; ++i)
      pool.submit(work(path, ms), 60s, [&](Reply reply) {
        if (reply.outcome == Outcome::ok) ++answered;
        done.count_down();
      });
    done.wait();
    good = answered;
  } catch (...) {
    std::_Exit(98);
  }
  std::_Exit(good == requests ? 0 : 97);
}

int exit_code(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

}  // namespace

TEST_CASE("slots: never more than there are, over all holders; given back or dead, they are free") {
  TempDir dir;
  auto one = open_slots(dir, 3), other = open_slots(dir, 3);
  const auto now = Clock::now();
  const int a = one->take(now), b = one->take(now), c = one->take(now);
  CHECK(std::set<int>{a, b, c} == std::set<int>{0, 1, 2});
  CHECK(one->take(now) == Slots::kNone);
  CHECK(other->take(now) == Slots::kNone);
  one->give_back(b);
  CHECK(other->take(now) == b);
  CHECK(one->held() == 2);
  one.reset();
  CHECK(other->take(now) != Slots::kNone);
  CHECK(other->take(now) != Slots::kNone);
  CHECK(other->take(now) == Slots::kNone);

  // A process that is killed holds nothing any more, and what it forked does not either.
  other.reset();
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto mine = open_slots(dir, 3);
    const bool all = mine->take(now) >= 0 && mine->take(now) >= 0 && mine->take(now) >= 0;
    const pid_t grandchild = ::fork();
    if (grandchild == 0) {
      ::sleep(30);
      std::_Exit(0);
    }
    const pid_t told = all ? grandchild : -1;
    (void)!::write(ready[1], &told, sizeof told);
    ::sleep(30);
    std::_Exit(0);
  }
  pid_t grandchild = -1;
  REQUIRE(::read(ready[0], &grandchild, sizeof grandchild) == sizeof grandchild);
  REQUIRE(grandchild > 0);
  auto after = open_slots(dir, 3);
  CHECK(after->take(now) == Slots::kNone);
  ::kill(child, SIGKILL);
  CHECK(exit_code(child) == 1000 + SIGKILL);
  CHECK(wait_until([&] { return after->take(Clock::now()) >= 0; }));
  ::kill(grandchild, SIGKILL);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_CASE("slots: who has less than its share goes first, and a newcomer waits a round") {
  TempDir dir;
  auto rich = open_slots(dir, 4), poor = open_slots(dir, 4);
  auto now = Clock::now();
  int held[4];
  for (int& slot : held) slot = rich->take(now);
  CHECK(poor->take(now) == Slots::kNone);  // hungry from here on
  rich->give_back(held[0]);
  CHECK(rich->take(now) == Slots::kNone);  // three are more than its share of two
  CHECK(poor->take(now) == held[0]);
  rich->give_back(held[1]);
  CHECK(poor->take(now) == held[1]);
  CHECK(poor->held() == 2);
  // Both have their share; what is left over may go to either.
  rich->give_back(held[2]);
  CHECK(rich->take(now) == held[2]);

  // Three holders of one slot: the one that gives it back does not get it again at once.
  TempDir narrow;
  auto first = open_slots(narrow, 1), second = open_slots(narrow, 1), third = open_slots(narrow, 1);
  const int slot = first->take(now);
  CHECK(slot == 0);
  CHECK(second->take(now) == Slots::kNone);
  first->give_back(slot);
  CHECK(first->take(now) == Slots::kNone);
  CHECK(third->take(now) == Slots::kNone);  // it has just come
  CHECK(second->take(now) == 0);
  second->give_back(0);
  second->want_nothing();
  now += pool::kSlotPoll;
  CHECK(first->take(now) == 0);  // has waited its round
  first->give_back(0);
  first->want_nothing();
  CHECK(third->take(now) == 0);
}

TEST_CASE("slots: a stopped process costs the others their patience, not their work") {
  TempDir dir;
  auto stopped = open_slots(dir, 1), other = open_slots(dir, 1, 1000ms);
  const auto now = Clock::now();
  CHECK(stopped->take(now) == 0);
  CHECK(other->take(now) == Slots::kNone);
  CHECK(other->take(now + 900ms) == Slots::kNone);
  CHECK(other->take(now + 1000ms) == Slots::kBorrowed);
  CHECK(other->take(now + 1001ms) == Slots::kNone);  // one at a time
  other->give_back(Slots::kBorrowed);
  CHECK(other->take(now + 1002ms) == Slots::kBorrowed);
  other->give_back(Slots::kBorrowed);
  stopped->give_back(0);
  CHECK(other->take(now + 1003ms) == 0);

  // Slots that change hands are none that a stopped process holds: however long it takes, nothing is borrowed.
  TempDir slow;
  auto busy = open_slots(slow, 1), waiting = open_slots(slow, 1, 1000ms);
  CHECK(busy->take(now) == 0);
  CHECK(waiting->take(now) == Slots::kNone);
  busy->give_back(0);
  CHECK(busy->take(now + 900ms) == Slots::kNone);  // a newcomer among those that wait
  CHECK(busy->take(now + 910ms) == 0);
  CHECK(waiting->take(now + 1100ms) == Slots::kNone);
  CHECK(waiting->take(now + 2000ms) == Slots::kNone);
  CHECK(waiting->take(now + 2100ms) == Slots::kBorrowed);
}

TEST_CASE("slots: a folder that is not ours alone is refused by name") {
  TempDir dir;
  auto slots = open_slots(dir, 1);
  struct stat info {};
  REQUIRE(::stat((dir / "run").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0700);
  REQUIRE(::stat((dir / "run/compile-slots").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  REQUIRE(::chmod((dir / "run").c_str(), 0777) == 0);
  const auto open = Slots::open({dir / "run", 1, 1s});
  REQUIRE_FALSE(open.ok());
  CHECK(open.error().find("can be written by others") != std::string::npos);
  CHECK(open.error().find(dir / "run") != std::string::npos);
  REQUIRE(::symlink((dir / "run").c_str(), (dir / "link").c_str()) == 0);
  CHECK_FALSE(Slots::open({dir / "link", 1, 1s}).ok());
  CHECK_FALSE(Slots::open({dir / "no/where", 1, 1s}).ok());
  if (::geteuid() == 0) {
    REQUIRE(::chmod((dir / "run").c_str(), 0700) == 0);
    REQUIRE(::chown((dir / "run").c_str(), 12345, 12345) == 0);
    const auto foreign = Slots::open({dir / "run", 1, 1s});
    REQUIRE_FALSE(foreign.ok());
    CHECK(foreign.error().find("another user") != std::string::npos);
  }
  CHECK(pool::runtime_directory("") == "/tmp/jitune-" + std::to_string(::geteuid()));
  CHECK(pool::runtime_directory("/x") == "/x");
  CHECK(pool::runtime_directory("off").empty());
  // A pool goes on without sharing.
  auto options = fake_pool();
  options.slots = {dir / "no/where", 1, 1s};
  Pool pool(options);
  CHECK(pool.call(fake("echo"), 5s).outcome == Outcome::ok);
}

TEST_CASE("eight processes that start cold never have more compilers at work than there are slots, and all finish") {
  TempDir dir;
  constexpr int kSlots = 3, kHosts = 8, kRequests = 6;
  auto options = fake_pool(4, {"log=" + dir / "work", "slow-hello=20"});
  options.slots = {dir / "run", kSlots, 60s};
  std::vector<pid_t> hosts;
  for (int i = 0; i < kHosts; ++i) hosts.push_back(start_host(options, dir / "work", kRequests, 15));
  for (const pid_t host : hosts) CHECK(exit_code(host) == 0);
  // Counted from outside the pools: each worker notes when it began and ended, its start before its hello included.
  const auto spans = work_of(dir / "work");
  CHECK(spans.size() > kHosts * kRequests);
  CHECK(most_at_once(spans) == kSlots);  // never more, and all of them are used
  std::printf("8 cold processes, %d slots: at most %d of %zu starts and compilations at a time\n", kSlots,
              most_at_once(spans), spans.size());
}

TEST_CASE("a process that floods the slots does not starve one that comes later") {
  TempDir dir;
  auto options = fake_pool(2);
  options.slots = {dir / "run", 2, 60s};
  const pid_t flood = start_host(options, dir / "flood", 150, 10);
  CHECK(wait_until([&] { return work_of(dir / "flood").size() > 5; }, 20000));
  CHECK(exit_code(start_host(options, dir / "late", 20, 10)) == 0);
  const size_t done = work_of(dir / "flood").size();
  CHECK(done < 130);  // it was not served last
  CHECK(exit_code(flood) == 0);
}

TEST_CASE("waiting for a slot can be cancelled, and ends with the pool") {
  TempDir dir;
  auto taken = open_slots(dir, 1);
  REQUIRE(taken->take(Clock::now()) == 0);
  auto options = fake_pool(2);
  options.slots = {dir / "run", 1, 60s};
  std::atomic<int> cancelled{0};
  {
    Pool pool(options);
    pool.warm_up(2);
    const auto note = [&](Reply reply) {
      if (reply.outcome == Outcome::cancelled) ++cancelled;
    };
    const uint64_t id = pool.submit(fake("echo"), 5s, note);
    pool.submit(fake("echo"), 5s, note);
    std::this_thread::sleep_for(30ms);
    CHECK(pool.spawned() == 0);
    pool.cancel(id);
    CHECK(wait_until([&] { return cancelled == 1; }));
    const auto start = Clock::now();
    taken->give_back(0);
    taken->want_nothing();
    CHECK(pool.call(fake("echo"), 5s).outcome == Outcome::ok);
    CHECK(ms_since(start) < 2000);
    REQUIRE(wait_until([&] { return taken->take(Clock::now()) == 0; }));  // nothing is held while nothing is asked
    pool.submit(fake("echo"), 5s, note);
  }
  CHECK(cancelled == 2);
}

TEST_CASE("a death for want of memory halves the width for a while") {
  auto options = fake_pool(4);
  options.narrow_for = 400ms;
  options.storm_deaths = 100;
  Pool pool(options);
  const auto busy_at_once = [&](int requests) {
    std::mutex mutex;
    std::set<int64_t> pids;
    std::latch done(requests);
    const auto start = Clock::now();
    for (int i = 0; i < requests; ++i)
      pool.submit(fake("self-slowly", 40), 10s, [&](Reply reply) {
        {
          const std::lock_guard lock(mutex);
          pids.insert(wire::get_int(reply.message, "pid"));
        }
        done.count_down();  // not under the lock, which ends with this function as soon as it is told
      });
    done.wait();
    return std::pair(pids.size(), ms_since(start));
  };
  CHECK(busy_at_once(8).first == 4);
  const Reply killed = pool.call(fake("kill"), 5s);
  CHECK(killed.outcome == Outcome::crash);
  CHECK(killed.likely_oom);
  CHECK_FALSE(pool.call(fake("segv"), 5s).likely_oom);
  CHECK(busy_at_once(4).first <= 2);
  CHECK(pool.call(fake("kill"), 5s).likely_oom);
  CHECK(busy_at_once(4).first == 1);
  CHECK(pool.call(fake("kill"), 5s).likely_oom);
  CHECK(busy_at_once(2).first == 1);  // not less than one
  std::this_thread::sleep_for(1000ms);
  CHECK(busy_at_once(12).first == 4);
}

TEST_CASE("placement: fresh is a worker that has served nobody, alone has no other beside it") {
  auto options = fake_pool(3);
  Pool pool(options);
  std::set<int64_t> seen;
  std::latch warm(3);
  for (int i = 0; i < 3; ++i) pool.submit(fake("sleep", 30), 5s, [&](Reply) { warm.count_down(); });
  warm.wait();
  for (int i = 0; i < 6; ++i) seen.insert(wire::get_int(pool.call(fake("self"), 5s).message, "pid"));
  const auto ask = [&](Placement placement) {
    std::latch done(1);
    Reply reply;
    pool.submit(fake("self"), {.deadline = 5s, .placement = placement}, [&](Reply got) {
      reply = std::move(got);
      done.count_down();
    });
    done.wait();
    return wire::get_int(reply.message, "pid");
  };
  const int64_t fresh = ask(Placement::fresh);
  CHECK(fresh > 0);
  CHECK(seen.count(fresh) == 0);
  CHECK(pool.spawned() == 4);

  // While others sleep: alone waits for them, and what comes after it waits for it.
  std::mutex mutex;
  std::vector<std::string> order;
  std::latch done(5);
  const auto note = [&](const char* name) {
    return [&, name](Reply reply) {
      {
        const std::lock_guard lock(mutex);
        order.emplace_back(reply.outcome == Outcome::ok ? name : "failed");
      }
      done.count_down();
    };
  };
  pool.submit(fake("sleep", 150), 5s, note("before"));
  pool.submit(fake("sleep", 150), 5s, note("before"));
  std::this_thread::sleep_for(60ms);
  pool.submit(fake("sleep", 50), {.deadline = 5s, .placement = Placement::alone}, note("alone"));
  pool.submit(fake("echo"), 5s, note("after"));
  pool.submit(fake("echo"), 5s, note("after"));
  done.wait();
  CHECK(order == std::vector<std::string>{"before", "before", "alone", "after", "after"});
}

TEST_CASE("an idle worker leaves, and the next request finds another") {
  auto options = fake_pool(2);
  options.idle_exit = 60ms;
  Pool pool(options);
  const int64_t first = wire::get_int(pool.call(fake("self"), 5s).message, "pid");
  CHECK(wait_until([&] { return !exists(first); }));
  CHECK(wait_until([] { return zombies() == 0; }));  // it is reaped a moment after it is dead
  const int64_t second = wire::get_int(pool.call(fake("sleep", 150), 5s).message, "pid");  // busy is not idle
  (void)second;
  CHECK(pool.spawned() == 2);
  CHECK(pool.call(fake("echo"), 5s).outcome == Outcome::ok);
  CHECK(pool.spawned() == 2);
}

TEST_CASE("a deadline may become shorter while the request runs, and the reply says which one passed") {
  Pool pool(fake_pool());
  REQUIRE(pool.call(fake("echo"), 5s).outcome == Outcome::ok);
  std::atomic<int> limit_ms{30000};
  std::latch done(1);
  Reply reply;
  const auto start = Clock::now();
  pool.submit(fake("spin"), {.deadline = 20s, .current_deadline = [&] { return pool::Milliseconds(limit_ms.load()); }},
              [&](Reply got) {
                reply = std::move(got);
                done.count_down();
              });
  std::this_thread::sleep_for(100ms);
  limit_ms = 1200;
  done.wait();
  CHECK(reply.outcome == Outcome::timeout);
  CHECK(reply.limit == 1200ms);
  CHECK(ms_since(start) >= 1200);
  CHECK(ms_since(start) < 2500);
  CHECK(pool.call(fake("spin"), 50ms).limit == 50ms);
}
