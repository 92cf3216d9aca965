#include <doctest/doctest.h>

#include <chrono>

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
