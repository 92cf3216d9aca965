#include <doctest/doctest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "base/clock.hpp"
#include "forks.hpp"
#include "samples.hpp"
#include "store/open.hpp"
#include "support/support.hpp"

using namespace jitune;
using namespace std::chrono_literals;
using State = store::Claim::State;
using test::Shared;
using test::start;
using test::wait_for;

namespace {

std::string problem(int i) {
  return "{\"M\":" + std::to_string(i) + "}";
}

}  // namespace

TEST_CASE("many processes may open a new file at once") {
  struct Start {
    std::atomic<int> ready{0};
    std::atomic<bool> go{false};
  };
  int failed = 0;
  for (int round = 0; round < 8; ++round) {
    test::TempDir dir;
    Shared<Start> gate;
    std::vector<pid_t> children;
    for (int i = 0; i < 24; ++i)
      children.push_back(start([&] {
        ++gate->ready;
        while (!gate->go) std::this_thread::sleep_for(1ms);
        test::Said said;
        store::Store::OpenOptions options;
        options.path = dir / "sub/j.db";
        options.log = &said.log;
        auto opened = store::Store::open(options);
        if (!opened.ok() || (*opened)->in_memory() || !said.codes.empty()) return 1;
        return (*opened)->record_failure(test::sample_artifact("{}").build_sha256, "", "compile_error", "x").ok() ? 0
                                                                                                                  : 2;
      }));
    while (gate->ready < 24) std::this_thread::sleep_for(1ms);
    gate->go = true;
    for (const pid_t child : children) failed += wait_for(child) != 0 ? 1 : 0;
    store::Database database(dir / "sub/j.db", SQLITE_OPEN_READWRITE);
    CHECK(database.integer("SELECT times FROM failures_seen") == 24);
    CHECK(database.text("PRAGMA journal_mode") == "wal");
  }
  CHECK(failed == 0);
}

TEST_CASE("processes that want the same keys tune each once, though some are killed on the way") {
  static constexpr int kKeys = 50;
  static constexpr int kProcesses = 8;
  static constexpr int kVictims = 3;
  struct Board {
    std::atomic<int> tuning[kKeys]{};
    std::atomic<int> published[kKeys]{};
    std::atomic<int> overlaps{0}, victims{0};
  };
  test::TempDir dir;
  const std::string path = dir / "j.db";
  Shared<Board> board;
  test::open_store(path);
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p)
    children.push_back(start([&, p] {
      auto store = store::Store::open({.path = path});
      if (!store.ok()) return 1;
      if (p < kVictims) {
        // Dies holding a key, when the others are at work.
        auto claim = (*store)->claim(test::sample_key(problem(p)), 60s, false);
        if (!claim.ok() || claim->state != State::acquired) return 6;
        if (!(*store)->begin_study(test::sample_key(problem(p)), test::sample_study()).ok()) return 7;
        ++board->victims;
        std::this_thread::sleep_for(20ms * (p + 1));
        ::raise(SIGKILL);
      }
      while (board->victims < kVictims) std::this_thread::sleep_for(1ms);
      for (int done = 0; done < kKeys;) {
        done = 0;
        for (int i = 0; i < kKeys; ++i) {
          const int k = (i + 7 * p) % kKeys;
          const auto key = test::sample_key(problem(k));
          auto claim = (*store)->claim(key, 60s, false);
          if (!claim.ok()) return 2;
          if (claim->state == State::answered) ++done;
          if (claim->state != State::acquired) continue;
          const int mine = static_cast<int>(::getpid());
          if (board->tuning[k].exchange(mine) != 0) ++board->overlaps;
          auto study = (*store)->begin_study(key, test::sample_study());
          if (!study.ok()) return 3;
          if (!(*store)->add_trial(*study, claim->lease, test::sample_trial(R"({"BLOCK":64})", 20)).ok()) return 4;
          if (board->tuning[k].exchange(0) != mine) ++board->overlaps;
          if (!(*store)->end_study(*study, claim->lease, {"won", ""}, test::sample_winner(R"({"BLOCK":64})", 20)).ok())
            return 5;
          ++board->published[k];
        }
      }
      return 0;
    }));
  int killed = 0;
  for (const pid_t child : children) {
    const int code = wait_for(child);
    killed += code == 128 + SIGKILL ? 1 : 0;
    CHECK((code == 0 || code == 128 + SIGKILL));
  }
  CHECK(killed == kVictims);
  CHECK(board->overlaps == 0);
  int published = 0;
  for (const auto& times : board->published) {
    CHECK(times == 1);
    published += times;
  }
  CHECK(published == kKeys);
  store::Database database(path, SQLITE_OPEN_READWRITE);
  CHECK(database.integer("SELECT count(*) FROM winners") == kKeys);
  CHECK(database.integer("SELECT count(*) FROM leases") == 0);
}

TEST_CASE("the key of a holder that was killed is taken over at once, though nobody has collected it") {
  test::TempDir dir;
  const std::string path = dir / "j.db";
  test::open_store(path);
  int fds[2];
  REQUIRE(::pipe(fds) == 0);
  const pid_t child = start([&] {
    auto store = store::Store::open({.path = path});
    if (!store.ok() || (*store)->claim(test::sample_key(), 600s, false)->state != State::acquired) return 1;
    (void)!::write(fds[1], "x", 1);
    ::pause();
    return 0;
  });
  char byte = 0;
  REQUIRE(::read(fds[0], &byte, 1) == 1);
  auto store = test::open_store(path);
  auto held = store->claim(test::sample_key(), 600s, false);
  REQUIRE_OK(held);
  CHECK(held->state == State::held);
  CHECK(held->holder_text.find("pid " + std::to_string(child) + " on ") == 0);
  ::kill(child, SIGKILL);
  siginfo_t info{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) == 0);
  const auto begin = Clock::now();
  CHECK(store->claim(test::sample_key(), 600s, false)->state == State::acquired);
  CHECK(ms_since(begin) < 5000);  // the lease would last 20 minutes
  wait_for(child);
  ::close(fds[0]);
  ::close(fds[1]);
}

TEST_CASE("killed at any moment, a process leaves a valid database without half of anything") {
  test::TempDir dir;
  const std::string path = dir / "j.db";
  test::open_store(path);
  int64_t winners = 0;
  Shared<std::atomic<int>> finished;
  for (int round = 0; round < 60; ++round) {
    const pid_t child = start([&] {
      auto store = store::Store::open({.path = path});
      if (!store.ok()) return 1;
      for (int i = 0;; ++i) {
        const auto key = test::sample_key(problem(1000 * round + i));
        const std::string config = R"({"BLOCK":)" + std::to_string(1000 * round + i) + "}";
        auto claim = (*store)->claim(key, 60s, false);
        auto study = (*store)->begin_study(key, test::sample_study());
        (void)(*store)->put_artifact(test::sample_artifact(config, std::string(30'000, 'x') + config),
                                     test::sample_source(), "s");
        (void)(*store)->put_artifact(test::sample_artifact(config + "l", std::string(9'000, 'y') + config),
                                     test::sample_source(), "s");
        (void)(*store)->add_trial(*study, claim->lease, test::sample_trial(config, 12));
        (void)(*store)->add_trial(*study, claim->lease, test::sample_trial(config + "l", 19));
        (void)(*store)->end_study(*study, claim->lease, {"won", ""},
                                  test::sample_winner(config, 12, std::string(30'000, 'x') + config));
        finished->fetch_add(1);
      }
      return 0;
    });
    // From before the first write to some studies later, in steps that no work is in step with; every other time not
    // before one study has ended, for on a loaded machine a process may not come that far by itself.
    const int before = finished->load();
    for (const auto begin = Clock::now(); round % 2 == 1 && finished->load() == before && ms_since(begin) < 20'000;)
      std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(std::chrono::microseconds(500 + 731 * round));
    ::kill(child, SIGKILL);
    CHECK(wait_for(child) == 128 + SIGKILL);
    auto store = test::open_store(path);
    CHECK_FALSE(store->in_memory());
    store::Database database(path, SQLITE_OPEN_READWRITE);
    if (round % 10 == 9) CHECK(database.text("PRAGMA integrity_check") == "ok");
    CHECK(database.text("PRAGMA foreign_key_check").empty());
    // A winner always has its cubin, its trial, and a study that has ended; the lease went with it.
    CHECK(database.integer(
              "SELECT count(*) FROM winners w LEFT JOIN artifacts a USING (artifact_id) LEFT JOIN cubins b ON "
              "b.cubin_sha256 = a.cubin_sha256 WHERE b.cubin IS NULL") == 0);
    CHECK(database.integer(
              "SELECT count(*) FROM winners w JOIN studies s USING (study_id) WHERE s.outcome IS NOT 'won'") == 0);
    CHECK(database.integer(
              "SELECT count(*) FROM studies s LEFT JOIN winners w USING (study_id) WHERE s.outcome = 'won' AND "
              "w.key_id IS NULL") == 0);
    CHECK(database.integer(
              "SELECT count(*) FROM leases l JOIN keys k USING (key_sha256) JOIN winners w USING (key_id)") == 0);
    CHECK(database.integer("SELECT count(*) FROM winners") >= winners);
    winners = database.integer("SELECT count(*) FROM winners");
  }
  CHECK(winners > 10);
}
