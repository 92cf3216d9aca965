#include <doctest/doctest.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/clock.hpp"
#include "samples.hpp"
#include "store/open.hpp"
#include "support/support.hpp"

using namespace jitune;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

void overwrite(const std::string& path, std::streamoff at, const std::string& bytes) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(at);
  file << bytes;
  REQUIRE(file.good());
}

std::vector<std::string> files_with(const std::string& directory, const std::string& part) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory))
    if (entry.path().filename().string().find(part) != std::string::npos)
      names.push_back(entry.path().filename().string());
  return names;
}

store::Database open_raw(const std::string& path) {
  return {path, SQLITE_OPEN_READWRITE};
}

}  // namespace

TEST_CASE("a damaged file is moved away with one warning, and the work goes on in a fresh one") {
  test::TempDir dir;
  const std::string path = dir / "j.db";
  {
    auto store = test::open_store(path);
    for (int i = 0; i < 40; ++i) test::publish(*store, test::sample_key("{\"M\":" + std::to_string(i) + "}"));
  }
  test::write_file(dir / "j.db.corrupt-20200101T000000Z", "an earlier one");
  test::write_file(dir / "j.db.corrupt-20200101T000000Z-wal", "an earlier one");
  test::write_file(dir / "other.db.corrupt-20200101T000000Z", "not ours");
  const auto size = static_cast<std::streamoff>(fs::file_size(path));
  SUBCASE("header overwritten") {
    overwrite(path, 0, std::string(100, '\xa5'));
  }
  SUBCASE("first page zeroed") {
    overwrite(path, 0, std::string(4096, '\0'));
  }
  SUBCASE("truncated") {
    fs::resize_file(path, static_cast<uintmax_t>(size / 2));
  }
  SUBCASE("cut to its first page") {
    fs::resize_file(path, 4096);
  }
  SUBCASE("every page after the first overwritten") {
    overwrite(path, 4096, std::string(static_cast<size_t>(size) - 4096, '\x5a'));
  }
  test::Said said;
  store::Store::OpenOptions options;
  options.path = path;
  options.log = &said.log;
  options.must_be_file = true;  // for jit-prewarm too
  auto opened = store::Store::open(options);
  REQUIRE_OK(opened);
  store::Store& store = **opened;
  const auto key = test::sample_key("{\"M\":3}");
  CHECK_FALSE(store.find_winner(key.sha256)->has_value());
  test::publish(store, key);
  CHECK_FALSE(store.in_memory());
  CHECK(said.count("database_corrupt") == 1);
  CHECK(said.codes.size() == 1);
  CHECK(said.texts[0].find(".recover") != std::string::npos);
  auto health = store.health();
  REQUIRE_OK(health);
  CHECK(health->quick_check == "ok");
  CHECK(health->keys == 1);
  const auto kept = files_with(dir.path(), "j.db.corrupt-");
  size_t ours = 0;
  for (const std::string& name : kept) {
    CHECK(name.find("20200101") == std::string::npos);
    ours += name.ends_with("Z") ? 1 : 0;
  }
  CHECK(ours == 1);
  CHECK(fs::exists(dir / "other.db.corrupt-20200101T000000Z"));
}

TEST_CASE("damage that shows while a study runs costs what was stored, not the study") {
  test::TempDir dir;
  const std::string path = dir / "j.db";
  {
    auto store = test::open_store(path);
    for (int i = 0; i < 40; ++i) test::publish(*store, test::sample_key("{\"M\":" + std::to_string(i) + "}"));
  }
  test::Said said;
  auto store = test::open_store(path, &said.log);
  const auto key = test::sample_key();
  auto claim = store->claim(key, 8s, false);
  auto study = store->begin_study(key, test::sample_study());
  REQUIRE_OK(study);
  const auto size = static_cast<std::streamoff>(fs::file_size(path));
  overwrite(path, 4096, std::string(static_cast<size_t>(size) - 4096, '\x5a'));
  REQUIRE_OK(store->add_trial(*study, claim->lease, test::sample_trial(R"({"BLOCK":64})", 20)));
  REQUIRE_OK(store->end_study(*study, claim->lease, {"won", ""}, test::sample_winner(R"({"BLOCK":64})", 20)));
  CHECK_FALSE(store->find_winner(test::sample_key("{\"M\":3}").sha256)->has_value());
  CHECK(store->find_winner(key.sha256)->has_value());
  CHECK(said.count("database_corrupt") <= 1);
  CHECK_FALSE(store->in_memory());
  CHECK(store->health()->quick_check == "ok");
}

TEST_CASE("a damaged cubin is dropped and the config kept") {
  test::TempDir dir;
  const std::string path = dir / "j.db";
  const auto key = test::sample_key();
  test::publish(*test::open_store(path), key);
  const auto artifact = test::sample_artifact(R"({"BLOCK":128})");
  open_raw(path).execute("UPDATE cubins SET cubin = CAST('damaged' AS BLOB)");
  SUBCASE("seen through the winner") {
    test::Said said;
    auto store = test::open_store(path, &said.log);
    auto found = store->find_winner(key.sha256);
    REQUIRE_OK(found);
    REQUIRE(found->has_value());
    CHECK((*found)->config == R"({"BLOCK":128})");
    REQUIRE((*found)->artifact.has_value());
    CHECK((*found)->artifact->cubin.empty());
    CHECK(said.count("cubin_damaged") == 1);
    CHECK(open_raw(path).integer("SELECT count(*) FROM cubins") == 0);
    // Compiled again, it serves.
    REQUIRE_OK(store->put_artifact(test::sample_artifact(R"({"BLOCK":128})", "again"), test::sample_source(), ""));
    CHECK((*store->find_winner(key.sha256))->artifact->cubin == "again");
  }
  SUBCASE("seen through the artifact") {
    test::Said said;
    auto store = test::open_store(path, &said.log);
    auto found = store->find_artifact(artifact.build_sha256);
    REQUIRE_OK(found);
    CHECK((*found)->cubin.empty());
    CHECK((*found)->status == "ok");
    CHECK(said.count("cubin_damaged") == 1);
  }
  SUBCASE("gone altogether") {
    open_raw(path).execute("DELETE FROM cubins");
    auto store = test::open_store(path);
    auto found = store->find_winner(key.sha256);
    REQUIRE_OK(found);
    CHECK((*found)->artifact->cubin.empty());
  }
}

TEST_CASE("a file that is deleted or replaced under us is opened anew before the next write") {
  test::TempDir dir;
  const std::string path = dir / "j.db";
  test::Said said;
  auto store = test::open_store(path, &said.log);
  const auto key = test::sample_key();
  auto claim = store->claim(key, 8s, false);
  auto study = store->begin_study(key, test::sample_study());
  REQUIRE_OK(study);
  SUBCASE("deleted") {
    for (const char* suffix : {"", "-wal", "-shm"}) fs::remove(path + suffix);
  }
  SUBCASE("only the main file deleted") {
    fs::remove(path);
  }
  SUBCASE("replaced by another of ours") {
    test::publish(*test::open_store(dir / "other.db"), test::sample_key(R"({"M":9})"));
    for (const char* suffix : {"", "-wal", "-shm"}) fs::remove(path + suffix);
    fs::rename(dir / "other.db", path);
  }
  REQUIRE_OK(store->add_trial(*study, claim->lease, test::sample_trial(R"({"BLOCK":64})", 20)));
  REQUIRE_OK(store->end_study(*study, claim->lease, {"won", ""}, test::sample_winner(R"({"BLOCK":64})", 20)));
  CHECK_FALSE(store->in_memory());
  store.reset();
  CHECK(said.codes.empty());
  auto again = test::open_store(path);
  CHECK(again->find_winner(key.sha256)->has_value());
  CHECK(again->trials_of(key.sha256)->size() == 1);
  CHECK(again->health()->quick_check == "ok");
}

TEST_CASE("a file that becomes someone else's is not written; the study goes on in memory") {
  test::TempDir dir;
  const std::string path = dir / "j.db";
  test::Said said;
  auto store = test::open_store(path, &said.log);
  const auto key = test::sample_key();
  auto claim = store->claim(key, 8s, false);
  auto study = store->begin_study(key, test::sample_study());
  REQUIRE_OK(study);
  for (const char* suffix : {"", "-wal", "-shm"}) fs::remove(path + suffix);
  test::write_file(path, "a shopping list");
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
  REQUIRE_OK(store->add_trial(*study, claim->lease, test::sample_trial(R"({"BLOCK":64})", 20)));
  REQUIRE_OK(store->end_study(*study, claim->lease, {"won", ""}, test::sample_winner(R"({"BLOCK":64})", 20)));
  CHECK(store->in_memory());
  CHECK(store->find_winner(key.sha256)->has_value());
  CHECK(said.count("database_foreign") == 1);
  CHECK(fs::file_size(path) == 15);
}

TEST_CASE("a locked file: launches wait 200 ms at most and readers not at all") {
  test::TempDir dir;
  const std::string path = dir / "j.db";
  const auto key = test::sample_key();
  test::Said said;
  auto store = test::open_store(path, &said.log);
  test::publish(*store, key);
  store::Database other = open_raw(path);
  other.execute("BEGIN EXCLUSIVE; DELETE FROM configs WHERE 0");
  auto start = Clock::now();
  auto found = store->find_winner(key.sha256);
  CHECK(found.ok());
  CHECK(ms_since(start) < 1000);  // not the 5 s that work waits; a loaded machine adds to it
  start = Clock::now();
  auto missed = store->record_miss(key, "{}", "");
  CHECK_FALSE(missed.ok());
  CHECK(missed.error().find("locked") != std::string::npos);
  CHECK(ms_since(start) > 150);
  double least = ms_since(start);
  for (int i = 0; i < 3 && least > 300; ++i) {  // a loaded machine adds to it, but not each time
    test::Said unheard;
    auto another = test::open_store(path, &unheard.log);
    start = Clock::now();
    CHECK_FALSE(another->record_miss(key, "{}", "").ok());
    least = std::min(least, ms_since(start));
  }
  CHECK(least < 300);
  // The next one does not wait again.
  start = Clock::now();
  CHECK_FALSE(store->record_miss(key, "{}", "").ok());
  CHECK(ms_since(start) < 150);
  // Work waits until the other is done.
  std::thread release([&] {
    std::this_thread::sleep_for(300ms);
    other.execute("ROLLBACK");
  });
  start = Clock::now();
  CHECK(store->keep_until_tuned(test::sample_artifact("{}").build_sha256, "{}").ok());
  release.join();
  CHECK(ms_since(start) > 250);
  CHECK(said.codes == std::vector<std::string>{"database_busy"});
  CHECK_FALSE(store->in_memory());
}

TEST_CASE("after fork the child does not touch the parent's connection, and can open its own") {
  test::TempDir dir;
  const std::string path = dir / "j.db";
  auto store = test::open_store(path);
  const auto key = test::sample_key();
  test::publish(*store, key);
  const pid_t child = ::fork();
  if (child == 0) {
    auto found = store->find_winner(key.sha256);
    if (found.ok() || found.error().find("forked") == std::string::npos) ::_exit(1);
    if (store->record_miss(key, "{}", "").ok() || store->health().ok()) ::_exit(2);
    store.reset();
    auto own = store::Store::open({.path = path});
    if (!own.ok() || !(*own)->find_winner(key.sha256)->has_value()) ::_exit(3);
    own->reset();
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(fs::exists(path + "-wal"));  // the child's close has left the parent's log
  test::publish(*store, test::sample_key(R"({"M":1})"));
  CHECK(store->health()->quick_check == "ok");
}

TEST_CASE("triggers and views in the file do nothing to us") {
  test::TempDir dir;
  const std::string path = dir / "j.db";
  test::open_store(path);
  open_raw(path).execute(
      "CREATE TRIGGER trap AFTER INSERT ON keys BEGIN DELETE FROM keys; END;"
      "CREATE TRIGGER trap2 AFTER INSERT ON trials BEGIN UPDATE trials SET median_us = 0.001; END;"
      "CREATE VIEW trap3 AS SELECT load_extension('evil.so')");
  auto store = test::open_store(path);
  test::publish(*store, test::sample_key());
  CHECK(store->find_winner(test::sample_key().sha256)->has_value());
  CHECK(store->trials_of(test::sample_key().sha256)->size() == 2);
}

TEST_CASE("a log hook may call the store") {
  test::TempDir dir;
  static store::Store* target;
  static int calls;
  calls = 0;
  Log log(LogHook{[](void*, const Event&) noexcept {
                    ++calls;
                    if (target != nullptr) (void)target->list();
                  },
                  nullptr},
          Log::Threshold::warn, false);
  const std::string path = dir / "j.db";
  const auto key = test::sample_key();
  test::publish(*test::open_store(path), key);
  open_raw(path).execute("UPDATE cubins SET cubin = CAST('damaged' AS BLOB)");
  auto store = test::open_store(path, &log);
  target = store.get();
  REQUIRE_OK(store->find_winner(key.sha256));
  CHECK(calls == 1);
  target = nullptr;
}

TEST_CASE("many threads on one store") {
  test::TempDir dir;
  auto store = test::open_store(dir / "j.db");
  std::atomic<int> bad{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) {
        const auto key = test::sample_key("{\"M\":" + std::to_string(100 * t + i) + "}");
        auto claim = store->claim(key, 8s, false);
        auto study = store->begin_study(key, test::sample_study());
        if (!claim.ok() || !study.ok() ||
            !store->add_trial(*study, claim->lease, test::sample_trial(R"({"BLOCK":64})", 20)).ok() ||
            !store->end_study(*study, claim->lease, {"won", ""}, test::sample_winner(R"({"BLOCK":64})", 20)).ok() ||
            !store->list().ok())
          ++bad;
        auto found = store->find_winner(key.sha256);
        if (!found.ok() || !found->has_value()) ++bad;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(bad == 0);
  CHECK(store->list()->size() == 40);
}

TEST_CASE("what was looked up before is looked up anew when anybody has changed the file") {
  test::TempDir dir;
  const std::string path = dir / "j.db";
  const auto key = test::sample_key();
  test::Said said;
  auto store = test::open_store(path, &said.log);
  auto other = test::open_store(path);
  test::publish(*store, key);
  const auto config = [&] {
    const auto found = store->find_winner(key.sha256);
    return found.ok() && found->has_value() ? (*found)->config : std::string("nothing");
  };
  for (int i = 0; i < 3; ++i) CHECK(config() == R"({"BLOCK":128})");
  test::publish(*other, key, R"({"BLOCK":256})");
  for (int i = 0; i < 3; ++i) CHECK(config() == R"({"BLOCK":256})");
  REQUIRE_OK(store->set_pinned(key.sha256, true));
  CHECK((*store->find_winner(key.sha256))->pinned);
  open_raw(path).execute("UPDATE cubins SET cubin = CAST('damaged' AS BLOB)");
  CHECK(config() == R"({"BLOCK":256})");
  CHECK((*store->find_winner(key.sha256))->artifact->cubin.empty());
  CHECK(said.count("cubin_damaged") == 1);
  open_raw(path).execute("DELETE FROM winners");
  CHECK(config() == "nothing");
}
