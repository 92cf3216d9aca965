#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "samples.hpp"
#include "store/open.hpp"
#include "store/process.hpp"
#include "store/rows.hpp"
#include "support/support.hpp"

using namespace jitune;
using namespace std::chrono_literals;
using State = store::Claim::State;

namespace {

int64_t fake_now = 0;

std::unique_ptr<store::Store> open_with_fake_clock(const std::string& path) {
  store::Store::OpenOptions options;
  options.path = path;
  options.now = [] { return fake_now; };
  auto opened = store::Store::open(options);
  REQUIRE_OK(opened);
  return std::move(*opened);
}

}  // namespace

TEST_CASE("one holder at a time; an answered key needs force") {
  test::TempDir dir;
  auto first = test::open_store(dir / "j.db");
  auto second = test::open_store(dir / "j.db");
  const auto key = test::sample_key();
  auto mine = first->claim(key, 8s, false);
  REQUIRE_OK(mine);
  CHECK(mine->state == State::acquired);
  CHECK(mine->lease.key_sha256 == key.sha256);
  CHECK(mine->lease.holder.size() == 32);
  auto theirs = second->claim(key, 8s, false);
  REQUIRE_OK(theirs);
  CHECK(theirs->state == State::held);
  CHECK(theirs->holder_text.find("pid " + std::to_string(::getpid()) + " on ") == 0);
  CHECK(theirs->holder_text.find(" s ago") != std::string::npos);
  auto other = second->claim(test::sample_key(R"({"M":1})"), 8s, false);
  CHECK(other->state == State::acquired);
  CHECK(other->lease.holder != mine->lease.holder);
  REQUIRE_OK(first->renew(mine->lease));
  REQUIRE_OK(first->release(mine->lease));
  CHECK_FALSE(first->renew(mine->lease).ok());
  test::publish(*second, key);
  CHECK(first->claim(key, 8s, false)->state == State::answered);
  auto forced = first->claim(key, 8s, true);
  CHECK(forced->state == State::acquired);
  // Nobody but the holder can release or renew it.
  REQUIRE_OK(second->release({key.sha256, "someone"}));
  CHECK_FALSE(second->renew({key.sha256, "someone"}).ok());
  CHECK(second->claim(key, 8s, true)->state == State::held);
}

TEST_CASE("a holder without progress for twice its budget loses the key, and its result is dropped") {
  test::TempDir dir;
  fake_now = 1'800'000'000;
  auto slow = open_with_fake_clock(dir / "j.db");
  auto quick = open_with_fake_clock(dir / "j.db");
  const auto key = test::sample_key();
  auto late = slow->claim(key, 10s, false);
  REQUIRE_OK(late);
  auto study = slow->begin_study(key, test::sample_study());
  REQUIRE_OK(study);
  fake_now += 20;
  CHECK(quick->claim(key, 10s, false)->state == State::held);
  // A trial is progress.
  CHECK(slow->add_trial(*study, late->lease, test::sample_trial(R"({"BLOCK":64})", 20)).value() == true);
  fake_now += 20;
  CHECK(quick->claim(key, 10s, false)->state == State::held);
  REQUIRE_OK(slow->renew(late->lease));
  fake_now += 20;
  CHECK(quick->claim(key, 10s, false)->state == State::held);
  fake_now += 1;
  auto stolen = quick->claim(key, 10s, false);
  REQUIRE_OK(stolen);
  CHECK(stolen->state == State::acquired);

  CHECK_FALSE(slow->renew(late->lease).ok());
  auto added = slow->add_trial(*study, late->lease, test::sample_trial(R"({"BLOCK":128})", 19));
  REQUIRE_OK(added);
  CHECK_FALSE(*added);  // and the study should stop
  CHECK(quick->trials_of(key.sha256)->size() == 2);
  auto ended = slow->end_study(*study, late->lease, {"won", ""}, test::sample_winner(R"({"BLOCK":128})", 19));
  REQUIRE_FALSE(ended.ok());
  CHECK(ended.error().find("dropped") != std::string::npos);
  CHECK(ended.error().find("pid ") != std::string::npos);
  CHECK_FALSE(quick->find_winner(key.sha256)->has_value());
  auto rows = quick->list();
  REQUIRE_OK(rows);
  REQUIRE(rows->size() == 1);
  CHECK((*rows)[0].last_outcome == "cancelled");
  REQUIRE_OK(quick->renew(stolen->lease));  // the thief's is untouched
}

TEST_CASE("a clock that was set back does not keep a lease alive for ever") {
  test::TempDir dir;
  fake_now = 1'800'000'000;
  auto store = open_with_fake_clock(dir / "j.db");
  REQUIRE_OK(store->claim(test::sample_key(), 10s, false));
  fake_now -= 86400;
  CHECK(store->claim(test::sample_key(), 10s, false)->state == State::acquired);
}

TEST_CASE(
    "who read the clock before waiting for the file does not take a live holder's lease for one of a set-back clock") {
  test::TempDir dir;
  fake_now = 1'800'000'000;
  auto store = open_with_fake_clock(dir / "j.db");
  REQUIRE_OK(store->claim(test::sample_key(), 10s, false));
  fake_now -= 5;  // what a wait of 5 s makes of it
  CHECK(store->claim(test::sample_key(), 10s, false)->state == State::held);
}

TEST_CASE("last_used_at never goes back and is written once a day") {
  test::TempDir dir;
  fake_now = 1'800'000'000;
  const auto key = test::sample_key();
  auto store = open_with_fake_clock(dir / "j.db");
  test::publish(*store, key);
  store::Database reader(dir / "j.db", 2 /* SQLITE_OPEN_READWRITE */);
  const auto used = [&] { return reader.integer("SELECT last_used_at FROM keys"); };
  CHECK(used() == 1'800'000'000);
  fake_now += 3600;
  REQUIRE_OK(store->find_winner(key.sha256));
  CHECK(used() == 1'800'000'000);
  fake_now += 86400;
  REQUIRE_OK(store->find_winner(key.sha256));
  CHECK(used() == fake_now);
  CHECK(reader.integer("SELECT last_used_at FROM artifacts WHERE artifact_id = (SELECT artifact_id FROM winners)") ==
        fake_now);
  const int64_t latest = fake_now;
  fake_now -= 10 * 86400;
  REQUIRE_OK(store->find_winner(key.sha256));
  CHECK(used() == latest);
}

TEST_CASE("liveness: a recycled pid, a zombie and a dead process are dead; elsewhere is unknown") {
  const store::ProcessId here = store::this_process();
  CHECK(here.pid == ::getpid());
  CHECK(here.start > 0);
  CHECK(here.pid_namespace > 0);
  CHECK(store::liveness(here, here) == store::Liveness::alive);
  store::ProcessId recycled = here;
  recycled.start += 1;
  CHECK(store::liveness(recycled, here) == store::Liveness::dead);
  for (auto change :
       {+[](store::ProcessId& p) { p.host = "elsewhere"; }, +[](store::ProcessId& p) { p.boot_id = "earlier"; },
        +[](store::ProcessId& p) { p.pid_namespace += 1; }}) {
    store::ProcessId far = recycled;
    change(far);
    CHECK(store::liveness(far, here) == store::Liveness::unknown);
  }
  int pipe_fds[2];
  REQUIRE(::pipe(pipe_fds) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const store::ProcessId mine = store::this_process();
    (void)!::write(pipe_fds[1], &mine.start, sizeof mine.start);
    ::pause();
    ::_exit(0);
  }
  store::ProcessId process = here;
  process.pid = child;
  REQUIRE(::read(pipe_fds[0], &process.start, sizeof process.start) == sizeof process.start);
  CHECK(store::liveness(process, here) == store::Liveness::alive);
  ::kill(child, SIGKILL);
  siginfo_t info{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) == 0);
  CHECK(store::liveness(process, here) == store::Liveness::dead);  // a zombie yet
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  CHECK(store::liveness(process, here) == store::Liveness::dead);
  ::close(pipe_fds[0]);
  ::close(pipe_fds[1]);
}

TEST_CASE("a holder of another boot or pid namespace is honoured until it expires") {
  store::Database database = store::open_memory();
  store::LeaseRequest request{test::sample_key().sha256, 10s, false, store::this_process()};
  store::LeaseRequest far = request;
  far.token = "far";
  far.process.boot_id = "another";
  far.process.pid = 1;
  far.process.start = 1;
  const int64_t now = 1'800'000'000;
  CHECK(store::claim(database, far, now).state == State::acquired);
  CHECK(store::claim(database, request, now + 20).state == State::held);
  CHECK(store::claim(database, request, now + 21).state == State::acquired);
  far.process.boot_id = request.process.boot_id;
  far.key_sha256 = test::sample_key(R"({"M":1})").sha256;
  request.key_sha256 = far.key_sha256;
  far.process.pid_namespace += 1;
  CHECK(store::claim(database, far, now).state == State::acquired);
  CHECK(store::claim(database, request, now + 20).state == State::held);
  // The same process in our own namespace is not alive, for it never started then.
  far.process.pid_namespace = request.process.pid_namespace;
  far.key_sha256 = test::sample_key(R"({"M":2})").sha256;
  request.key_sha256 = far.key_sha256;
  CHECK(store::claim(database, far, now).state == State::acquired);
  CHECK(store::claim(database, request, now).state == State::acquired);
}
