// What else in this process may touch the database: our own code by other means than SQLite, and a second SQLite.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <filesystem>

#include "forks.hpp"
#include "samples.hpp"
#include "store/files_at.hpp"
#include "store/open.hpp"
#include "support/support.hpp"

using namespace jitune;
using namespace std::chrono_literals;

namespace {

/// Whether this process holds a lock on a byte of the file: seen by another one, as one's own are not told.
bool is_locked(const std::string& file, int64_t at) {
  const int code = test::wait_for(test::start([&] {
    const int fd = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = at;
    lock.l_len = 1;
    if (fd < 0 || ::fcntl(fd, F_GETLK, &lock) != 0) return 2;
    return lock.l_type == F_UNLCK ? 0 : 1;
  }));
  REQUIRE(code != 2);
  return code == 1;
}

uint64_t nfs(const std::string&) {
  return 0x6969;
}

}  // namespace

TEST_CASE("nothing that a store does drops a lock of this process on the file") {
  // To close any descriptor of a file drops all locks of the process on it, whoever took them.
  test::TempDir dir;
  const std::string path = dir / "j.db";
  store::Store::OpenOptions options;
  options.path = path;
  options.patience = 20ms;
  std::string locked = path + "-shm";
  int64_t at = 120;  // the writer's lock of SQLite's log
  SUBCASE("with a write-ahead log") {}
  SUBCASE("with a rollback journal") {
    options.file_system_type = nfs;
    locked = path;
    at = 0x40000001;  // RESERVED
  }
  auto opened = store::Store::open(options);
  REQUIRE_OK(opened);
  const auto key = test::sample_key();
  test::publish(**opened, key);
  store::Database holder(path, SQLITE_OPEN_READWRITE);
  CHECK_FALSE(is_locked(locked, at));
  holder.execute("BEGIN IMMEDIATE");
  REQUIRE(is_locked(locked, at));
  CHECK((*opened)->find_winner(key.sha256)->has_value());
  CHECK((*opened)->health().ok());
  CHECK((*opened)->list().ok());
  CHECK((*opened)->records(true).ok());
  CHECK_FALSE((*opened)->record_miss(key, "{}", "").ok());
  CHECK_FALSE((*opened)->collect(0).ok());
  CHECK(is_locked(locked, at));
  for (const bool read_only : {true, false}) {
    options.read_only = read_only;
    auto another = store::Store::open(options);
    REQUIRE_OK(another);
    CHECK((*another)->find_winner(key.sha256).ok());
    another->reset();
    CHECK(is_locked(locked, at));
  }
  store::look_at(path);
  CHECK(store::check_owners(path).ok());
  CHECK(store::create_empty(path).ok());
  store::on_network_file_system(path);
  opened->reset();
  CHECK(is_locked(locked, at));
  holder.execute("COMMIT");
  CHECK_FALSE(is_locked(locked, at));
}

TEST_CASE("a second SQLite in the process and ours leave each other alone") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  test::skip("a second SQLite", "a sanitizer does not follow into another namespace of symbols");
#else
  // As a host has it that brings its own copy: in a namespace of symbols of its own.
  void* const library = ::dlmopen(LM_ID_NEWLM, "libsqlite3.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    test::skip("a second SQLite", ::dlerror());
    return;
  }
  const auto open = reinterpret_cast<decltype(&sqlite3_open)>(::dlsym(library, "sqlite3_open"));
  const auto execute = reinterpret_cast<decltype(&sqlite3_exec)>(::dlsym(library, "sqlite3_exec"));
  const auto close = reinterpret_cast<decltype(&sqlite3_close)>(::dlsym(library, "sqlite3_close"));
  const auto shutdown = reinterpret_cast<decltype(&sqlite3_shutdown)>(::dlsym(library, "sqlite3_shutdown"));
  REQUIRE((open != nullptr && execute != nullptr && close != nullptr && shutdown != nullptr));
  CHECK(reinterpret_cast<void*>(open) != reinterpret_cast<void*>(&sqlite3_open));
  test::TempDir dir;
  auto store = test::open_store(dir / "j.db");
  const auto key = test::sample_key();
  sqlite3* theirs = nullptr;
  REQUIRE(open((dir / "theirs.db").c_str(), &theirs) == SQLITE_OK);
  CHECK(execute(theirs, "PRAGMA journal_mode=WAL; CREATE TABLE t (x); BEGIN; INSERT INTO t VALUES (1)", nullptr,
                nullptr, nullptr) == SQLITE_OK);
  test::publish(*store, key);
  CHECK(execute(theirs, "COMMIT", nullptr, nullptr, nullptr) == SQLITE_OK);
  CHECK(close(theirs) == SQLITE_OK);
  CHECK(shutdown() == SQLITE_OK);
  test::publish(*store, test::sample_key(R"({"M":1})"));
  CHECK(store->find_winner(key.sha256)->has_value());
  CHECK(store->health()->quick_check == "ok");
  store.reset();
  CHECK(store::Database(dir / "theirs.db", SQLITE_OPEN_READWRITE).integer("SELECT x FROM t") == 1);
  ::dlclose(library);
#endif
}
