// Racing as a study does it, on launches that others recorded one by one.
#include <cstdlib>
#include <string>

#include "races.hpp"
#include "support/support.hpp"

using namespace jitune::measure::test;

TEST_CASE("racing on recorded launches") {
  const char* directory = std::getenv("JITUNE_REPLAY_DIR");
  if (directory == nullptr) return jitune::test::skip("replay", "JITUNE_REPLAY_DIR is not set");
  double time_share = 0, regret = 0;
  for (const std::string& space : raced_spaces()) {
    const auto outcome = race_recorded(directory, space);
    REQUIRE_MESSAGE(outcome, space);
    MESSAGE(space << ": " << outcome->rows << " rows, time against 7 runs " << outcome->time_share << ", runs "
                  << outcome->runs << ", regret " << 100 * outcome->regret << " %");
    time_share += outcome->time_share / static_cast<double>(raced_spaces().size());
    regret += outcome->regret / static_cast<double>(raced_spaces().size());
  }
  MESSAGE("M1 mean: time " << time_share << ", regret " << 100 * regret << " %; bars 0.35, 0.6 %");
  CHECK(time_share <= 0.35);
  CHECK(regret <= 0.006);
  const auto hard = race_recorded(directory, kHardSpace);
  REQUIRE(hard);
  MESSAGE("M2 " << std::string(kHardSpace) << ": time " << hard->time_share << ", runs " << hard->runs << ", regret "
                << 100 * hard->regret << " %; bar 5 %");
  CHECK(hard->regret <= 0.05);
}
