#include <doctest/doctest.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "base/files.hpp"
#include "samples.hpp"
#include "store/files_at.hpp"
#include "store/open.hpp"
#include "store/schema.hpp"
#include "support/support.hpp"

using namespace jitune;
namespace fs = std::filesystem;

namespace {

mode_t mode_of(const std::string& path) {
  struct stat info {};
  REQUIRE(::lstat(path.c_str(), &info) == 0);
  return info.st_mode & 07777;
}

std::string bytes_of(const std::string& path) {
  Result<std::string> bytes = read_file(path);
  REQUIRE_OK(bytes);
  return *bytes;
}

Result<std::unique_ptr<store::Store>> open_as(const std::string& path, Log* log, bool must_be_file,
                                              bool read_only = false) {
  store::Store::OpenOptions options;
  options.path = path;
  options.log = log;
  options.must_be_file = must_be_file;
  options.read_only = read_only;
  return store::Store::open(options);
}

/// The store works from memory after one warning with this code, and jit-prewarm is refused with the same words; the
/// file stays as it is in both cases.
void check_left_alone(const std::string& path, const std::string& code, const std::string& words) {
  const std::string before = bytes_of(path);
  const bool had_log = fs::exists(path + "-wal");
  {
    test::Said said;
    auto opened = open_as(path, &said.log, false);
    REQUIRE_OK(opened);
    CHECK((*opened)->in_memory());
    test::publish(**opened, test::sample_key(R"({"M":7})"));
    CHECK((*opened)->find_winner(test::sample_key(R"({"M":7})").sha256)->has_value());
    REQUIRE(said.codes.size() == 1);
    CHECK(said.codes[0] == code);
    CHECK_MESSAGE(said.texts[0].find(words) != std::string::npos, said.texts[0]);
    CHECK(said.texts[0].find(path) != std::string::npos);
  }
  test::Said said;
  auto refused = open_as(path, &said.log, true);
  REQUIRE_FALSE(refused.ok());
  CHECK_MESSAGE(refused.error().find(words) != std::string::npos, refused.error());
  CHECK(bytes_of(path) == before);
  CHECK(fs::exists(path + "-wal") == had_log);
  CHECK_FALSE(fs::exists(path + "-journal"));
  CHECK_FALSE(fs::exists(path + ".lock"));
}

/// Runs `work` in a child that ends without cleaning up.
int in_child(const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Runs `work` in a child without root's rights, which answers with its exit code.
int as_nobody(const std::function<int()>& work) {
  return in_child([&] {
    if (::geteuid() == 0 && (::setgid(65534) != 0 || ::setuid(65534) != 0)) return 99;
    return work();
  });
}

void give_to_nobody(const std::string& path) {
  if (::geteuid() == 0) REQUIRE(::chown(path.c_str(), 65534, 65534) == 0);
}

}  // namespace

TEST_CASE("directories are made 0700 and files 0600, whatever the umask") {
  for (const mode_t mask : {mode_t{0}, mode_t{022}, mode_t{0777}}) {
    test::TempDir dir;
    const mode_t old = ::umask(mask);
    auto store = test::open_store(dir / "a/b/j.db");
    test::publish(*store, test::sample_key());
    auto claim = store->claim(test::sample_key(R"({"M":1})"), std::chrono::seconds(1), false);
    ::umask(old);
    REQUIRE_OK(claim);
    CHECK(mode_of(dir / "a") == 0700);
    CHECK(mode_of(dir / "a/b") == 0700);
    CHECK(mode_of(dir / "a/b/j.db") == 0600);
    CHECK(mode_of(dir / "a/b/j.db-wal") == 0600);
    CHECK(mode_of(dir / "a/b/j.db-shm") == 0600);
    CHECK_FALSE(store->in_memory());
  }
}

TEST_CASE("a new file is set up as it should be") {
  test::TempDir dir;
  test::open_store(dir / "j.db");
  store::Database database(dir / "j.db", SQLITE_OPEN_READWRITE);
  CHECK(database.integer("SELECT count(*) FROM keys") == 0);
  CHECK(database.text("PRAGMA journal_mode") == "wal");
  CHECK(database.integer("PRAGMA auto_vacuum") == 2);
  CHECK(database.integer("PRAGMA application_id") == store::kApplicationId);
  CHECK(database.integer("PRAGMA user_version") == store::kSchemaVersion);
  CHECK(database.text("SELECT value FROM meta WHERE name = 'min_reader_version'") == "1");
}

TEST_CASE("a zero-length file, or one whose making was broken off, is a new one") {
  test::TempDir dir;
  SUBCASE("zero length") {
    test::write_file(dir / "j.db", "");
  }
  SUBCASE("a first page without tables") {
    store::Database(dir / "j.db", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE).execute("PRAGMA auto_vacuum=INCREMENTAL");
    CHECK(fs::file_size(dir / "j.db") > 0);
  }
  REQUIRE(::chmod((dir / "j.db").c_str(), 0600) == 0);
  test::Said said;
  auto store = test::open_store(dir / "j.db", &said.log);
  CHECK_FALSE(store->in_memory());
  test::publish(*store, test::sample_key());
  CHECK(said.codes.empty());
}

TEST_CASE("no file where none is to be made") {
  test::TempDir dir;
  store::Store::OpenOptions options;
  options.path = dir / "sub/none.db";
  options.create = false;
  auto opened = store::Store::open(options);
  REQUIRE_FALSE(opened.ok());
  CHECK(opened.error().find("there is no database '" + dir.path()) == 0);
  options.create = true;
  options.read_only = true;
  CHECK_FALSE(store::Store::open(options).ok());
  CHECK_FALSE(fs::exists(dir / "sub"));
}

TEST_CASE("someone else's file is never written") {
  test::TempDir dir;
  REQUIRE(::chmod(dir.path().c_str(), 0700) == 0);
  const std::string path = dir / "theirs.db";
  const mode_t old = ::umask(077);
  SUBCASE("a database of another application") {
    store::Database theirs(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    theirs.execute("PRAGMA application_id = 42; CREATE TABLE t (x); INSERT INTO t VALUES (1)");
  }
  SUBCASE("a database without an application id, in WAL mode") {
    store::Database theirs(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    theirs.execute("PRAGMA journal_mode = WAL; CREATE TABLE keys (key_sha256)");
  }
  SUBCASE("one with all its tables in its log") {
    // Made in a child that leaves the log behind.
    const int code = in_child([&] {
      sqlite3* theirs = nullptr;
      sqlite3_open(path.c_str(), &theirs);
      return sqlite3_exec(theirs, "PRAGMA journal_mode = WAL; CREATE TABLE t (x)", nullptr, nullptr, nullptr);
    });
    CHECK(code == 0);
    CHECK(fs::file_size(path + "-wal") > 0);
  }
  SUBCASE("a text file") {
    test::write_file(path, "my notes: do not touch\n");
  }
  SUBCASE("a long binary file") {
    test::write_file(path, std::string(300'000, '\x5a'));
  }
  SUBCASE("a database with our marks and other tables") {
    store::Database theirs(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    theirs.execute("PRAGMA application_id = 0x4A54554E; PRAGMA user_version = 1; CREATE TABLE keys (key_sha256)");
  }
  SUBCASE("our tables with one more index") {
    store::Database theirs(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    theirs.execute(store::kSchemaSql);
    theirs.execute("CREATE UNIQUE INDEX trap ON configs (length(params))");
  }
  ::umask(old);
  check_left_alone(path, "database_foreign", "left as it is");
}

TEST_CASE("a newer schema is left alone, and read where it says that we can") {
  test::TempDir dir;
  const std::string path = dir / "newer.db";
  const mode_t old = ::umask(077);
  {
    store::Database newer(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    newer.execute(store::kSchemaSql);
    newer.execute("PRAGMA user_version = 7; ALTER TABLE keys ADD COLUMN novelty TEXT");
  }
  ::umask(old);
  SUBCASE("it says that schema 7 must be known") {
    store::Database(path, SQLITE_OPEN_READWRITE).execute("UPDATE meta SET value = '7'");
    check_left_alone(path, "database_newer", "use the newer jitune");
  }
  SUBCASE("it says that schema 1 is enough") {
    {
      // A winner in it: copied from a store of ours.
      test::publish(*test::open_store(dir / "ours.db"), test::sample_key());
      store::Database newer(path, SQLITE_OPEN_READWRITE);
      newer.execute(("ATTACH '" + dir / "ours.db" + "' AS o; INSERT INTO keys SELECT *, '' FROM o.keys;" +
                     "INSERT INTO configs SELECT * FROM o.configs; INSERT INTO studies SELECT * FROM o.studies;" +
                     "INSERT INTO artifacts SELECT * FROM o.artifacts; INSERT INTO cubins SELECT * FROM o.cubins;" +
                     "INSERT INTO winners SELECT * FROM o.winners")
                        .c_str());
    }
    check_left_alone(path, "database_newer", "use the newer jitune");
    auto store = test::open_store(path);
    auto found = store->find_winner(test::sample_key().sha256);
    REQUIRE_OK(found);
    REQUIRE(found->has_value());
    CHECK((*found)->artifact->cubin == test::sample_artifact("").cubin);
    CHECK(store->claim(test::sample_key(), std::chrono::seconds(1), false)->state == store::Claim::State::answered);
    CHECK(store->list()->size() == 1);
  }
}

TEST_CASE("files and directories that others can change are refused with the remedy") {
  test::TempDir dir;
  const std::string path = dir / "d/j.db";
  fs::create_directory(dir / "d");
  test::open_store(path);
  const auto refusal = [&](const std::string& at) {
    auto refused = open_as(at, nullptr, true);
    REQUIRE_FALSE(refused.ok());
    return refused.error();
  };
  REQUIRE(::chmod((dir / "d").c_str(), 0777) == 0);
  CHECK(refusal(path).find("chmod go-w '" + dir / "d'") != std::string::npos);
  REQUIRE(::chmod((dir / "d").c_str(), 01777) == 0);
  CHECK(open_as(path, nullptr, true).ok());  // as /tmp: nobody can replace another's file
  REQUIRE(::chmod((dir / "d").c_str(), 0755) == 0);
  REQUIRE(::chmod(path.c_str(), 0666) == 0);
  CHECK(refusal(path).find("chmod go-w '" + path + "'") != std::string::npos);
  REQUIRE(::chmod(path.c_str(), 0600) == 0);
  CHECK(open_as(path, nullptr, true).ok());
  fs::create_symlink(path, dir / "link.db");
  CHECK(refusal(dir / "link.db").find("symbolic link") != std::string::npos);
  fs::create_directory_symlink(dir / "d", dir / "linked");
  CHECK(open_as(dir / "linked/j.db", nullptr, true).ok());  // a directory may be a link
  CHECK(refusal(dir / "d").find("not a regular file") != std::string::npos);
  test::write_file(dir / "plain", "");
  CHECK(refusal(dir / "plain/j.db").find(dir / "plain") != std::string::npos);
  if (::geteuid() != 0) return test::skip("root", "another owner's files need root to make");
  REQUIRE(::chown(path.c_str(), 65534, 65534) == 0);
  CHECK(refusal(path).find("another user (uid 65534)") != std::string::npos);
  REQUIRE(::chown(path.c_str(), 0, 0) == 0);
  fs::permissions(dir.path(), fs::perms::all);
  fs::permissions(dir.path(), fs::perms::others_write, fs::perm_options::remove);
  fs::permissions(dir.path(), fs::perms::group_write, fs::perm_options::remove);
  give_to_nobody(path);
  CHECK(as_nobody([&] { return open_as(path, nullptr, false)->get()->in_memory() ? 0 : 1; }) == 0);  // root's directory
}

TEST_CASE("a file in a read-only place is read; results stay in memory") {
  test::TempDir dir;
  fs::permissions(dir.path(), fs::perms::owner_all | fs::perms::others_read | fs::perms::others_exec);
  fs::create_directory(dir / "d");
  const std::string path = dir / "d/j.db";
  test::publish(*test::open_store(path), test::sample_key());
  give_to_nobody(path);
  give_to_nobody(dir / "d");
  const auto work = [&](int expected_state) {
    return as_nobody([&] {
      test::Said said;
      auto refused = open_as(path, nullptr, true);
      if (refused.ok()) return 1;
      if (refused.error().find("can't be written") == std::string::npos) {
        std::fprintf(stderr, "%s\n", refused.error().c_str());
        return 2;
      }
      auto opened = open_as(path, &said.log, false);
      if (!opened.ok() || !(*opened)->in_memory()) return 3;
      if (said.codes.size() != 1 || said.codes[0] != "database_read_only") return 4;
      store::Store& store = **opened;
      auto found = store.find_winner(test::sample_key().sha256);
      if (!found.ok() || !found->has_value() || (*found)->artifact->cubin != test::sample_artifact("").cubin) return 5;
      auto claim = store.claim(test::sample_key(R"({"M":1})"), std::chrono::seconds(8), false);
      auto study = store.begin_study(test::sample_key(R"({"M":1})"), test::sample_study());
      if (!claim.ok() || !study.ok()) return 6;
      if (!store.end_study(*study, claim->lease, {"won", ""}, test::sample_winner(R"({"BLOCK":32})", 3)).ok()) return 7;
      if (!store.find_winner(test::sample_key(R"({"M":1})").sha256)->has_value()) return 8;
      if (store.list()->size() != 2 || said.codes.size() != 1) return 9;
      auto reader = open_as(path, nullptr, true, true);
      if (!reader.ok() || !(*reader)->find_winner(test::sample_key().sha256)->has_value()) return 10;
      return expected_state;
    });
  };
  const std::string before = bytes_of(path);
  SUBCASE("the file") {
    fs::permissions(path, fs::perms::owner_read);
  }
  SUBCASE("the directory") {
    fs::permissions(dir / "d", fs::perms::owner_read | fs::perms::owner_exec);
  }
  SUBCASE("both") {
    fs::permissions(path, fs::perms::owner_read);
    fs::permissions(dir / "d", fs::perms::owner_read | fs::perms::owner_exec);
  }
  CHECK(work(0) == 0);
  fs::permissions(dir / "d", fs::perms::owner_all);
  CHECK(bytes_of(path) == before);
}

TEST_CASE("opened for reading only, a store writes nothing and says so") {
  test::TempDir dir;
  test::publish(*test::open_store(dir / "j.db"), test::sample_key());
  const std::string before = bytes_of(dir / "j.db");
  test::Said said;
  auto opened = open_as(dir / "j.db", &said.log, true, true);
  REQUIRE_OK(opened);
  CHECK((*opened)->find_winner(test::sample_key().sha256)->has_value());
  CHECK((*opened)->trials_of(test::sample_key().sha256)->size() == 2);
  auto refused = (*opened)->claim(test::sample_key(R"({"M":1})"), std::chrono::seconds(1), false);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().find("reading only") != std::string::npos);
  CHECK(said.codes.empty());
  opened->reset();
  CHECK(bytes_of(dir / "j.db") == before);
}

TEST_CASE("odd names of files work") {
  test::TempDir dir;
  for (const char* name : {"a b.db", "p%20c?x=1#y.db", "caf\xc3\xa9.db", "-dash.db", "it's.db"}) {
    CAPTURE(name);
    test::publish(*test::open_store(dir / name), test::sample_key());
    auto reader = open_as(dir / name, nullptr, true, true);
    REQUIRE_OK(reader);
    CHECK((*reader)->find_winner(test::sample_key().sha256)->has_value());
  }
}

TEST_CASE("relative paths are taken from the working directory of the moment") {
  test::TempDir dir;
  const fs::path before = fs::current_path();
  fs::current_path(dir.path());
  auto store = test::open_store("sub/../j.db");
  fs::current_path(before);
  CHECK(store->path() == fs::canonical(dir.path()).string() + "/j.db");
  test::publish(*store, test::sample_key());
  CHECK(fs::exists(dir / "j.db"));
}

TEST_CASE("network file systems are told by their numbers") {
  for (const uint64_t type : {0x6969U, 0xFF534D42U, 0x01021997U, 0x65735546U})
    CHECK(store::is_network_file_system(type));
  for (const uint64_t type : {0xEF53U, 0x58465342U, 0x01021994U, 0x794C7630U})
    CHECK_FALSE(store::is_network_file_system(type));
}
