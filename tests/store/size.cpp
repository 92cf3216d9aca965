#include <doctest/doctest.h>
#include <sqlite3.h>

#include "base/hash.hpp"
#include "samples.hpp"
#include "store/open.hpp"
#include "support/support.hpp"

using namespace jitune;
using namespace std::chrono_literals;

namespace {

constexpr int64_t kDay = 86400;
int64_t test_now = 1'760'000'000;

std::unique_ptr<store::Store> open_at(const std::string& path, int64_t max_bytes = int64_t{1} << 30) {
  store::Store::OpenOptions options;
  options.path = path;
  options.now = [] { return test_now; };
  options.max_bytes = max_bytes;
  auto opened = store::Store::open(options);
  REQUIRE_OK(opened);
  return std::move(*opened);
}

key::TuningKey key_of(int i) {
  return test::sample_key("{\"M\":" + std::to_string(i) + "}");
}

std::string config_of(int i) {
  return "{\"BLOCK\":" + std::to_string(i) + "}";
}

std::string cubin_of(int i) {
  return std::string(40'000, static_cast<char>('a' + i % 26)) + std::to_string(i);
}

/// Publishes a winner with a cubin of its own for key i.
void publish(store::Store& store, int i) {
  const auto key = key_of(i);
  auto claim = store.claim(key, 8s, true);
  REQUIRE_OK(claim);
  auto study = store.begin_study(key, test::sample_study());
  REQUIRE_OK(study);
  REQUIRE_OK(store.put_artifact(test::sample_artifact(config_of(i), cubin_of(i)), test::sample_source(), "s"));
  REQUIRE_OK(store.add_trial(*study, claim->lease, test::sample_trial(config_of(i), 12)));
  REQUIRE_OK(store.end_study(*study, claim->lease, {"won", ""}, test::sample_winner(config_of(i), 12, cubin_of(i))));
}

bool has_winner(store::Store& store, int i) {
  auto found = store.find_winner(key_of(i).sha256);
  REQUIRE_OK(found);
  return found->has_value();
}

store::Database raw(const std::string& path) {
  return store::Database(path, SQLITE_OPEN_READWRITE);
}

}  // namespace

TEST_CASE("eviction: losers' cubins first, then the keys used longest ago, never what is pinned or leased") {
  test::TempDir dir;
  const std::string path = dir / "j.db";
  {
    auto store = open_at(path);
    for (int i = 0; i < 20; ++i) {
      publish(*store, i);
      test_now += 2 * kDay;
    }
    // Cubins that no winner names, the younger one compiled ahead.
    REQUIRE_OK(store->put_artifact(test::sample_artifact(config_of(100), cubin_of(100)), test::sample_source(), "s"));
    REQUIRE_OK(store->put_artifact(test::sample_artifact(config_of(101), cubin_of(101)), test::sample_source(), "s"));
    REQUIRE_OK(store->keep_until_tuned(test::sample_artifact(config_of(101)).build_sha256, "{\"M\":500}"));
  }
  raw(path).execute("UPDATE winners SET pinned = 1 WHERE key_id = 1");
  auto store = open_at(path);
  auto leased = store->claim(key_of(2), 3600s, true);
  REQUIRE_OK(leased);
  CHECK(has_winner(*store, 3));  // used today, so others go before it

  auto nothing = store->collect(int64_t{1} << 30);
  REQUIRE_OK(nothing);
  CHECK(nothing->cubins + nothing->keys == 0);

  auto first = store->collect(nothing->cubin_bytes_before - 1);
  REQUIRE_OK(first);
  CHECK(first->cubins == 1);
  CHECK(first->keys == 0);
  CHECK(store->find_artifact(test::sample_artifact(config_of(100)).build_sha256)->value().cubin.empty());

  auto second = store->collect(10 * 40'100);
  REQUIRE_OK(second);
  CHECK(second->cubin_bytes_after <= 10 * 40'100);
  CHECK(second->keys == 11);
  CHECK(second->file_bytes_after < second->file_bytes_before);
  CHECK(has_winner(*store, 0));        // pinned
  CHECK_FALSE(has_winner(*store, 1));  // the oldest that may go
  CHECK(has_winner(*store, 2));        // leased
  CHECK(has_winner(*store, 3));        // used
  CHECK_FALSE(has_winner(*store, 13));
  CHECK(has_winner(*store, 14));
  CHECK(has_winner(*store, 19));

  auto third = store->collect(0);
  REQUIRE_OK(third);
  CHECK(has_winner(*store, 0));
  CHECK(has_winner(*store, 2));
  CHECK_FALSE(has_winner(*store, 19));
  CHECK_FALSE(store->find_artifact(test::sample_artifact(config_of(101)).build_sha256)->value().cubin.empty());
  CHECK(store->health()->quick_check == "ok");
  CHECK(raw(path).text("PRAGMA foreign_key_check").empty());
  CHECK(raw(path).text("PRAGMA integrity_check") == "ok");
}

TEST_CASE("what is old goes: studies beyond the last three, failures, what nothing refers to") {
  test::TempDir dir;
  const std::string path = dir / "j.db";
  auto store = open_at(path);
  for (int i = 0; i < 6; ++i) {
    publish(*store, 7);
    test_now += kDay;
  }
  REQUIRE_OK(store->record_failure(sha256_hex("old"), "", "compile_error", "x"));
  store::ArtifactRow failed = test::sample_artifact(config_of(55), "");
  failed.status = "error";
  failed.cubin_sha256.clear();
  REQUIRE_OK(store->put_artifact(failed, test::sample_source(), "s"));
  auto young = store->collect(int64_t{1} << 30);
  REQUIRE_OK(young);
  CHECK(young->studies == 0);
  test_now += 91 * kDay;
  REQUIRE_OK(store->record_failure(sha256_hex("new"), "", "compile_error", "x"));
  auto old = store->collect(int64_t{1} << 30);
  REQUIRE_OK(old);
  CHECK(old->studies == 3);
  CHECK(old->failures == 1);
  CHECK(old->artifacts == 1);
  CHECK(raw(path).integer("SELECT count(*) FROM configs WHERE params = '{\"BLOCK\":55}'") == 0);
  CHECK(store->known_failure(sha256_hex("new"), "")->has_value());
  CHECK(has_winner(*store, 7));
}

TEST_CASE("the end of a study brings the file below its cap") {
  test::TempDir dir;
  const std::string path = dir / "j.db";
  auto store = open_at(path, 5 * 40'100);
  for (int i = 0; i < 12; ++i) {
    publish(*store, i);
    test_now += kDay;
  }
  CHECK(store->health()->cubin_bytes <= 5 * 40'100);
  CHECK(has_winner(*store, 11));
  CHECK_FALSE(has_winner(*store, 0));
}

TEST_CASE("a better result replaces the stored one and a worse one never does") {
  test::TempDir dir;
  auto store = open_at(dir / "j.db");
  const auto key = test::sample_key();
  const auto tune = [&](const std::string& config, double us, bool tries_stored, const std::string& stored) {
    auto claim = store->claim(key, 8s, true);
    auto study = store->begin_study(key, test::sample_study());
    REQUIRE_OK(study);
    if (tries_stored) REQUIRE_OK(store->add_trial(*study, claim->lease, test::sample_trial(stored, us * 1.5)));
    REQUIRE_OK(store->end_study(*study, claim->lease, {"won", "n"}, test::sample_winner(config, us)));
    return (*store->find_winner(key.sha256))->config + " " + store->find_study(*study)->value().end.note;
  };
  const std::string a = config_of(1), b = config_of(2), c = config_of(3);
  CHECK(tune(a, 12, false, "") == a + " n");
  CHECK(tune(b, 13, false, "") == a + " n; a better result was stored and stays");
  CHECK(tune(b, 11, false, "") == b + " n");
  CHECK(tune(b, 14, false, "") == b + " n");  // the same config, timed afresh
  CHECK(tune(c, 15, true, b) == c + " n");    // b was tried beside it and was slower
}

TEST_CASE("a winner may have no time") {
  test::TempDir dir;
  const std::string path = dir / "j.db";
  auto store = open_at(path);
  test::publish(*store, test::sample_key());
  raw(path).execute("UPDATE winners SET median_us = NULL");
  CHECK((*store->find_winner(test::sample_key().sha256))->median_us == 0);
  CHECK(raw(path).text("SELECT speedup FROM best").empty());
}

TEST_CASE("the nearest stored key and the fields that differ") {
  test::TempDir dir;
  auto store = open_at(dir / "j.db");
  const auto key = test::sample_key();
  CHECK_FALSE(store->find_nearest(key)->has_value());
  auto far = key;
  far.nvrtc = "12.9.86";
  far.arch = "sm_100";
  key::seal(far);
  test::publish(*store, far);
  auto near = key;
  near.source_sha256 = sha256_hex("edited");
  key::seal(near);
  REQUIRE_OK(store->begin_study(near, test::sample_study()));  // without a winner
  auto also = key;
  also.policy = "warm";
  key::seal(also);
  test::publish(*store, also);
  auto found = store->find_nearest(key);
  REQUIRE_OK(found);
  REQUIRE(found->has_value());
  CHECK((*found)->row.key.sha256 == also.sha256);  // as near as the other, and it has a winner
  CHECK((*found)->row.winner.has_value());
  REQUIRE((*found)->differences.size() == 1);
  CHECK((*found)->differences[0] == "policy: cold,median / warm");
  CHECK((*store->find_nearest(far))->differences.empty());
}
