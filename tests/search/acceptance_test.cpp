// A short form of tests/bench/search_acceptance: few seeds, looser bars, on spaces that others measured.
#include <cstdlib>

#include "apps/prewarm/replay_files.hpp"
#include "support/support.hpp"

using namespace jitune;

namespace {

/// Nothing, having said so, where the recordings are not at hand.
std::optional<search::RecordedSpace> recorded(const std::string& name) {
  const char* directory = std::getenv("JITUNE_REPLAY_DIR");
  if (directory == nullptr) {
    test::skip("replay", "JITUNE_REPLAY_DIR is not set");
    return std::nullopt;
  }
  auto space = prewarm::read_recorded(std::string(directory) + "/" + name + ".csv.gz");
  REQUIRE_MESSAGE(space.ok(), space.error());
  return std::move(*space);
}

std::vector<search::ReplayRun> runs(const search::RecordedSpace& space, const std::string& strategy, uint64_t budget,
                                    size_t batch = 1) {
  search::ReplayOptions options;
  options.strategy.name = strategy;
  options.strategy.trials = budget;
  options.budget = budget;
  options.batch = batch;
  const auto all = search::replay_seeds(space, options, 1, 6, 1);
  for (const search::ReplayRun& run : all) {
    CHECK(run.wrong_proposals == 0);
    CHECK(run.f.size() == budget);
  }
  return all;
}

}  // namespace

TEST_CASE("learning strategies beat random draws on a measured space, one at a time and in batches") {
  const auto space = recorded("convold_RTX_3090");
  if (!space) return;
  const double random = search::mean_f(runs(*space, "random", 100), 100);
  CHECK(random > .8);
  CHECK(random < .97);
  for (const char* name : {"auto", "bayes", "genetic", "annealing"}) {
    CAPTURE(name);
    CHECK(search::mean_f(runs(*space, name, 100), 100) > random);
  }
  CHECK(search::mean_f(runs(*space, "auto", 100), 100) > .97);
  CHECK(search::mean_f(runs(*space, "auto", 100, 8), 100) > .95);
}

TEST_CASE("spaces that were brute-forced on an H200: 100 trials find what is within 3 % of the best") {
  for (const char* name : {"gemm_wide_H200", "softmax_wide_H200"}) {
    CAPTURE(name);
    auto space = prewarm::read_recorded(std::string(JITUNE_SOURCE_DIR) + "/tests/data/" + name + ".csv");
    REQUIRE_MESSAGE(space.ok(), space.error());
    CHECK(search::mean_f(runs(*space, "auto", 100), 100) > .97);
  }
}

TEST_CASE("records of other devices put a search near the optimum at once") {
  const auto target = recorded("conv15m_A6000"), source = recorded("conv15m_A4000");
  if (!target || !source) return;
  search::ReplayOptions options;
  options.strategy.trials = options.budget = 20;
  options.strategy.records.push_back(source->record());
  CHECK(search::mean_f(search::replay_seeds(*target, options, 1, 4, 1), 20) > .9);
}

TEST_CASE("the space as stated is the one that was measured; a damaged file is refused with its name") {
  const auto space = recorded("pnpoly_RTX_3060_laptop");
  if (!space) return;
  CHECK(space->rows() == 4092);
  CHECK(space::ValidSet(space->space()).size() == 4092);
  test::TempDir dir;
  test::write_file(dir / "bad.csv", "# {\"format\": \"replay-csv-2\"}\n");
  const auto bad = prewarm::read_recorded(dir / "bad.csv");
  REQUIRE_FALSE(bad.ok());
  CHECK(bad.error().find("bad.csv: line 1 is not the header of replay-csv-1") != std::string::npos);
  CHECK_FALSE(prewarm::read_recorded(dir / "none.csv").ok());
}

TEST_CASE("Python's constraints are read as ours") {
  CHECK(prewarm::from_python("64 <= a*b <= 1024") == "64 <= a*b && a*b <= 1024");
  CHECK(prewarm::from_python("a==0 or b % 32 != 0") == "(a==0) || (b % 32 != 0)");
  CHECK(prewarm::from_python("not (a > 1 and b > 1)") == "!(((a > 1) && (b > 1)))");
  CHECK(prewarm::from_python("a // b < 3") == "a / b < 3");
}

TEST_CASE("files of Kernel Tuner, T4 and KTT are read") {
  const char* directory = std::getenv("JITUNE_FORMATS_DIR");
  if (directory == nullptr) return test::skip("formats", "JITUNE_FORMATS_DIR is not set");
  const std::string base = std::string(directory) + "/";
  const auto t4 = prewarm::read_recorded(base + "convolution_milo_A100_T4.json.gz");
  REQUIRE_MESSAGE(t4.ok(), t4.error());
  CHECK(t4->rows() == 4362);
  const auto ktt = prewarm::read_recorded(base + "KTT_KTPnpolyOutput_3090.json.gz");
  REQUIRE_MESSAGE(ktt.ok(), ktt.error());
  CHECK(ktt->rows() == 4092);
  CHECK(ktt->optimum_us() > 1000);
  const auto mixed = prewarm::read_recorded(base + "test_strategies_test_cache_file.json");
  REQUIRE_MESSAGE(mixed.ok(), mixed.error());
  CHECK(mixed->optimum_us() > 10);
  const auto clocks = prewarm::read_recorded(base + "test_synthetic_fp32_cache_NVIDIA_RTX_A4000.json");
  REQUIRE_MESSAGE(clocks.ok(), clocks.error());
  CHECK(clocks->rows() == 10);
}

TEST_CASE("a recording is written and read back") {
  const search::RecordedSpace made("made", space::plain_space({{"A", {1, 2}}, {"B", {"x", "y"}}}, {}),
                                   {{{{"A", 1}, {"B", "x"}}, {search::Fate::ok, 1500, .01}},
                                    {{{"A", 2}, {"B", "x"}}, {search::Fate::ok, 1250, .01}},
                                    {{{"A", 2}, {"B", "y"}}, {search::Fate::compile_failed, 0, 0}}});
  test::TempDir dir;
  test::write_file(dir / "made.csv", prewarm::write_replay_csv(made, "some GPU", "a test"));
  const auto back = prewarm::read_recorded(dir / "made.csv");
  REQUIRE_MESSAGE(back.ok(), back.error());
  CHECK(back->rows() == 3);
  CHECK(back->optimum_us() == doctest::Approx(1250));
  CHECK(back->find({{"A", 2}, {"B", "y"}})->fate == search::Fate::compile_failed);
  CHECK(back->find({{"A", 1}, {"B", "y"}}) == nullptr);
}
