// What a search starts from: trials of the same kernel under other keys, nearest first.
#include "tune/records.hpp"

#include "support/support.hpp"

using namespace jitune;

namespace {

key::TuningKey key_of(const std::string& problem, const std::string& kernel = "gemm") {
  key::TuningKey key;
  key.kernel = kernel;
  key.problem = problem;
  key.source_sha256 = key.launch_sha256 = std::string(64, 'a');
  key.arch = "sm_90";
  key.sm_count = 132;
  key.nvrtc = "13.0.88";
  key.options = key.environment = key.callables = "{}";
  key::seal(key);
  return key;
}

void tuned(store::Store& store, const key::TuningKey& key, double fast_us) {
  const auto claim = store.claim(key, std::chrono::seconds(60), false);
  REQUIRE(claim.ok());
  store::StudyRow about;
  about.strategy = "random";
  about.space = about.default_config = "{}";
  const auto study = store.begin_study(key, about);
  REQUIRE_MESSAGE(study.ok(), study.error());
  const std::pair<const char*, double> times[] = {{R"({"B":64})", fast_us}, {R"({"B":128})", 2 * fast_us}};
  for (const auto& [config, time_us] : times) {
    store::TrialRow row;
    row.config = config;
    row.status = "ok";
    row.samples = 3;
    row.min_us = row.median_us = row.mean_us = row.max_us = row.first_us = time_us;
    REQUIRE(store.add_trial(*study, claim->lease, row).ok());
  }
  store::TrialRow failed;
  failed.config = R"({"B":256})";
  failed.status = "compile_error";
  REQUIRE(store.add_trial(*study, claim->lease, failed).ok());
  REQUIRE(store.end_study(*study, claim->lease, {"won", ""}, std::nullopt).ok());
}

}  // namespace

TEST_CASE("records are those of the same kernel's other keys, nearest first, with what ran") {
  store::Store::OpenOptions options;
  options.path = "off";
  auto store = store::Store::open(options);
  REQUIRE(store.ok());
  const key::TuningKey own = key_of(R"({"M":4096,"T":"half"})");
  tuned(**store, own, 1);
  tuned(**store, key_of(R"({"M":1024,"T":"half"})"), 10);
  tuned(**store, key_of(R"({"M":8192,"T":"half"})"), 20);
  tuned(**store, key_of(R"({"M":4096,"T":"float"})"), 30);
  tuned(**store, key_of(R"({"M":4096,"T":"half"})", "softmax"), 40);
  const auto records = tune::records_near(**store, own);
  REQUIRE(records.size() == 3);
  CHECK(records[0].distance == doctest::Approx(1));
  CHECK(records[1].distance == doctest::Approx(2));
  CHECK(records[2].distance > 2);
  REQUIRE(records[0].times_us.size() == 2);
  for (const auto& [config, time_us] : records[0].times_us) CHECK(time_us == (config.at("B") == Value(64) ? 20 : 40));
}

TEST_CASE("another device, source or compiler is further away than none") {
  const key::TuningKey own = key_of(R"({"M":4096})");
  CHECK(tune::distance_between(own, own) == 0);
  key::TuningKey other = own;
  other.nvrtc = "12.9.86";
  const double compiler = tune::distance_between(own, other);
  CHECK(compiler > 0);
  other = own;
  other.source_sha256 = std::string(64, 'b');
  const double source = tune::distance_between(own, other);
  CHECK(source > compiler);
  other = own;
  other.arch = "sm_80";
  CHECK(tune::distance_between(own, other) > source);
}
