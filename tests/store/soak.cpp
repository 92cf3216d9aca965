// Many processes on one file. JITUNE_SOAK_ROUNDS and JITUNE_SOAK_SECONDS set how much: 1000 and 300 for the full size.
#include <doctest/doctest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <new>
#include <random>
#include <thread>

#include "base/clock.hpp"
#include "base/files.hpp"
#include "samples.hpp"
#include "store/open.hpp"
#include "support/support.hpp"

using namespace jitune;
using namespace std::chrono_literals;

namespace {

template <class T>
class Shared {
 public:
  Shared() {
    void* memory = ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    value_ = new (memory) T();
  }
  ~Shared() { ::munmap(value_, sizeof(T)); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  T* operator->() { return value_; }

 private:
  T* value_;
};

pid_t start(const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work());
  REQUIRE(child > 0);
  return child;
}

int wait_for(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int setting(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

}  // namespace

TEST_CASE("32 processes open a new file at the same moment, again and again") {
  static constexpr int kProcesses = 32;
  const int rounds = setting("JITUNE_SOAK_ROUNDS", 60);
  struct Board {
    std::atomic<int> arrived{0}, left{0}, round{-1}, failed{0};
    std::atomic<int64_t> collisions{0};
  };
  Shared<Board> board;
  test::TempDir dir;
  const auto path_of = [&](int round) { return dir / ("r" + std::to_string(round) + "/j.db"); };
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p)
    children.push_back(start([&] {
      for (int round = 0; round < rounds; ++round) {
        ++board->arrived;
        while (board->round < round) std::this_thread::sleep_for(500us);
        const int64_t before = store::busy_waits();
        {
          test::Said said;
          auto opened = store::Store::open({.path = path_of(round), .log = &said.log});
          const bool good =
              opened.ok() && !(*opened)->in_memory() &&
              (*opened)->record_failure(test::sample_artifact("{}").build_sha256, "", "compile_error", "x").ok() &&
              said.codes.empty();
          if (!good) ++board->failed;
        }
        board->collisions += store::busy_waits() - before;
        ++board->left;
      }
      return 0;
    }));
  int64_t wrong = 0;
  for (int round = 0; round < rounds; ++round) {
    while (board->arrived < kProcesses * (round + 1)) std::this_thread::sleep_for(500us);
    board->round = round;
    while (board->left < kProcesses * (round + 1)) std::this_thread::sleep_for(500us);
    {
      store::Database database(path_of(round), SQLITE_OPEN_READWRITE);
      wrong += database.integer("SELECT times FROM failures_seen") != kProcesses ? 1 : 0;
      wrong += database.text("PRAGMA journal_mode") != "wal" ? 1 : 0;
    }
    std::filesystem::remove_all(dir / ("r" + std::to_string(round)));
  }
  for (const pid_t child : children) CHECK(wait_for(child) == 0);
  std::cout << rounds << " rounds of " << kProcesses << " processes: " << board->failed << " errors, "
            << board->collisions << " collisions waited out\n";
  CHECK(board->failed == 0);
  CHECK(wrong == 0);
  CHECK(board->collisions > 0);
}

TEST_CASE("64 writers, killed at random: the file stays whole, nothing committed is lost, no key has two tuners") {
  static constexpr int kWriters = 64, kKeys = 400;
  const int seconds = setting("JITUNE_SOAK_SECONDS", 20);
  struct Board {
    std::atomic<int> tuning[kKeys]{};          // pid of who is between claim and end
    std::atomic<int64_t> committed{0};         // trials whose commit was reported
    std::atomic<int64_t> numbers[kWriters]{};  // of each writer: trials told as committed
    std::atomic<int> overlaps{0}, errors{0}, studies{0};
    std::atomic<bool> stop{false};
  };
  test::TempDir dir;
  const std::string path = dir / "j.db";
  test::open_store(path);
  Shared<Board> board;
  const auto writer = [&](int slot, unsigned seed) {
    auto opened = store::Store::open({.path = path});
    if (!opened.ok() || (*opened)->in_memory()) return ++board->errors, 1;
    store::Store& store = **opened;
    std::mt19937 random(seed);
    const int mine = static_cast<int>(::getpid());
    while (!board->stop) {
      const int k = static_cast<int>(random() % kKeys);
      const auto key = test::sample_key("{\"M\":" + std::to_string(k) + "}");
      auto claim = store.claim(key, 600s, true);
      if (!claim.ok()) return ++board->errors, 2;
      if (claim->state != store::Claim::State::acquired) continue;
      // Whom we took it over from is dead.
      const int before = board->tuning[k].exchange(mine);
      if (before != 0 && before != mine && ::kill(before, 0) == 0) {
        // Its parent may not have collected it yet.
        const auto stat = read_file("/proc/" + std::to_string(before) + "/stat");
        if (stat.ok() && stat->find(") Z") == std::string::npos && stat->find(") X") == std::string::npos)
          ++board->overlaps;
      }
      auto study = store.begin_study(key, test::sample_study());
      if (!study.ok()) return ++board->errors, 3;
      const std::string number = std::to_string(slot) + ":" + std::to_string(board->numbers[slot] + 1);
      store::TrialRow trial = test::sample_trial(R"({"BLOCK":64})", 20);
      trial.error = number;
      if (!store.add_trial(*study, claim->lease, trial).ok()) return ++board->errors, 4;
      ++board->numbers[slot];
      ++board->committed;
      int me = mine;
      board->tuning[k].compare_exchange_strong(me, 0);
      if (!store.end_study(*study, claim->lease, {"won", ""}, test::sample_winner(R"({"BLOCK":64})", 20)).ok())
        return ++board->errors, 5;
      ++board->studies;
    }
    return 0;
  };
  const unsigned seed = static_cast<unsigned>(setting("JITUNE_SOAK_SEED", 7));
  std::mt19937 random(seed);
  std::vector<pid_t> children(kWriters);
  for (int i = 0; i < kWriters; ++i)
    children[static_cast<size_t>(i)] = start([&, i] { return writer(i, seed + 1000U * static_cast<unsigned>(i)); });
  int kills = 0;
  const auto end = Clock::now() + std::chrono::seconds(seconds);
  while (Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5 + random() % 40));
    const size_t victim = random() % kWriters;
    ::kill(children[victim], SIGKILL);
    kills += wait_for(children[victim]) == 128 + SIGKILL ? 1 : 0;
    const auto next = static_cast<unsigned>(random());
    children[victim] = start([&, victim, next] { return writer(static_cast<int>(victim), next); });
  }
  board->stop = true;
  for (const pid_t child : children) CHECK(wait_for(child) == 0);
  store::Database database(path, SQLITE_OPEN_READWRITE);
  int64_t lost = 0;
  for (int i = 0; i < kWriters; ++i) {
    // A writer killed between its commit and its saying so gives that number again: never fewer, so none was lost.
    const std::string sql = "SELECT count(DISTINCT error) FROM trials WHERE error LIKE '" + std::to_string(i) + ":%'";
    lost += std::max<int64_t>(0, board->numbers[i] - database.integer(sql.c_str()));
  }
  std::cout << seconds << " s, " << kWriters << " writers, " << kills << " killed: " << board->committed
            << " trials committed, " << lost << " lost, " << board->studies << " studies, " << board->overlaps
            << " overlaps, " << board->errors << " errors\n";
  CHECK(kills > 10);
  CHECK(board->committed > 100);
  CHECK(lost == 0);
  CHECK(board->overlaps == 0);
  CHECK(board->errors == 0);
  CHECK(database.text("PRAGMA integrity_check") == "ok");
  CHECK(database.text("PRAGMA foreign_key_check").empty());
}
