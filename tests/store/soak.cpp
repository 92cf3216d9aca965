// Many processes on one file. JITUNE_SOAK_ROUNDS and JITUNE_SOAK_SECONDS set how much: 1000 and 300 for the full size.
#include <doctest/doctest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <random>
#include <string>
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

namespace {

constexpr int kWriters = 64, kKeys = 400;

struct Board {
  std::atomic<int> tuning[kKeys]{};          // pid of who is between claim and end
  std::atomic<int64_t> committed{0};         // trials whose commit was reported
  std::atomic<int64_t> numbers[kWriters]{};  // of each writer: trials told as committed
  std::atomic<int> overlaps{0}, errors{0}, studies{0};
  std::atomic<int64_t> took[16]{};  // calls that took less than 1, 2, 4, ... ms
  std::atomic<bool> stop{false};

  template <class Call>
  auto timed(Call call) {
    const auto begin = Clock::now();
    auto result = call();
    const int width = std::bit_width(static_cast<unsigned>(ms_since(begin)));
    ++took[std::min(width, 15)];
    return result;
  }
};

/// Whether the process is there and at work: its parent may not have collected it yet.
bool is_running(int pid) {
  const auto stat = read_file("/proc/" + std::to_string(pid) + "/stat");
  return stat.ok() && stat->find(") Z") == std::string::npos && stat->find(") X") == std::string::npos;
}

class Writer {
 public:
  Writer(Board& board, std::string path, int slot) : board_(board), path_(std::move(path)), slot_(slot) {}

  int run(unsigned seed) {
    auto opened = board_.timed([&] { return store::Store::open({.path = path_, .log = &said_.log}); });
    if (!opened.ok()) return failed(1, opened.error());
    std::mt19937 random(seed);
    while (!board_.stop)
      if (const int step = tune(**opened, static_cast<int>(random() % kKeys)); step != 0) return step;
    return 0;
  }

 private:
  int tune(store::Store& store, int k) {
    const int mine = static_cast<int>(::getpid());
    const auto key = test::sample_key("{\"M\":" + std::to_string(k) + "}");
    auto claim = board_.timed([&] { return store.claim(key, 600s, true); });
    if (!claim.ok()) return failed(2, claim.error());
    if (store.in_memory()) return failed(6, "the store went to memory");
    if (claim->state != store::Claim::State::acquired) return 0;
    // Whom we took it over from is dead.
    const int before = board_.tuning[k].exchange(mine);
    if (before != 0 && before != mine && is_running(before)) ++board_.overlaps;
    auto study = board_.timed([&] { return store.begin_study(key, test::sample_study()); });
    if (!study.ok()) return failed(3, study.error());
    store::TrialRow trial = test::sample_trial(R"({"BLOCK":64})", 20);
    trial.error = std::to_string(slot_) + ":" + std::to_string(board_.numbers[slot_] + 1);
    const auto added = board_.timed([&] { return store.add_trial(*study, claim->lease, trial); });
    if (!added.ok() || !*added) return failed(4, added.ok() ? "the lease is lost" : added.error());
    if (!said_.codes.empty()) return failed(7, "a call waited for more than 5 s");
    ++board_.numbers[slot_];
    ++board_.committed;
    int me = mine;
    board_.tuning[k].compare_exchange_strong(me, 0);
    const auto winner = test::sample_winner(R"({"BLOCK":64})", 20);
    const auto ended = board_.timed([&] { return store.end_study(*study, claim->lease, {"won", ""}, winner); });
    if (!ended.ok()) return failed(5, ended.error());
    ++board_.studies;
    return 0;
  }

  int failed(int step, const std::string& why) {
    ++board_.errors;
    std::cerr << "writer " << slot_ << " failed at step " << step << ": " << why << '\n';
    for (const std::string& text : said_.texts) std::cerr << "  " << text << '\n';
    return step;
  }

  Board& board_;
  std::string path_;
  int slot_;
  test::Said said_;
};

/// Trials whose commit was told and that are not there. A writer killed between its commit and its saying so gives that
/// number again: never fewer rows than numbers, so none was lost.
int64_t lost_trials(const Board& board, store::Database& database) {
  int64_t lost = 0;
  for (int i = 0; i < kWriters; ++i) {
    store::Statement row = database.prepare("SELECT count(DISTINCT error) FROM trials WHERE error LIKE ? || ':%'");
    row.bind(std::to_string(i)).next();
    lost += std::max<int64_t>(0, board.numbers[i] - row.integer());
  }
  return lost;
}

int64_t size_of(const std::string& path) {
  std::error_code absent;
  const auto bytes = std::filesystem::file_size(path, absent);
  return absent ? 0 : static_cast<int64_t>(bytes);
}

/// Files that were set aside as damaged: they would hide what is lost.
int set_aside(const std::string& directory) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    files += entry.path().filename().string().find("corrupt") != std::string::npos ? 1 : 0;
  return files;
}

}  // namespace

TEST_CASE("64 writers, killed at random: the file stays whole, nothing committed is lost, no key has two tuners") {
  const int seconds = setting("JITUNE_SOAK_SECONDS", 20);
  test::TempDir dir;
  const std::string path = dir / "j.db";
  test::open_store(path);
  Shared<Board> board;
  const unsigned seed = static_cast<unsigned>(setting("JITUNE_SOAK_SEED", 7));
  std::mt19937 random(seed);
  std::vector<pid_t> children(kWriters);
  const auto begin = [&](size_t slot) {
    const auto its_seed = static_cast<unsigned>(random());
    children[slot] = start([&, slot, its_seed] { return Writer(*board, path, static_cast<int>(slot)).run(its_seed); });
  };
  for (size_t i = 0; i < kWriters; ++i) begin(i);
  int kills = 0;
  int64_t largest_log = 0;
  const auto end = Clock::now() + std::chrono::seconds(seconds);
  while (Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5 + random() % 40));
    const size_t victim = random() % kWriters;
    ::kill(children[victim], SIGKILL);
    kills += wait_for(children[victim]) == 128 + SIGKILL ? 1 : 0;
    begin(victim);
    largest_log = std::max(largest_log, size_of(path + "-wal"));
  }
  board->stop = true;
  for (const pid_t child : children) CHECK(wait_for(child) == 0);
  CHECK(set_aside(dir.path()) == 0);
  store::Database database(path, SQLITE_OPEN_READWRITE);
  const int64_t lost = lost_trials(*board, database);
  std::cout << seconds << " s, " << kWriters << " writers, " << kills << " killed: " << board->committed
            << " trials committed, " << lost << " lost, " << board->studies << " studies, " << board->overlaps
            << " overlaps, " << board->errors << " errors\nlog at most " << (largest_log >> 20) << " MiB, file "
            << (size_of(path) >> 20) << " MiB; calls by ms:";
  for (int i = 0; i < 16; ++i)
    if (board->took[i] > 0) std::cout << "  <" << (1 << i) << ": " << board->took[i];
  std::cout << '\n';
  CHECK(largest_log < int64_t{64} << 20);
  CHECK(kills > 10);
  CHECK(board->committed > 100);
  CHECK(lost == 0);
  CHECK(board->overlaps == 0);
  CHECK(board->errors == 0);
  CHECK(database.text("PRAGMA integrity_check") == "ok");
  CHECK(database.text("PRAGMA foreign_key_check").empty());
}
