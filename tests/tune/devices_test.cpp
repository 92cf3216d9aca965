// Studies on several GPUs of one class.
#include <map>

#include "tune/compiler.hpp"
#include "tune/device_lock.hpp"
#include "tune/fixture.hpp"

using namespace jitune;
using test::Bench;

namespace {

constexpr const char* kSecond = "GPU-fa4e0001-0000-4000-8000-000000000000";
constexpr int kSecondsClock = 1700;  // tells in a trial's row which GPU it ran on

/// Two GPUs; BLOCK 128 with ITEMS 4 takes 1.6 ms and is the fastest by a tenth, the default config takes 4 ms.
std::string spec(const std::string& first, const std::string& second) {
  return R"({"real_time": true, "devices": [{"uuid": "GPU-fa4e0000-0000-4000-8000-000000000000")" + first +
         R"(}, {"uuid": ")" + kSecond + R"(", "busy_clocks_mhz": [1700])" + second +
         R"(}], "kernels": [{"match": "scale<", "time_us": 4000, "spread": 0, "noise": 0.001,
             "factors": [{"64": 1.0, "128": 0.5, "256": 0.7, "512": 0.9},
                         {"1": 1.0, "2": 0.9, "4": 0.8, "8": 0.88, "16": 0.95, "32": 1.1, "64": 1.2}]}]})";
}

double time_us(const std::string& config) {
  const std::map<int64_t, double> by_block{{64, 1.0}, {128, 0.5}, {256, 0.7}, {512, 0.9}};
  const std::map<int64_t, double> by_items{{1, 1.0}, {2, 0.9}, {4, 0.8}, {8, 0.88}, {16, 0.95}, {32, 1.1}, {64, 1.2}};
  const auto values = Json::parse(config);
  return 4000 * by_block.at(values["BLOCK"].get<int64_t>()) * by_items.at(values["ITEMS"].get<int64_t>());
}

KernelDefinition wide() {
  auto definition = Bench::scale();
  definition.params = {{"BLOCK", {64, 128, 256, 512}}, {"ITEMS", {1, 2, 4, 8, 16, 32, 64}}};
  return definition;
}
constexpr int kConfigs = 28;
constexpr const char* kFastest = R"({"BLOCK":128,"ITEMS":4})";

struct Tuned {
  tune::Outcome outcome;
  std::vector<store::TrialRow> rows;
  int on_second = 0;

  /// Every config has one trial, but for second chances of some that were stopped early.
  void check_each_once() const {
    std::map<std::string, std::string> seen;
    size_t second_chances = 0;
    for (const auto& row : rows) {
      second_chances += seen[row.config] == "early_stopped";
      CHECK_MESSAGE(seen[row.config] != "ok", row.config << " twice");
      seen[row.config] = row.status;
    }
    CHECK(seen.size() == kConfigs);
    CHECK(rows.size() == kConfigs + second_chances);
    CHECK(second_chances <= kConfigs / 20);
  }
};

/// Everything is compiled first, so that measuring is what takes the time.
Tuned tune_on_both(
    Bench& bench, const std::function<void(space::DeviceInfo&)>& change = [](auto&) {},
    const KernelDefinition& definition = wide()) {
  {
    auto request = bench.request(definition);
    auto compiled = tune::compile_all(bench.services(), {.instance = request.instance});
    REQUIRE_MESSAGE(compiled.ok(), compiled.error());
  }
  auto second = bench.device();
  second.uuid = kSecond;
  change(second);
  Tuned tuned;
  tuned.outcome = bench.tune(definition, [&](tune::Request& request) {
    request.more_devices = {second};
    request.on_trial = [&](const store::TrialRow& row) {
      tuned.rows.push_back(row);
      tuned.on_second += row.clock_mhz == kSecondsClock;
    };
  });
  return tuned;
}

}  // namespace

TEST_CASE("configs are spread over two GPUs, and the times of one that is 1.3 times slower are made comparable") {
  if (!test::have_nvrtc()) return;
  const std::pair<const char*, const char*> speeds[] = {{"", R"(, "slower": 1.3)"}, {R"(, "slower": 1.3)", ""}};
  for (const auto& [first, second] : speeds) {
    const double unit = *first == 0 ? 1 : 1.3;  // times are the first GPU's
    CAPTURE(unit);
    Bench bench(spec(first, second));
    const auto tuned = tune_on_both(bench);
    REQUIRE_MESSAGE(tuned.outcome.outcome == "won", tuned.outcome.note);
    CHECK(tuned.outcome.devices == 2);
    CHECK(tuned.on_second >= 3);
    CHECK(tuned.on_second <= kConfigs - 3);
    tuned.check_each_once();
    REQUIRE(tuned.outcome.winner.has_value());
    CHECK(tuned.outcome.winner->config == kFastest);
    CHECK(tuned.outcome.winner->median_us == doctest::Approx(unit * 1600).epsilon(0.02));
    CHECK(tuned.outcome.winner->default_us == doctest::Approx(unit * 4000).epsilon(0.02));
    for (const auto& row : tuned.rows) {
      CAPTURE(row.config);
      CAPTURE(row.clock_mhz);
      CHECK((row.status == "ok" || row.status == "early_stopped"));
      CHECK(row.median_us == doctest::Approx(unit * time_us(row.config)).epsilon(0.02));
    }
  }
}

TEST_CASE("a config is not lost for running on a GPU that is slow at it, though as fast as the other at the default") {
  if (!test::have_nvrtc()) return;
  // On the second GPU the best config takes longer than the second best one on the first.
  Bench bench(R"({"real_time": true, "devices": [{"uuid": "GPU-fa4e0000-0000-4000-8000-000000000000"}, {"uuid": ")" +
              std::string(kSecond) + R"(", "busy_clocks_mhz": [1700], "factors": [{"128": 1.16}]}],
      "kernels": [{"match": "scale<", "time_us": 2000, "spread": 0, "noise": 0.0005,
                   "factors": [{"64": 1.0, "128": 0.5}, {"1": 0.8, "2": 0.86, "4": 0.86, "8": 0.86, "16": 0.86}]}]})");
  auto definition = Bench::scale();
  definition.params = {{"BLOCK", {64, 128}}, {"ITEMS", {1, 2, 4, 8, 16}}};
  auto second = bench.device();
  second.uuid = kSecond;
  const std::string kBest = R"({"BLOCK":128,"ITEMS":1})";
  int on_second = 0;
  for (int study = 0; study < 5; ++study) {  // the second GPU gets it in some of these
    const auto outcome = bench.tune(definition, [&](tune::Request& request) {
      request.more_devices = {second};
      request.force = true;
      request.on_trial = [&](const store::TrialRow& row) {
        on_second += row.config == kBest && row.clock_mhz == kSecondsClock;
      };
    });
    REQUIRE_MESSAGE(outcome.outcome == "won", outcome.note);
    CHECK(outcome.devices == 2);
    REQUIRE(outcome.winner.has_value());
    CHECK(outcome.winner->config == kBest);
  }
  MESSAGE("the best config was tried on the second GPU in " << on_second << " of 5 studies");
}

TEST_CASE("a GPU that is lost ends its part only: what ran there is tried on the other one, and no config is blamed") {
  if (!test::have_nvrtc()) return;
  for (const bool first_is_lost : {false, true}) {
    CAPTURE(first_is_lost);
    const std::string lost = R"(, "lost_after": 25)";
    Bench bench(spec(first_is_lost ? lost : "", first_is_lost ? "" : lost));
    const auto tuned = tune_on_both(bench);
    REQUIRE_MESSAGE(tuned.outcome.outcome == "won", tuned.outcome.note);
    CHECK(tuned.outcome.devices == 2);
    CHECK(tuned.outcome.failed == 0);
    tuned.check_each_once();
    // The lost one ran few, for it was lost early.
    CHECK((first_is_lost ? tuned.on_second : kConfigs - tuned.on_second) >= kConfigs * 2 / 3);
    REQUIRE(tuned.outcome.winner.has_value());
    CHECK(tuned.outcome.winner->config == kFastest);
    CHECK(tuned.outcome.winner->median_us == doctest::Approx(1600).epsilon(0.02));
  }
}

TEST_CASE("each GPU holds its configs against the definition's own reference, not against a default that is wrong") {
  if (!test::have_nvrtc()) return;
  auto definition = wide();
  definition.reference = Bench::plain();
  std::string wrong_ones = spec("", "");
  const std::string rules = "\"kernels\": [";
  wrong_ones.insert(wrong_ones.find(rules) + rules.size(),
                    R"({"match": "scale<64, 1>", "time_us": 4000, "spread": 0, "fault": "wrong"},
                       {"match": "scale<512,", "time_us": 4000, "spread": 0, "fault": "wrong"},
                       {"match": "scale<float>", "time_us": 5000, "spread": 0},)");
  Bench bench(wrong_ones);
  const auto tuned = tune_on_both(
      bench, [](auto&) {}, definition);
  REQUIRE_MESSAGE(tuned.outcome.outcome == "won", tuned.outcome.note);
  CHECK(tuned.outcome.devices == 2);
  CHECK(tuned.outcome.reference == "kernel scale<float>");
  CHECK(tuned.on_second >= 3);
  REQUIRE(tuned.outcome.winner.has_value());
  CHECK(tuned.outcome.winner->config == kFastest);
  int wrong = 0;
  for (const auto& row : tuned.rows) {
    CAPTURE(row.config);
    CAPTURE(row.clock_mhz);
    const auto values = Json::parse(row.config);
    const bool is_wrong = values["BLOCK"] == 512 || (values["BLOCK"] == 64 && values["ITEMS"] == 1);
    CHECK((row.status == "wrong_result") == is_wrong);
    wrong += is_wrong;
  }
  CHECK(wrong == 8);
}

TEST_CASE("when every GPU is lost nothing is published") {
  if (!test::have_nvrtc()) return;
  Bench bench(spec(R"(, "lost_after": 25)", R"(, "lost_after": 25)"));
  const auto tuned = tune_on_both(bench);
  CHECK(tuned.outcome.outcome == "error");
  CHECK_MESSAGE(tuned.outcome.note.find("the GPU failed: ") == 0, tuned.outcome.note);
  CHECK_FALSE(tuned.outcome.winner.has_value());
  CHECK(tuned.outcome.failed == 0);
}

TEST_CASE("a GPU of another class is refused, and the differences are named") {
  if (!test::have_nvrtc()) return;
  Bench bench(spec("", ""));
  const auto tuned = tune_on_both(bench, [](space::DeviceInfo& device) {
    device.sm_count = 78;
    device.name = "Fake H20";
  });
  CHECK(tuned.outcome.outcome == "error");
  CHECK(tuned.outcome.trials == 0);
  CHECK_MESSAGE(tuned.outcome.note.find("Fake H20") != std::string::npos, tuned.outcome.note);
  CHECK_MESSAGE(tuned.outcome.note.find("sm_count: 132 / 78") != std::string::npos, tuned.outcome.note);
}

TEST_CASE("a GPU that another process measures on, or whose memory is too small, is left out") {
  if (!test::have_nvrtc()) return;
  for (const bool locked : {true, false}) {
    CAPTURE(locked);
    const auto holder =
        locked ? tune::lock_device(kSecond, Clock::now() + std::chrono::seconds(5)) : Result<UniqueFd>(UniqueFd());
    REQUIRE_MESSAGE(holder.ok(), holder.error());
    Bench bench(spec("", locked ? "" : R"(, "memory_bytes": 65536)"));
    const auto tuned = tune_on_both(bench);
    REQUIRE_MESSAGE(tuned.outcome.outcome == "won", tuned.outcome.note);
    CHECK(tuned.outcome.devices == 1);
    CHECK(tuned.on_second == 0);
    tuned.check_each_once();
    CHECK(tuned.outcome.winner->config == kFastest);
    CHECK(tuned.outcome.wall_ms < 60000);  // nobody waits for it
  }
}
