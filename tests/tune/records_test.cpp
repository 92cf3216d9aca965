// What a search starts from: trials of the same kernel under other keys, nearest first.
#include "tune/records.hpp"

#include "support/support.hpp"
#include "tune/history.hpp"

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

TEST_CASE("times of earlier studies are told in one unit: the default config's time in the newest that knows it") {
  std::map<std::string, store::TrialRow> rows;
  const auto add = [&](int b, int64_t study, const char* status, double median_us, double default_us) {
    store::TrialRow& row = rows["{\"B\":" + std::to_string(b) + "}"];
    row.study = study;
    row.status = status;
    row.median_us = row.mean_us = median_us;
    row.stddev_us = median_us / 50;
    row.default_us = default_us;
  };
  add(32, 1, "ok", 100, 200);  // half of the default config
  add(64, 2, "ok", 90, 120);   // three quarters: slower than the one above, though its time is less
  add(96, 2, "early_stopped", 240, 120);
  add(128, 1, "wrong_result", 0, 200);
  add(160, 3, "ok", 70, 0);  // the newest study ended before the default config was timed
  rows["no config"] = rows.begin()->second;
  const tune::History history = tune::in_one_unit(rows);
  CHECK(history.default_us == 120);
  REQUIRE(history.told.size() == 5);
  std::map<int64_t, search::Told> told;
  for (const auto& [config, one] : history.told) told[config.at("B").as_int()] = one;
  CHECK(told[32].time_us == doctest::Approx(60));
  CHECK(told[64].time_us == doctest::Approx(90));
  CHECK(told[96].time_us == doctest::Approx(240));
  CHECK(told[160].time_us == doctest::Approx(70));
  CHECK(told[32].noise == doctest::Approx(.02));
  CHECK(told[32].fate == search::Fate::ok);
  CHECK(told[96].fate == search::Fate::early_stopped);
  CHECK(told[128].fate == search::Fate::wrong);

  for (auto& [text, row] : rows) row.default_us = 0;
  const tune::History unknown = tune::in_one_unit(rows);
  CHECK(unknown.default_us == 0);
  for (const auto& [config, one] : unknown.told)
    if (config.at("B") == Value(32)) CHECK(one.time_us == doctest::Approx(100));
  CHECK(tune::in_one_unit({}).told.empty());
}
