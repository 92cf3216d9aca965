// Writers that wait for each other, and what a study keeps while it waits in vain.
#include <doctest/doctest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/clock.hpp"
#include "base/hash.hpp"
#include "forks.hpp"
#include "samples.hpp"
#include "store/open.hpp"
#include "store/queue.hpp"
#include "support/support.hpp"

using namespace jitune;
using namespace std::chrono_literals;

namespace {

/// A process that waits in line until it is killed; returns when it has its place.
pid_t stand_in_line(const std::string& path, bool hurry) {
  int fds[2];
  REQUIRE(::pipe(fds) == 0);
  const pid_t child = test::start([&] {
    store::WriteQueue queue(path);
    const auto place = queue.join(hurry);
    (void)!::write(fds[1], "x", 1);
    ::pause();
    return 0;
  });
  char byte = 0;
  REQUIRE(::read(fds[0], &byte, 1) == 1);
  ::close(fds[0]);
  ::close(fds[1]);
  return child;
}

void kill(pid_t child) {
  ::kill(child, SIGKILL);
  CHECK(test::wait_for(child) == 128 + SIGKILL);
}

}  // namespace

TEST_CASE("writers stand in line in the order in which they came, those in a hurry first, and the dead leave it") {
  test::TempDir dir;
  const std::string path = dir / "j.db.lock";
  store::WriteQueue queue(path);
  CHECK_FALSE(queue.has_waiters());
  const pid_t first = stand_in_line(path, false), second = stand_in_line(path, false);
  {
    const auto place = queue.join(false);
    CHECK(queue.has_waiters());
    CHECK(place.ahead(16) == 2);
    CHECK(place.ahead(1) == 1);
    const pid_t hasty = stand_in_line(path, true), later = stand_in_line(path, false);
    CHECK(place.ahead(16) == 3);
    kill(hasty);
    CHECK(place.ahead(16) == 2);
    kill(first);
    CHECK(place.ahead(16) == 1);
    store::WriteQueue other(path);
    CHECK(other.join(true).ahead(16) == 0);
    CHECK(other.join(false).ahead(16) == 3);
    kill(second);
    CHECK(place.ahead(16) == 0);
    kill(later);
  }
  CHECK_FALSE(queue.has_waiters());
}

TEST_CASE("without a file for the line there is none, and writers go on") {
  store::WriteQueue queue("/nowhere/j.db.lock");
  const auto place = queue.join(false);
  CHECK(place.ahead(16) == 0);
  CHECK_FALSE(queue.has_waiters());
}

TEST_CASE("a writer that stands still at the head of the line keeps nobody from writing") {
  test::TempDir dir;
  const std::string path = dir / "j.db";
  auto store = test::open_store(path);
  const pid_t stuck = stand_in_line(path + ".lock", true);
  store::Database other(path, SQLITE_OPEN_READWRITE);
  other.execute("BEGIN IMMEDIATE");
  std::thread release([&] {
    std::this_thread::sleep_for(50ms);
    other.execute("ROLLBACK");
  });
  const auto begin = Clock::now();
  for (int i = 0; i < 5; ++i)
    REQUIRE_OK(store->record_failure(test::sample_artifact("{}").build_sha256, "", "compile_error", "x"));
  CHECK(ms_since(begin) > 40);
  CHECK(ms_since(begin) < 4000);
  release.join();
  kill(stuck);
}

TEST_CASE("what a study finds while another process keeps the file locked is written when it is free") {
  test::TempDir dir;
  const std::string path = dir / "j.db";
  const auto key = test::sample_key();
  test::Said said;
  store::Store::OpenOptions options;
  options.path = path;
  options.log = &said.log;
  options.patience = 100ms;
  auto opened = store::Store::open(options);
  REQUIRE_OK(opened);
  std::unique_ptr<store::Store> store = std::move(*opened);
  auto claim = store->claim(key, 60s, false);
  REQUIRE_OK(claim);
  auto study = store->begin_study(key, test::sample_study());
  REQUIRE_OK(study);
  store::Database other(path, SQLITE_OPEN_READWRITE);
  other.execute("BEGIN IMMEDIATE");
  auto begin = Clock::now();
  for (const int block : {64, 128, 256})
    REQUIRE_OK(store->add_trial(*study, claim->lease,
                                test::sample_trial("{\"BLOCK\":" + std::to_string(block) + "}", 5000.0 / block)));
  CHECK(ms_since(begin) > 250);
  CHECK(said.codes == std::vector<std::string>{"database_busy"});
  begin = Clock::now();
  CHECK_FALSE(store->record_miss(key, "{}", "").ok());
  CHECK(ms_since(begin) < 2000);
  const auto winner = test::sample_winner(R"({"BLOCK":256})", 5000.0 / 256);
  SUBCASE("free before the study ends") {
    other.execute("ROLLBACK");
    REQUIRE_OK(store->end_study(*study, claim->lease, {"won", ""}, winner));
  }
  SUBCASE("free after the study has ended") {
    REQUIRE_OK(store->end_study(*study, claim->lease, {"won", ""}, winner));
    other.execute("ROLLBACK");
    CHECK_FALSE(store->find_winner(key.sha256)->has_value());
    SUBCASE("written with what comes next") {
      CHECK(store->claim(key, 60s, false)->state == store::Claim::State::answered);
    }
    SUBCASE("written at the end") {}
  }
  SUBCASE("taken by another process in the meantime") {
    REQUIRE_OK(store->end_study(*study, claim->lease, {"won", ""}, winner));
    other.execute("UPDATE leases SET holder = 'another'");
    other.execute("COMMIT");
    store.reset();
    CHECK(said.count("store_write") == 4);  // three trials and the end
    CHECK(said.texts.back().find("dropped") != std::string::npos);
    auto again = test::open_store(path);
    CHECK(again->trials_of(key.sha256)->size() == 3);
    CHECK_FALSE(again->find_winner(key.sha256)->has_value());
    CHECK(again->find_study(*study)->value().end.outcome == "cancelled");
    return;
  }
  store.reset();
  CHECK(said.count("store_write") == 0);
  auto again = test::open_store(path);
  auto trials = again->trials_of(key.sha256);
  REQUIRE_OK(trials);
  REQUIRE(trials->size() == 3);
  CHECK((*trials)[0].config == R"({"BLOCK":64})");
  CHECK((*trials)[2].config == R"({"BLOCK":256})");
  REQUIRE(again->find_winner(key.sha256)->has_value());
  CHECK((*again->find_winner(key.sha256))->config == R"({"BLOCK":256})");
  CHECK(again->claim(key, 60s, true)->state == store::Claim::State::acquired);  // the lease is gone
}

TEST_CASE("a study that begins while the file is locked is kept in memory, the key's claim with it") {
  test::TempDir dir;
  const std::string path = dir / "j.db";
  const auto key = test::sample_key();
  test::Said said;
  auto store = test::open_store(path, &said.log);
  store::Database other(path, SQLITE_OPEN_READWRITE);
  other.execute("BEGIN IMMEDIATE");
  auto begin = Clock::now();
  auto claim = store->claim(key, 300ms, false);  // waits no longer than the budget
  CHECK(ms_since(begin) < 2500);
  REQUIRE_OK(claim);
  CHECK(claim->state == store::Claim::State::acquired);
  begin = Clock::now();
  auto study = store->begin_study(key, test::sample_study());
  REQUIRE_OK(study);
  CHECK(store->add_trial(*study, claim->lease, test::sample_trial(R"({"BLOCK":256})", 20)).value());
  CHECK(ms_since(begin) < 2500);
  CHECK_FALSE(store->in_memory());
  CHECK(said.codes == std::vector<std::string>{"database_busy"});
  bool another_has_it = false;
  SUBCASE("and written when it is free") {
    other.execute("ROLLBACK");
  }
  SUBCASE("and dropped where another process has the key by then") {
    other.execute("ROLLBACK");
    CHECK(test::open_store(path)->claim(key, 60s, false)->state == store::Claim::State::acquired);
    another_has_it = true;
  }
  const auto winner = test::sample_winner(R"({"BLOCK":256})", 20);
  CHECK(store->end_study(*study, claim->lease, {"won", ""}, winner).ok() == !another_has_it);
  CHECK(store->find_winner(key.sha256)->has_value() == !another_has_it);
  CHECK(store->trials_of(key.sha256)->size() == 1);
  CHECK(said.count("store_write") == (another_has_it ? 2 : 0));  // the claim and the trial
  CHECK(test::open_store(path)->claim(key, 60s, true)->state ==
        (another_has_it ? store::Claim::State::held : store::Claim::State::acquired));
}

TEST_CASE("what a launch compiles does not wait for a locked file, and is stored when it is free") {
  test::TempDir dir;
  const std::string path = dir / "j.db";
  test::Said said;
  auto store = test::open_store(path, &said.log);
  store::Database other(path, SQLITE_OPEN_READWRITE);
  other.execute("BEGIN IMMEDIATE");
  const auto artifact = test::sample_artifact(R"({"BLOCK":64})");
  auto begin = Clock::now();
  for (int i = 0; i < 20; ++i) {
    auto one = artifact;
    one.build_sha256 = sha256_hex("build" + std::to_string(i));
    REQUIRE_OK(store->put_artifact(one, test::sample_source(), "source"));
    REQUIRE_OK(store->record_failure(one.build_sha256, "", "compile_crash", "x"));
  }
  CHECK(ms_since(begin) < 2000);  // 200 ms and what a loaded machine adds; not 40 times that
  CHECK(said.codes == std::vector<std::string>{"database_busy"});
  other.execute("ROLLBACK");
  store.reset();
  auto again = test::open_store(path);
  CHECK(again->health()->artifacts == 20);
  CHECK(again->known_failure(sha256_hex("build19"), "")->value() == "compile_crash");
}

TEST_CASE("who only reads gets in while another thread waits for a locked file") {
  test::TempDir dir;
  const std::string path = dir / "j.db";
  const auto key = test::sample_key();
  auto store = test::open_store(path);
  test::publish(*store, key);
  auto claim = store->claim(key, 60s, true);
  auto study = store->begin_study(key, test::sample_study());
  REQUIRE_OK(study);
  store::Database other(path, SQLITE_OPEN_READWRITE);
  other.execute("BEGIN IMMEDIATE");
  std::atomic<bool> done{false};
  std::thread tuning([&] {
    CHECK(store->add_trial(*study, claim->lease, test::sample_trial(R"({"BLOCK":64})", 20)).value());
    done = true;
  });
  std::this_thread::sleep_for(100ms);
  const auto begin = Clock::now();
  for (int i = 0; i < 5; ++i) {
    CHECK(store->find_winner(key.sha256)->has_value());
    CHECK(store->find_artifact(test::sample_artifact(R"({"BLOCK":128})").build_sha256)->has_value());
    CHECK(store->trials_of(key.sha256)->size() == 2);
  }
  CHECK(ms_since(begin) < 2500);
  CHECK_FALSE(done);  // it waits on, for its 5 s
  other.execute("ROLLBACK");
  tuning.join();
  CHECK(store->trials_of_study(*study)->size() == 1);
}
