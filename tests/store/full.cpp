#include <doctest/doctest.h>
#include <signal.h>
#include <sqlite3.h>

#include <cstring>
#include <filesystem>
#include <functional>

#include "forks.hpp"
#include "samples.hpp"
#include "store/open.hpp"
#include "store/schema.hpp"
#include "support/support.hpp"

// A file system that fails or kills its process when told: a layer between SQLite and the real one, the default one
// while a test uses it.

using namespace jitune;
using namespace std::chrono_literals;

namespace {

struct Plan {
  int writes_left = -1;  ///< the write after these fails, and all that follow; negative: none does
  int code = SQLITE_FULL;
  int failed = 0;
  int64_t room = -1;    ///< bytes that the main file and its log may have together; negative: any
  int steps_left = -1;  ///< the write, truncation, sync or lock after these is the process's last; negative: none is
};
Plan plan;

struct ShimFile {
  sqlite3_file base;
  sqlite3_file* real;
  const char* name;  ///< null for a temporary file
};

sqlite3_vfs* real_vfs = nullptr;
sqlite3_vfs shim_vfs;
sqlite3_io_methods shim_methods;

sqlite3_file* real_of(sqlite3_file* file) {
  return reinterpret_cast<ShimFile*>(file)->real;
}

int64_t size_of(const std::string& path) {
  std::error_code absent;
  const auto bytes = std::filesystem::file_size(path, absent);
  return absent ? 0 : static_cast<int64_t>(bytes);
}

/// Whether to write up to `end` of a file would take more room than there is.
bool has_no_room(const ShimFile& file, int64_t end) {
  if (plan.room < 0 || file.name == nullptr) return false;
  const std::string path = file.name, main = path.substr(0, path.rfind("-wal"));
  const int64_t more = end - size_of(path);
  return more > 0 && size_of(main) + size_of(main + "-wal") + more > plan.room;
}

bool fails(const ShimFile& file, int64_t end) {
  if (has_no_room(file, end)) {
    ++plan.failed;
    return true;
  }
  if (plan.writes_left < 0) return false;
  if (plan.writes_left > 0) {
    --plan.writes_left;
    return false;
  }
  ++plan.failed;
  return true;
}

/// Before each of them.
void may_die() {
  if (plan.steps_left >= 0 && plan.steps_left-- == 0) ::raise(SIGKILL);
}

int shim_open(sqlite3_vfs*, sqlite3_filename name, sqlite3_file* file, int flags, int* out_flags) {
  auto* shim = reinterpret_cast<ShimFile*>(file);
  shim->real = reinterpret_cast<sqlite3_file*>(shim + 1);
  shim->name = name;
  const int code = real_vfs->xOpen(real_vfs, name, shim->real, flags, out_flags);
  shim->base.pMethods = shim->real->pMethods != nullptr ? &shim_methods : nullptr;
  return code;
}

void make_methods() {
  shim_methods = {};
  shim_methods.iVersion = 3;
  shim_methods.xClose = [](sqlite3_file* f) { return real_of(f)->pMethods->xClose(real_of(f)); };
  shim_methods.xRead = [](sqlite3_file* f, void* b, int n, sqlite3_int64 o) {
    return real_of(f)->pMethods->xRead(real_of(f), b, n, o);
  };
  shim_methods.xWrite = [](sqlite3_file* f, const void* b, int n, sqlite3_int64 o) {
    may_die();
    return fails(*reinterpret_cast<ShimFile*>(f), o + n) ? plan.code
                                                         : real_of(f)->pMethods->xWrite(real_of(f), b, n, o);
  };
  shim_methods.xTruncate = [](sqlite3_file* f, sqlite3_int64 n) {
    may_die();
    return real_of(f)->pMethods->xTruncate(real_of(f), n);
  };
  shim_methods.xSync = [](sqlite3_file* f, int n) {
    may_die();
    return real_of(f)->pMethods->xSync(real_of(f), n);
  };
  shim_methods.xFileSize = [](sqlite3_file* f, sqlite3_int64* n) {
    return real_of(f)->pMethods->xFileSize(real_of(f), n);
  };
  shim_methods.xLock = [](sqlite3_file* f, int n) { return real_of(f)->pMethods->xLock(real_of(f), n); };
  shim_methods.xUnlock = [](sqlite3_file* f, int n) { return real_of(f)->pMethods->xUnlock(real_of(f), n); };
  shim_methods.xCheckReservedLock = [](sqlite3_file* f, int* n) {
    return real_of(f)->pMethods->xCheckReservedLock(real_of(f), n);
  };
  shim_methods.xFileControl = [](sqlite3_file* f, int op, void* a) {
    return real_of(f)->pMethods->xFileControl(real_of(f), op, a);
  };
  shim_methods.xSectorSize = [](sqlite3_file* f) { return real_of(f)->pMethods->xSectorSize(real_of(f)); };
  shim_methods.xDeviceCharacteristics = [](sqlite3_file* f) {
    return real_of(f)->pMethods->xDeviceCharacteristics(real_of(f));
  };
  shim_methods.xShmMap = [](sqlite3_file* f, int p, int s, int e, void volatile** m) {
    return real_of(f)->pMethods->xShmMap(real_of(f), p, s, e, m);
  };
  shim_methods.xShmLock = [](sqlite3_file* f, int o, int n, int g) {
    may_die();
    return real_of(f)->pMethods->xShmLock(real_of(f), o, n, g);
  };
  // Between the two copies that the log's index has of its own head, for one.
  shim_methods.xShmBarrier = [](sqlite3_file* f) {
    may_die();
    real_of(f)->pMethods->xShmBarrier(real_of(f));
  };
  shim_methods.xShmUnmap = [](sqlite3_file* f, int d) { return real_of(f)->pMethods->xShmUnmap(real_of(f), d); };
  shim_methods.xFetch = [](sqlite3_file* f, sqlite3_int64 o, int n, void** p) {
    return real_of(f)->pMethods->xFetch(real_of(f), o, n, p);
  };
  shim_methods.xUnfetch = [](sqlite3_file* f, sqlite3_int64 o, void* p) {
    return real_of(f)->pMethods->xUnfetch(real_of(f), o, p);
  };
}

class FailingFiles {
 public:
  FailingFiles() {
    real_vfs = sqlite3_vfs_find(nullptr);
    make_methods();
    shim_vfs = *real_vfs;
    shim_vfs.zName = "failing";
    shim_vfs.pNext = nullptr;
    shim_vfs.szOsFile = static_cast<int>(sizeof(ShimFile)) + real_vfs->szOsFile;
    shim_vfs.xOpen = shim_open;
    plan = {};
    sqlite3_vfs_register(&shim_vfs, 1);
  }
  ~FailingFiles() {
    sqlite3_vfs_register(real_vfs, 1);
    sqlite3_vfs_unregister(&shim_vfs);
  }
};

std::string integrity(const std::string& path) {
  store::Database database(path, SQLITE_OPEN_READWRITE);
  return database.text("PRAGMA integrity_check") + database.text("PRAGMA foreign_key_check");
}

// A process under a sanitizer takes ten times as long to start and to end; which steps leave what is the same.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kEveryStepUntil = 24, kStride = 7;
#else
constexpr int kEveryStepUntil = 60, kStride = 11;
#endif

/// Runs `work(step)` in processes that die at their first, second, third ... step, from `prepare()` on, until one ends
/// by itself, and `check()` after each. Returns how many died.
int die_at_every_step(const std::function<void()>& prepare, const std::function<void(int step)>& work,
                      const std::function<void()>& check) {
  FailingFiles failing;
  bool at_end = false;  // the last steps are all tried again: a stride may have gone over them
  for (int step = 0, died = 0;; step += step < kEveryStepUntil || at_end ? 1 : kStride, ++died) {
    CAPTURE(step);
    prepare();
    const int code = test::wait_for(test::start([&] {
      work(step);
      return 0;
    }));
    if (code != 0) REQUIRE(code == 128 + SIGKILL);
    check();
    if (code == 0 && (at_end || step < kEveryStepUntil)) return died;
    if (code == 0) {
      at_end = true;
      step -= kStride;
      --died;
    }
    REQUIRE(step < 20'000);
  }
}

}  // namespace

TEST_CASE("a disk that fills up at any write costs no result of this process and no byte of the file") {
  const auto before = test::sample_key(R"({"M":1})");
  const auto key = test::sample_key();
  test::TempDir start;
  test::publish(*test::open_store(start / "j.db"), before);
  for (const int code : {SQLITE_FULL, SQLITE_IOERR_WRITE}) {
    bool ran_through = false;
    for (int writes = 0; writes < 200 && !ran_through; writes += writes < 30 ? 1 : 7) {
      CAPTURE(code);
      CAPTURE(writes);
      test::TempDir dir;
      const std::string path = dir / "j.db";
      std::filesystem::copy_file(start / "j.db", path);
      FailingFiles failing;
      test::Said said;
      auto store = test::open_store(path, &said.log);
      plan = {writes, code, 0};
      test::publish(*store, key);
      CHECK(store->find_winner(key.sha256)->has_value());
      CHECK(store->find_winner(before.sha256)->has_value());
      CHECK(store->trials_of(key.sha256)->size() == 2);
      ran_through = plan.failed == 0;
      // Failures at the tidying after a study cost nothing at all.
      CHECK(store->in_memory() == (said.codes.size() == 1));
      REQUIRE(said.codes.size() <= 1);
      if (!said.codes.empty()) CHECK(said.codes[0] == (code == SQLITE_FULL ? "database_full" : "database_unavailable"));
      store.reset();
      plan = {};
      CHECK(integrity(path) == "ok");
      CHECK(test::open_store(path)->find_winner(before.sha256)->has_value());
    }
    CHECK(ran_through);
  }
}

TEST_CASE("a disk that is full from the start gives a store in memory") {
  for (int writes = 0; writes < 12; ++writes) {
    test::TempDir dir;
    FailingFiles failing;
    plan = {writes, SQLITE_FULL, 0};
    test::Said said;
    auto store = test::open_store(dir / "j.db", &said.log);
    test::publish(*store, test::sample_key());
    CHECK(store->find_winner(test::sample_key().sha256)->has_value());
    CHECK(store->in_memory());
    CHECK(said.codes.size() == 1);
    store.reset();
    plan = {};
    test::Said later;
    auto again = test::open_store(dir / "j.db", &later.log);
    CHECK_FALSE(again->in_memory());
    CHECK(later.codes.empty());
    test::publish(*again, test::sample_key());
  }
}

TEST_CASE("on a full disk what nobody needs goes first") {
  test::TempDir dir;
  const std::string path = dir / "j.db";
  FailingFiles failing;
  test::Said said;
  auto store = test::open_store(path, &said.log);
  test::publish(*store, test::sample_key(R"({"M":1})"));
  int losers = 0;
  SUBCASE("and is enough") {
    losers = 40;
  }
  SUBCASE("and where there is none, memory serves") {}
  for (int i = 0; i < losers; ++i) {
    auto artifact = test::sample_artifact("{\"BLOCK\":" + std::to_string(1000 + i) + "}",
                                          std::string(40'000, static_cast<char>(i)));
    REQUIRE_OK(store->put_artifact(artifact, test::sample_source(), "source"));
  }
  test::publish(*store, test::sample_key(R"({"M":2})"));  // empties the log
  plan.room = size_of(path) + size_of(path + "-wal") + 200'000;
  auto large = test::sample_artifact(R"({"BLOCK":1})", std::string(600'000, 'x'));
  REQUIRE_OK(store->put_artifact(large, test::sample_source(), "source"));
  CHECK(plan.failed > 0);
  CHECK(store->in_memory() == (losers == 0));
  CHECK(said.codes.size() == (losers == 0 ? 1 : 0));
  CHECK(store->find_artifact(large.build_sha256)->value().cubin == large.cubin);
  for (const char* problem : {R"({"M":1})", R"({"M":2})"})
    CHECK(store->find_winner(test::sample_key(problem).sha256)->value().artifact->cubin.size() > 0);
  store.reset();
  plan = {};
  CHECK(integrity(path) == "ok");
}

TEST_CASE("for jit-prewarm a full disk is a failure, and works again when there is room") {
  test::TempDir dir;
  FailingFiles failing;
  store::Store::OpenOptions options;
  options.path = dir / "j.db";
  options.must_be_file = true;
  auto opened = store::Store::open(options);
  REQUIRE_OK(opened);
  plan = {0, SQLITE_FULL, 0};
  auto claim = (*opened)->claim(test::sample_key(), 8s, false);
  REQUIRE_FALSE(claim.ok());
  CHECK(claim.error().find("full") != std::string::npos);
  CHECK_FALSE((*opened)->in_memory());
  plan = {};
  test::publish(**opened, test::sample_key());
  CHECK((*opened)->find_winner(test::sample_key().sha256)->has_value());
}

TEST_CASE("killed at any step of a study's writes, a process leaves all or nothing of each") {
  const auto before = test::sample_key(R"({"M":1})");
  const auto key = test::sample_key();
  test::TempDir dir;
  const std::string path = dir / "j.db";
  test::publish(*test::open_store(dir / "start.db"), before);
  int published = 0;
  const int died = die_at_every_step(
      [&] {
        for (const char* suffix : {"-wal", "-shm", ""}) std::filesystem::remove(path + suffix);
        std::filesystem::copy_file(dir / "start.db", path);
      },
      [&](int step) {
        auto store = test::open_store(path);
        plan.steps_left = step;
        test::publish(*store, key);
        store.reset();
      },
      [&] {
        test::Said said;
        auto store = test::open_store(path, &said.log);
        CHECK_FALSE(store->in_memory());
        CHECK(said.codes.empty());
        CHECK(integrity(path) == "ok");
        CHECK(store->find_winner(before.sha256)->has_value());
        const auto winner = store->find_winner(key.sha256);
        REQUIRE_OK(winner);
        if (winner->has_value()) {
          ++published;
          CHECK((*winner)->artifact->cubin == test::sample_artifact("").cubin);
          CHECK(store->trials_of(key.sha256)->size() == 2);
          CHECK(store->find_study((*winner)->study)->value().end.outcome == "won");
        } else {
          test::publish(*store, key);  // nobody holds the key
        }
      });
  CHECK(died > kEveryStepUntil);
  CHECK(published > 0);
  CHECK(published < died);
}

TEST_CASE("killed at any step of its making, a database is one or is made anew") {
  test::TempDir dir;
  const std::string path = dir / "j.db";
  const int died = die_at_every_step(
      [&] {
        for (const char* suffix : {"-wal", "-shm", "-journal", ""}) std::filesystem::remove(path + suffix);
      },
      [&](int step) {
        plan.steps_left = step;
        test::open_store(path);
      },
      [&] {
        test::Said said;
        auto store = test::open_store(path, &said.log);
        CHECK_FALSE(store->in_memory());
        CHECK(said.codes.empty());
        test::publish(*store, test::sample_key());
        store.reset();
        CHECK(integrity(path) == "ok");
      });
  CHECK(died > 20);
}

TEST_CASE("killed at any step of a migration, a process leaves the old database or the new one") {
  test::TempDir dir;
  const std::string path = dir / "j.db";
  test::write_version(1, dir / "v1.db");
  const auto keys = [&] {
    store::Database database(dir / "v1.db", SQLITE_OPEN_READWRITE);
    return database.integer("SELECT count(*) FROM winners");
  }();
  REQUIRE(keys > 0);
  int old = 0;
  const int died = die_at_every_step(
      [&] {
        for (const char* suffix : {"-wal", "-shm", "-journal", ".v1.bak", ".v1.bak-journal", ""})
          std::filesystem::remove(path + suffix);
        std::filesystem::copy_file(dir / "v1.db", path);
      },
      [&](int step) {
        plan.steps_left = step;
        test::open_store(path);
      },
      [&] {
        {
          store::Database database(path, SQLITE_OPEN_READWRITE);
          old += database.integer("PRAGMA user_version") == 1 ? 1 : 0;
        }
        test::Said said;
        auto store = test::open_store(path, &said.log);
        CHECK_FALSE(store->in_memory());
        CHECK(said.codes.empty());
        CHECK(store->health()->winners == keys);
        store.reset();
        CHECK(integrity(path) == "ok");
        store::Database database(path, SQLITE_OPEN_READWRITE);
        CHECK(database.integer("PRAGMA user_version") == store::kSchemaVersion);
        store::Database copy(path + ".v1.bak", SQLITE_OPEN_READWRITE);
        CHECK(copy.integer("PRAGMA user_version") == 1);
        CHECK(copy.integer("SELECT count(*) FROM winners") == keys);
      });
  CHECK(old > 20);
  CHECK(old < died);
}
