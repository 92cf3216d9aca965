#include <doctest/doctest.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/clock.hpp"
#include "base/files.hpp"
#include "samples.hpp"
#include "store/open.hpp"
#include "store/schema.hpp"
#include "support/support.hpp"

using namespace jitune;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

Result<std::unique_ptr<store::Store>> open_signed(const std::string& path, const std::string& key, Log* log,
                                                  bool must_be_file = false) {
  store::Store::OpenOptions options;
  options.path = path;
  options.signing_key = key;
  options.log = log;
  options.must_be_file = must_be_file;
  return store::Store::open(options);
}

std::string make_key(const std::string& path, const std::string& text, mode_t mode = 0600) {
  test::write_file(path, text);
  REQUIRE(::chmod(path.c_str(), mode) == 0);
  return path;
}

std::string bytes_of(const std::string& path) {
  Result<std::string> bytes = read_file(path);
  REQUIRE_OK(bytes);
  return *bytes;
}

store::Database raw(const std::string& path) {
  return store::Database(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
}

}  // namespace

TEST_CASE("cubins without the signature of our key are refused with the reason and compiled again") {
  test::TempDir dir;
  const std::string path = dir / "j.db";
  const std::string ours = make_key(dir / "ours", "0123456789abcdef ours\n");
  const std::string theirs = make_key(dir / "theirs", "0123456789abcdef theirs");
  const auto key = test::sample_key();
  const std::string build = test::sample_artifact(R"({"BLOCK":128})").build_sha256;
  const auto cubin_with = [&](const std::string& signing_key, const std::string& words) {
    test::Said said;
    auto store = open_signed(path, signing_key, &said.log);
    REQUIRE_OK(store);
    const auto found = (*store)->find_winner(key.sha256);
    REQUIRE_OK(found);
    REQUIRE(found->has_value());
    CHECK((*found)->config == R"({"BLOCK":128})");  // the config is kept
    CHECK((*store)->find_artifact(build)->value().cubin == (*found)->artifact->cubin);
    CHECK(said.count("cubin_unsigned") == (words.empty() ? 0 : 1));
    if (!words.empty() && !said.texts.empty()) CHECK(said.texts[0].find(words) != std::string::npos);
    return (*found)->artifact->cubin;
  };
  SUBCASE("signed by us") {
    test::publish(**open_signed(path, ours, nullptr), key);
    CHECK_FALSE(cubin_with(ours, "").empty());
    CHECK_FALSE(cubin_with("", "").empty());  // who has no key does not ask
    CHECK(cubin_with(theirs, "was not signed with this key").empty());
  }
  SUBCASE("not signed; what we compile then is") {
    test::publish(**open_signed(path, "", nullptr), key);
    CHECK(cubin_with(ours, "is not signed").empty());
    REQUIRE_OK((*open_signed(path, ours, nullptr))
                   ->put_artifact(test::sample_artifact(R"({"BLOCK":128})", "ours"), test::sample_source(), "s"));
    CHECK(cubin_with(ours, "") == "ours");
  }
  SUBCASE("a signature moved to another cubin") {
    test::publish(**open_signed(path, ours, nullptr), key);
    test::publish(**open_signed(path, ours, nullptr), test::sample_key(R"({"M":2})"), R"({"BLOCK":32})");
    raw(path).execute(
        "UPDATE artifacts SET signature = (SELECT a.signature FROM artifacts a JOIN configs USING (config_id) WHERE "
        "params = '{\"BLOCK\":32}')");
    CHECK(cubin_with(ours, "was not signed with this key").empty());
  }
}

TEST_CASE("a signing key that others may read, that is short or absent is refused") {
  test::TempDir dir;
  const auto refused = [&](const std::string& key) {
    auto strict = open_signed(dir / "j.db", key, nullptr, true);
    test::Said said;
    auto lenient = open_signed(dir / "j.db", key, &said.log);
    REQUIRE_OK(lenient);
    CHECK((*lenient)->in_memory());
    CHECK(said.count("signing_key") == 1);
    return strict.ok() ? std::string() : strict.error();
  };
  CHECK(refused(make_key(dir / "open", "0123456789abcdef", 0644)).find("may be read or written") != std::string::npos);
  CHECK(refused(make_key(dir / "short", "0123456789abcde\n")).find("shorter than 16") != std::string::npos);
  CHECK(refused(dir / "none").find("is not a file") != std::string::npos);
  const std::string good = make_key(dir / "good", "0123456789abcdef");
  test::ScopedEnv env("JITUNE_SIGNING_KEY", good.c_str());
  test::publish(**open_signed(dir / "e.db", "", nullptr), test::sample_key());
  CHECK(raw(dir / "e.db").integer("SELECT count(*) FROM artifacts WHERE length(signature) = 64") == 1);
}

TEST_CASE("a database of an older version is brought up to date, with a copy of the old one beside it") {
  for (int version = 1; version < store::kSchemaVersion; ++version) {
    CAPTURE(version);
    test::TempDir dir;
    const std::string path = dir / "j.db";
    test::write_version(version, path);
    test::Said said;
    auto store = test::open_store(path, &said.log);
    CHECK(said.codes.empty());
    CHECK_FALSE(store->in_memory());
    const auto found = store->find_winner(test::sample_key().sha256);
    REQUIRE_OK(found);
    REQUIRE(found->has_value());
    CHECK((*found)->config == R"({"BLOCK":128})");
    CHECK((*found)->median_us == 12.5);
    CHECK((*found)->pinned);
    CHECK((*found)->artifact->cubin == "cubin");
    CHECK(store->trials_of(test::sample_key().sha256)->size() == 2);
    CHECK(store->known_failure(test::sample_artifact(R"({"BLOCK":128})").build_sha256, "").ok());
    test::publish(*store, test::sample_key(R"({"M":1})"), R"({"BLOCK":32})");
    CHECK(store->health()->quick_check == "ok");
    store.reset();
    store::Database now = raw(path);
    CHECK(now.integer("PRAGMA user_version") == store::kSchemaVersion);
    CHECK(store::schema_fingerprint(now) == store::kSchemaFingerprint);
    CHECK(now.text("PRAGMA foreign_key_check").empty());
    CHECK(now.integer("SELECT count(*) FROM best") == 2);
    store::Database old = raw(path + ".v" + std::to_string(version) + ".bak");
    CHECK(old.integer("PRAGMA user_version") == version);
    CHECK(old.integer("SELECT count(*) FROM winners") == 1);
  }
}

TEST_CASE("an older database that can't be written is left alone, with the remedy") {
  test::TempDir dir;
  const std::string path = dir / "j.db";
  test::write_version(1, path);
  const std::string before = bytes_of(path);
  store::Store::OpenOptions options;
  options.path = path;
  options.read_only = true;
  options.must_be_file = true;
  auto refused = store::Store::open(options);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().find("open it once for writing") != std::string::npos);
  CHECK(bytes_of(path) == before);
}

TEST_CASE("a bundle is read without a byte being written beside it, damaged ones are not moved") {
  test::TempDir dir;
  const std::string path = dir / "bundle.db";
  test::publish(*test::open_store(dir / "j.db"), test::sample_key());
  raw(dir / "j.db").execute(("VACUUM INTO '" + path + "'").c_str());
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
  const auto open = [&] {
    store::Store::OpenOptions options;
    options.path = path;
    options.create = false;
    options.read_only = true;
    options.must_be_file = true;
    return store::Store::open(options);
  };
  const auto names = [&] {
    int files = 0;
    for (const auto& entry : fs::directory_iterator(dir.path()))
      files += entry.path().filename().string().starts_with("bundle.db") ? 1 : 0;
    return files;
  };
  const std::string before = bytes_of(path);
  {
    auto store = open();
    REQUIRE_OK(store);
    CHECK((*store)->find_winner(test::sample_key().sha256)->has_value());
    CHECK(names() == 1);
  }
  CHECK(bytes_of(path) == before);
  std::string bad = before;
  for (size_t i = 4096; i < bad.size(); i += 7) bad[i] = static_cast<char>(bad[i] ^ 0x5A);
  test::write_file(path, bad);
  auto store = open();
  if (store.ok()) (void)(*store)->find_winner(test::sample_key().sha256);
  CHECK(bytes_of(path) == bad);
  CHECK(names() == 1);
}

TEST_CASE("on a network file system there is a rollback journal and one warning") {
  test::TempDir dir;
  const std::string path = dir / "j.db";
  test::Said said;
  store::Store::OpenOptions options;
  options.path = path;
  options.log = &said.log;
  options.file_system_type = [](const std::string&) -> uint64_t { return 0x6969; };  // NFS
  for (int i = 0; i < 2; ++i) {
    auto store = store::Store::open(options);
    REQUIRE_OK(store);
    CHECK_FALSE((*store)->in_memory());
    test::publish(**store, test::sample_key("{\"M\":" + std::to_string(i) + "}"));
    CHECK_FALSE(fs::exists(path + "-wal"));
    store->reset();
  }
  CHECK(said.count("database_network") == 1);
  CHECK(said.codes.size() == 1);
}

TEST_CASE("damage anywhere in the file costs what was stored, never a launch or a study") {
  test::TempDir dir;
  const std::string good = dir / "good.db", path = dir / "sub/j.db";
  {
    auto store = test::open_store(good);
    for (int i = 0; i < 4; ++i)
      test::publish(*store, test::sample_key("{\"M\":" + std::to_string(i) + "}"),
                    "{\"BLOCK\":" + std::to_string(i) + "}");
  }
  const std::string bytes = bytes_of(good);
  constexpr size_t kPage = 4096;
  REQUIRE(bytes.size() % kPage == 0);
  int moved = 0;
  for (size_t page = 0; page < bytes.size() / kPage; ++page) {
    CAPTURE(page);
    for (const auto& entry : fs::exists(dir / "sub") ? fs::directory_iterator(dir / "sub") : fs::directory_iterator())
      fs::remove(entry.path());
    std::string bad = bytes;
    for (size_t i = page == 0 ? 100 : 0; i < kPage; ++i)
      bad[page * kPage + i] = static_cast<char>(bad[page * kPage + i] ^ 0xA5);
    test::write_file(path, bad);
    fs::permissions(dir / "sub", fs::perms::owner_all);
    fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
    test::Said said;
    auto store = store::Store::open({.path = path, .log = &said.log});
    REQUIRE_OK(store);
    for (int i = 0; i < 4; ++i) {
      auto found = (*store)->find_winner(test::sample_key("{\"M\":" + std::to_string(i) + "}").sha256);
      REQUIRE_OK(found);
      // What is served is what was stored, or nothing.
      if (found->has_value() && (*found)->artifact) {
        const bool whole_or_none = (*found)->artifact->cubin.empty() || (*found)->artifact->cubin ==
                                                                            "\x7f"
                                                                            "ELF bytes";
        CHECK(whole_or_none);
      }
    }
    test::publish(**store, test::sample_key(R"({"M":99})"), R"({"BLOCK":77})");
    CHECK((*store)->find_winner(test::sample_key(R"({"M":99})").sha256)->has_value());
    CHECK(said.codes.size() <= 2);
    moved += said.count("database_corrupt");
  }
  CHECK(moved > 0);
}
