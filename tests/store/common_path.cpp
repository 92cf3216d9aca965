#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <ctime>
#include <limits>

#include "base/hash.hpp"
#include "samples.hpp"
#include "store/open.hpp"
#include "store/schema.hpp"
#include "store/store.hpp"
#include "support/support.hpp"

using namespace jitune;
using namespace std::chrono_literals;

TEST_CASE("a published winner is found by the next process, with its cubin") {
  test::TempDir dir;
  const key::TuningKey key = test::sample_key();
  int64_t study = 0;
  {
    auto store = test::open_store(dir / "jitune.db");
    CHECK_FALSE(store->in_memory());
    CHECK(store->path() == dir / "jitune.db");
    auto nothing = store->find_winner(key.sha256);
    REQUIRE_OK(nothing);
    CHECK_FALSE(nothing->has_value());
    study = test::publish(*store, key);
  }
  auto store = test::open_store(dir / "jitune.db");
  auto found = store->find_winner(key.sha256);
  REQUIRE_OK(found);
  REQUIRE(found->has_value());
  const store::WinnerRow& winner = **found;
  CHECK(winner.key_sha256 == key.sha256);
  CHECK(winner.config == R"({"BLOCK":128})");
  CHECK(winner.median_us == 12.5);
  CHECK(winner.default_us == 20);
  CHECK_FALSE(winner.pinned);
  CHECK(winner.study == study);
  CHECK(winner.nvrtc == "13.0.88");
  CHECK(std::abs(winner.decided_at - std::time(nullptr)) < 60);
  REQUIRE(winner.artifact.has_value());
  const store::ArtifactRow expected = test::sample_artifact(R"({"BLOCK":128})");
  const store::ArtifactRow& artifact = *winner.artifact;
  CHECK(artifact.build_sha256 == expected.build_sha256);
  CHECK(artifact.kernel == expected.kernel);
  CHECK(artifact.config == expected.config);
  CHECK(artifact.status == "ok");
  CHECK(artifact.compile_ms == expected.compile_ms);
  CHECK(artifact.lowered_name == expected.lowered_name);
  CHECK(artifact.regs == 40);
  CHECK(artifact.static_smem_bytes == 1024);
  CHECK(artifact.local_bytes == 8);
  CHECK(artifact.spill_bytes == 16);
  CHECK(artifact.cubin == expected.cubin);
  CHECK(artifact.cubin_sha256 == expected.cubin_sha256);
  CHECK(artifact.log == "a warning");
  CHECK(artifact.arch == "sm_90");
  CHECK(artifact.nvrtc == "13.0.88");
}

TEST_CASE("the schema that is embedded is the one whose fingerprint is known") {
  store::Database database = store::open_memory();
  CHECK(store::schema_fingerprint(database) == store::kSchemaFingerprint);
  CHECK(database.integer("PRAGMA application_id") == store::kApplicationId);
  CHECK(database.integer("PRAGMA user_version") == store::kSchemaVersion);
}

TEST_CASE("a store in memory keeps what it is given and says that it is one") {
  for (const char* path : {"", "off"}) {
    test::Said said;
    auto store = test::open_store(path, &said.log);
    CHECK(store->in_memory());
    CHECK(store->path().empty());
    test::publish(*store, test::sample_key());
    auto found = store->find_winner(test::sample_key().sha256);
    REQUIRE_OK(found);
    CHECK(found->has_value());
    auto health = store->health();
    REQUIRE_OK(health);
    CHECK(health->state == "memory only: no file was asked for");
    CHECK(said.codes.empty());
  }
  store::Store::OpenOptions options;
  options.must_be_file = true;
  CHECK_FALSE(store::Store::open(options).ok());
}

TEST_CASE("the first good artifact of a build stays; what failed or lost its cubin is replaced") {
  auto store = test::open_store("off");
  const std::string config = R"({"BLOCK":128})";
  auto artifact = test::sample_artifact(config, "first");
  REQUIRE_OK(store->put_artifact(artifact, test::sample_source(), "source"));
  artifact = test::sample_artifact(config, "second");
  REQUIRE_OK(store->put_artifact(artifact, test::sample_source(), "source"));
  auto found = store->find_artifact(artifact.build_sha256);
  REQUIRE_OK(found);
  REQUIRE(found->has_value());
  CHECK((*found)->cubin == "first");

  auto broken = test::sample_artifact(R"({"BLOCK":32})", "");
  broken.cubin_sha256 = "";
  broken.status = "error";
  broken.log = "error: expected ';' \xff\0 here";
  REQUIRE_OK(store->put_artifact(broken, test::sample_source(), "source"));
  auto rows = store->find_artifacts({broken.build_sha256, sha256_hex("unknown"), artifact.build_sha256});
  REQUIRE_OK(rows);
  REQUIRE(rows->size() == 2);
  CHECK((*rows)[0].status == "error");
  CHECK((*rows)[1].status == "ok");
  CHECK((*rows)[1].cubin.empty());
  CHECK((*rows)[1].cubin_sha256 == sha256_hex("first"));
  auto mended = test::sample_artifact(R"({"BLOCK":32})", "good");
  REQUIRE_OK(store->put_artifact(mended, test::sample_source(), "source"));
  found = store->find_artifact(broken.build_sha256);
  REQUIRE_OK(found);
  CHECK((*found)->status == "ok");
  CHECK((*found)->cubin == "good");
  // A later failure of what once compiled changes nothing.
  REQUIRE_OK(store->put_artifact(broken, test::sample_source(), "source"));
  CHECK((*store->find_artifact(broken.build_sha256))->cubin == "good");

  auto wrong = test::sample_artifact(R"({"BLOCK":16})", "bytes");
  wrong.cubin_sha256 = sha256_hex("other bytes");
  CHECK_FALSE(store->put_artifact(wrong, test::sample_source(), "source").ok());
  CHECK_FALSE(store->find_artifact(wrong.build_sha256)->has_value());
}

TEST_CASE("a study's end keeps the winner's cubin and those it did not make, and drops its losers'") {
  auto store = test::open_store("off");
  const auto key = test::sample_key();
  const auto earlier = test::sample_artifact(R"({"BLOCK":32})", "made ahead of time");
  REQUIRE_OK(store->put_artifact(earlier, test::sample_source(), "source"));
  auto claim = store->claim(key, 8s, false);
  REQUIRE_OK(claim);
  auto study = store->begin_study(key, test::sample_study());
  REQUIRE_OK(study);
  const auto loser = test::sample_artifact(R"({"BLOCK":64})", "loser");
  REQUIRE_OK(store->put_artifact(loser, test::sample_source(), "source"));
  const auto winner = test::sample_artifact(R"({"BLOCK":128})", "winner");
  REQUIRE_OK(store->put_artifact(winner, test::sample_source(), "source"));
  for (const auto& artifact : {earlier, loser, winner})
    REQUIRE_OK(store->add_trial(*study, claim->lease, test::sample_trial(artifact.config, 15)));
  REQUIRE_OK(
      store->end_study(*study, claim->lease, {"won", "a note"}, test::sample_winner(winner.config, 15, "winner")));
  CHECK((*store->find_artifact(winner.build_sha256))->cubin == "winner");
  CHECK((*store->find_artifact(earlier.build_sha256))->cubin == "made ahead of time");
  auto dropped = store->find_artifact(loser.build_sha256);
  REQUIRE_OK(dropped);
  REQUIRE(dropped->has_value());
  CHECK((*dropped)->cubin.empty());
  CHECK((*dropped)->regs == 40);
  // Compiled again for another key: the bytes come back.
  REQUIRE_OK(store->put_artifact(loser, test::sample_source(), "source"));
  CHECK((*store->find_artifact(loser.build_sha256))->cubin == "loser");
}

TEST_CASE("cubins compiled ahead stay until their key is tuned to the end, then the losers' go") {
  auto store = test::open_store("off");
  const auto key = test::sample_key(), other = test::sample_key(R"({"M":8192})");
  const auto winner = test::sample_artifact(R"({"BLOCK":64})", "winner");
  const auto loser = test::sample_artifact(R"({"BLOCK":128})", "loser");
  const auto untried = test::sample_artifact(R"({"BLOCK":256})", "untried");
  const auto shared = test::sample_artifact(R"({"BLOCK":512})", "wanted for another problem too");
  for (const auto& artifact : {winner, loser, untried, shared}) {
    REQUIRE_OK(store->put_artifact(artifact, test::sample_source(), "source"));
    for (int twice = 0; twice < 2; ++twice) REQUIRE_OK(store->keep_until_tuned(artifact.build_sha256, key.problem));
  }
  REQUIRE_OK(store->keep_until_tuned(shared.build_sha256, other.problem));
  const auto has = [&](const store::ArtifactRow& artifact) {
    const auto found = store->find_artifact(artifact.build_sha256);
    return found.ok() && found->has_value() && !(*found)->cubin.empty();
  };
  const auto run = [&](const key::TuningKey& of, const char* outcome) {
    auto claim = store->claim(of, 8s, true);
    REQUIRE_OK(claim);
    auto study = store->begin_study(of, test::sample_study());
    REQUIRE_OK(study);
    for (const auto& artifact : {winner, loser})
      REQUIRE_OK(store->add_trial(*study, claim->lease, test::sample_trial(artifact.config, 15)));
    REQUIRE_OK(store->end_study(*study, claim->lease, {outcome, ""}, test::sample_winner(winner.config, 15, "winner")));
  };
  run(key, "budget");  // goes on another time
  for (const auto& artifact : {winner, loser, untried, shared}) CHECK(has(artifact));
  run(key, "won");
  CHECK(has(winner));
  CHECK_FALSE(has(loser));
  CHECK_FALSE(has(untried));
  CHECK(has(shared));
  run(other, "default_kept");
  CHECK(has(winner));
  CHECK_FALSE(has(shared));
}

TEST_CASE("trials come back as they were, the latest of each config over all studies of a key") {
  auto store = test::open_store("off");
  const auto key = test::sample_key();
  int64_t studies[2] = {};
  for (int round = 0; round < 2; ++round) {
    auto claim = store->claim(key, 8s, false);
    REQUIRE_OK(claim);
    auto study = store->begin_study(key, test::sample_study());
    REQUIRE_OK(study);
    studies[round] = *study;
    REQUIRE_OK(store->add_trial(*study, claim->lease, test::sample_trial(R"({"BLOCK":64})", 20 + round)));
    if (round == 0) {
      store::TrialRow failed;
      failed.config = R"({"BLOCK":1024})";
      failed.status = "run_timeout";
      failed.error = "killed after 1000 ms";
      failed.wall_ms = 1003;
      REQUIRE_OK(store->add_trial(*study, claim->lease, failed));
    }
    REQUIRE_OK(store->end_study(*study, claim->lease, {"budget", ""}, std::nullopt));
  }
  CHECK(studies[0] != studies[1]);
  auto trials = store->trials_of(key.sha256);
  REQUIRE_OK(trials);
  REQUIRE(trials->size() == 2);
  const store::TrialRow& failed = (*trials)[0];
  CHECK(failed.status == "run_timeout");
  CHECK(failed.error == "killed after 1000 ms");
  CHECK(failed.samples == 0);
  CHECK(failed.median_us == 0);
  CHECK(failed.wall_ms == 1003);
  CHECK(failed.study == studies[0]);
  const store::TrialRow expected = test::sample_trial(R"({"BLOCK":64})", 21);
  const store::TrialRow& timed = (*trials)[1];
  CHECK(timed.study == studies[1]);
  CHECK(timed.config == expected.config);
  CHECK(timed.build_sha256 == expected.build_sha256);
  CHECK(timed.samples == 5);
  CHECK(timed.min_us == expected.min_us);
  CHECK(timed.median_us == expected.median_us);
  CHECK(timed.mean_us == expected.mean_us);
  CHECK(timed.stddev_us == expected.stddev_us);
  CHECK(timed.max_us == expected.max_us);
  CHECK(timed.first_us == expected.first_us);
  CHECK(timed.clock_mhz == 1755);
  CHECK(timed.occupancy == 0.75);
  CHECK(timed.default_us == 20);
  CHECK(timed.shared_bytes == 49152);
  CHECK(timed.wall_ms == 240);
  auto first = store->trials_of_study(studies[0]);
  REQUIRE_OK(first);
  CHECK(first->size() == 2);
  CHECK(store->trials_of(test::sample_key(R"({"M":1})").sha256)->empty());
}

TEST_CASE("times that are none are refused, whatever the status that asks for them") {
  auto store = test::open_store("off");
  const auto key = test::sample_key();
  auto claim = store->claim(key, 8s, false);
  auto study = store->begin_study(key, test::sample_study());
  REQUIRE_OK(study);
  const double nan = std::nan("");
  const double inf = std::numeric_limits<double>::infinity();
  for (const char* status : {"ok", "early_stopped"}) {
    for (double store::TrialRow::*field :
         {&store::TrialRow::min_us, &store::TrialRow::median_us, &store::TrialRow::max_us}) {
      for (const double bad : {nan, inf, 0.0, -1.0}) {
        store::TrialRow trial = test::sample_trial(R"({"BLOCK":64})", 20);
        trial.status = status;
        trial.*field = bad;
        CAPTURE(bad);
        CHECK_FALSE(store->add_trial(*study, claim->lease, trial).ok());
      }
    }
    store::TrialRow trial = test::sample_trial(R"({"BLOCK":64})", 20);
    trial.status = status;
    trial.samples = 0;
    CHECK_FALSE(store->add_trial(*study, claim->lease, trial).ok());
  }
  store::TrialRow trial = test::sample_trial(R"({"BLOCK":64})", 20);
  trial.status = "fine";
  CHECK_FALSE(store->add_trial(*study, claim->lease, trial).ok());
  trial.status = "ok";
  trial.default_us = nan;  // not known, which is stored as such
  CHECK(store->add_trial(*study, claim->lease, trial).ok());
  for (const double bad : {nan, inf, 0.0, -1.0})
    CHECK_FALSE(store->end_study(*study, claim->lease, {"won", ""}, test::sample_winner(R"({"BLOCK":64})", bad)).ok());
  CHECK_FALSE(store->end_study(*study, claim->lease, {"splendid", ""}, std::nullopt).ok());
  CHECK(store->trials_of(key.sha256)->size() == 1);
  CHECK_FALSE(store->find_winner(key.sha256)->has_value());
  // None of the refusals has cost the study its lease.
  CHECK(store->end_study(*study, claim->lease, {"won", ""}, test::sample_winner(R"({"BLOCK":64})", 12)).ok());
}

TEST_CASE("compatible and related winners") {
  auto store = test::open_store("off");
  auto older = test::sample_key();
  older.nvrtc = "12.8.93";
  key::seal(older);
  auto newer = test::sample_key();
  newer.nvrtc = "12.9.86";
  key::seal(newer);
  const auto ours = test::sample_key();
  CHECK_FALSE(store->find_compatible(ours)->has_value());
  test::publish(*store, older, R"({"BLOCK":64})");
  test::publish(*store, newer, R"({"BLOCK":256})");
  auto found = store->find_compatible(ours);
  REQUIRE_OK(found);
  REQUIRE(found->has_value());
  CHECK((*found)->nvrtc == "12.9.86");
  CHECK((*found)->config == R"({"BLOCK":256})");
  CHECK((*found)->artifact->cubin == test::sample_artifact("").cubin);
  auto none_here = ours;
  none_here.nvrtc = "";
  key::seal(none_here);
  CHECK((*store->find_compatible(none_here))->nvrtc == "12.9.86");

  // One changed field at a time: nothing else than nvrtc may differ.
  const auto differs = [&](auto change) {
    auto key = ours;
    change(key);
    key::seal(key);
    return !store->find_compatible(key)->has_value();
  };
  CHECK(differs([](auto& k) { k.kernel = "other"; }));
  CHECK(differs([](auto& k) { k.variant = "hopper"; }));
  CHECK(differs([](auto& k) { k.source_sha256 = sha256_hex("x"); }));
  CHECK(differs([](auto& k) { k.entry = "x"; }));
  CHECK(differs([](auto& k) { k.options = "{}"; }));
  CHECK(differs([](auto& k) { k.launch_sha256 = sha256_hex("x"); }));
  CHECK(differs([](auto& k) { k.problem = "{}"; }));
  CHECK(differs([](auto& k) { k.arch = "sm_90a"; }));
  CHECK(differs([](auto& k) { k.cc = 100; }));
  CHECK(differs([](auto& k) { k.sm_count = 114; }));
  CHECK(differs([](auto& k) { k.memory_gib = 80; }));
  CHECK(differs([](auto& k) { k.l2_bytes = 1; }));
  CHECK(differs([](auto& k) { k.max_clock_mhz = 1; }));
  CHECK(differs([](auto& k) { k.max_memory_clock_mhz = 1; }));
  CHECK(differs([](auto& k) { k.policy = "warm"; }));
  CHECK(differs([](auto& k) { k.environment = R"({"A":"1"})"; }));
  CHECK(differs([](auto& k) { k.callables = R"({"check":"2"})"; }));
  CHECK(differs([](auto& k) { k.schema = 99; }));

  auto other_problem = store->find_related(test::sample_key(R"({"M":8192})"));
  REQUIRE_OK(other_problem);
  REQUIRE(other_problem->size() == 2);
  CHECK((*other_problem)[0].key.problem == R"({"M":4096})");
  CHECK((*other_problem)[0].winner.has_value());
  CHECK(store->find_related(ours)->empty());
  auto other_device = test::sample_key(R"({"M":8192})");
  other_device.sm_count = 114;
  CHECK(store->find_related(other_device)->empty());
}

TEST_CASE("a pinned winner is never replaced, and a winner without an artifact is one") {
  auto store = test::open_store("off");
  const auto key = test::sample_key();
  auto claim = store->claim(key, 8s, false);
  auto study = store->begin_study(key, test::sample_study());
  REQUIRE_OK(study);
  store::WinnerRow pinned = test::sample_winner(R"({"BLOCK":32})", 14);
  pinned.artifact.reset();
  pinned.default_us = 0;
  pinned.pinned = true;
  REQUIRE_OK(store->end_study(*study, claim->lease, {"won", ""}, pinned));
  auto found = store->find_winner(key.sha256);
  REQUIRE_OK(found);
  REQUIRE(found->has_value());
  CHECK((*found)->pinned);
  CHECK_FALSE((*found)->artifact.has_value());
  CHECK((*found)->default_us == 0);
  // Even a forced study can't have it.
  auto again = store->claim(key, 8s, true);
  REQUIRE_OK(again);
  CHECK(again->state == store::Claim::State::answered);
  // One that was under way when a person pinned it ends well and changes nothing.
  const auto other = test::sample_key(R"({"M":1})");
  test::publish(*store, other);
}

TEST_CASE("failures are remembered by build and problem, and forgotten after 90 days") {
  static int64_t now;
  now = 1'800'000'000;
  store::Store::OpenOptions options;
  options.now = [] { return now; };
  auto opened = store::Store::open(options);
  REQUIRE_OK(opened);
  store::Store& store = **opened;
  const std::string build = sha256_hex("build");
  CHECK_FALSE(store.known_failure(build, "")->has_value());
  REQUIRE_OK(store.record_failure(build, "", "compile_crash", "signal 11"));
  REQUIRE_OK(store.record_failure(build, R"({"M":1})", "run_timeout", "killed"));
  CHECK(*store.known_failure(build, "") == "compile_crash");
  CHECK(*store.known_failure(build, R"({"M":1})") == "run_timeout");
  CHECK_FALSE(store.known_failure(build, R"({"M":2})")->has_value());
  CHECK_FALSE(store.known_failure(sha256_hex("other"), "")->has_value());
  now += 89 * 86400;
  CHECK(store.known_failure(build, "")->has_value());
  REQUIRE_OK(store.record_failure(build, "", "compile_timeout", "60 s"));
  now += 2 * 86400;
  CHECK(*store.known_failure(build, "") == "compile_timeout");
  CHECK_FALSE(store.known_failure(build, R"({"M":1})")->has_value());
}

TEST_CASE("misses are counted by exact problem until the key is answered") {
  auto store = test::open_store("off");
  const auto key = test::sample_key();
  for (int i = 0; i < 3; ++i) REQUIRE_OK(store->record_miss(key, R"({"M":4095})", "NVIDIA H200"));
  REQUIRE_OK(store->record_miss(key, R"({"M":4096})", "NVIDIA H200"));
  REQUIRE_OK(store->record_miss(test::sample_key(R"({"M":1})"), R"({"M":1})", "NVIDIA H200"));
  auto misses = store->misses();
  REQUIRE_OK(misses);
  REQUIRE(misses->size() == 3);
  CHECK((*misses)[0].count == 3);
  CHECK((*misses)[0].problem == R"({"M":4095})");
  CHECK((*misses)[0].kernel == "rmsnorm");
  CHECK((*misses)[0].key_sha256 == key.sha256);
  CHECK((*misses)[0].device == "NVIDIA H200");
  CHECK((*misses)[0].nvrtc == "13.0.88");
  CHECK((*misses)[0].last_at > 1'700'000'000);
  test::publish(*store, key);
  misses = store->misses();
  REQUIRE_OK(misses);
  REQUIRE(misses->size() == 1);
  CHECK((*misses)[0].problem == R"({"M":1})");
}

TEST_CASE("a toolchain is known by its whole stat tuple") {
  auto store = test::open_store("off");
  const store::Store::Toolchain known{"/usr/lib/libnvrtc.so.13", 1, 2, 3, 4, "13.0", "13.0.88"};
  CHECK_FALSE(store->find_toolchain(known).has_value());
  store->put_toolchain(known);
  auto found = store->find_toolchain({known.path, 1, 2, 3, 4, "", ""});
  REQUIRE(found.has_value());
  CHECK(found->version == "13.0");
  CHECK(found->build == "13.0.88");
  CHECK_FALSE(store->find_toolchain({"/elsewhere", 1, 2, 3, 4, "", ""}).has_value());
  CHECK_FALSE(store->find_toolchain({known.path, 9, 2, 3, 4, "", ""}).has_value());
  CHECK_FALSE(store->find_toolchain({known.path, 1, 9, 3, 4, "", ""}).has_value());
  CHECK_FALSE(store->find_toolchain({known.path, 1, 2, 9, 4, "", ""}).has_value());
  CHECK_FALSE(store->find_toolchain({known.path, 1, 2, 3, 9, "", ""}).has_value());
  store->put_toolchain({known.path, 1, 2, 3, 9, "13.1", "13.1.10"});
  CHECK_FALSE(store->find_toolchain(known).has_value());
}

TEST_CASE("sources are kept once for people, unless they are no text") {
  auto store = test::open_store("off");
  REQUIRE_OK(store->put_artifact(test::sample_artifact("{}"), test::sample_source(), "__global__ void k() {}"));
  CHECK(*store->source_of(test::sample_source().sha256) == "__global__ void k() {}");
  key::SourceHash binary{sha256_hex("binary"), {}, {}};
  REQUIRE_OK(store->put_artifact(test::sample_artifact(R"({"A":1})"), binary, "// caf\xe9"));
  auto kept = store->source_of(binary.sha256);
  REQUIRE_FALSE(kept.ok());
  CHECK(kept.error().find("not UTF-8") != std::string::npos);
  auto unknown = store->source_of("0123");
  REQUIRE_FALSE(unknown.ok());
  CHECK(unknown.error().find("'0123'") != std::string::npos);
}

TEST_CASE("the default path") {
  CHECK(store::default_path("/x/cache", "/home/u") == "/x/cache/jitune/jitune.db");
  CHECK(store::default_path("/x/cache/", nullptr) == "/x/cache/jitune/jitune.db");
  CHECK(store::default_path("relative", "/home/u") == "/home/u/.cache/jitune/jitune.db");
  CHECK(store::default_path(nullptr, "/home/u/") == "/home/u/.cache/jitune/jitune.db");
  CHECK(store::default_path("", "/home/u") == "/home/u/.cache/jitune/jitune.db");
  CHECK(store::default_path(nullptr, nullptr).empty());
  CHECK(store::default_path(nullptr, "").empty());
}
