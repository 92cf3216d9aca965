// Many processes on one new file. JITUNE_SOAK_ROUNDS sets how often: 1000 for the full size.
#include <doctest/doctest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <thread>

#include "base/clock.hpp"
#include "base/files.hpp"
#include "forks.hpp"
#include "samples.hpp"
#include "store/open.hpp"
#include "support/support.hpp"

using namespace jitune;
using namespace std::chrono_literals;
using test::Shared;
using test::start;
using test::wait_for;

namespace {

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
