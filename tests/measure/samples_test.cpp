#include "measure/samples.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "support/support.hpp"

using namespace jitune::measure;

namespace {

const std::vector<double> kMargins{0.15, 0.08, 0.05, 0.04};
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// A standard normal number for a seed and a counter.
double gauss(uint64_t seed, uint64_t counter) {
  double sum = 0;
  for (uint64_t part = 0; part < 12; ++part) {
    uint64_t z = seed * 0x9E3779B97F4A7C15ull + counter * 12 + part + 1;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    sum += static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
  }
  return sum - 6;
}

}  // namespace

TEST_CASE("what is not a time is dropped") {
  const Summary summary = summarise(std::vector<double>{kNan, 0, -3, kInfinity, 10, 30, 20, -kInfinity});
  CHECK(summary.samples == 3);
  CHECK(summary.min_us == 10);
  CHECK(summary.median_us == 20);
  CHECK(summary.mean_us == doctest::Approx(20));
  CHECK(summary.stddev_us == doctest::Approx(10));
  CHECK(summary.max_us == 30);
  CHECK(summarise(std::vector<double>{kNan, 0}).samples == 0);
  CHECK(summarise({}).samples == 0);
  CHECK(summarise(std::vector<double>{4, 1, 3, 2}).median_us == 2.5);
  CHECK(summarise(std::vector<double>{7}).stddev_us == 0);
}

TEST_CASE("a config has lost when its best sample is above the bound by the margin of that many samples") {
  struct Row {
    std::vector<double> samples;
    bool lost;
  };
  for (const Row& row : {
           Row{{114.9}, false},
           Row{{115.1}, true},  // 15 % after one
           Row{{115.1, 107.9}, false},
           Row{{120, 108.1}, true},  // 8 % after two
           Row{{120, 110, 104.9}, false},
           Row{{120, 110, 105.1}, true},  // 5 % after three
           Row{{120, 110, 110, 103.9}, false},
           Row{{120, 110, 110, 104.1}, true},
           Row{{120, 110, 110, 110, 110, 104.1}, true},  // the last margin holds on
           Row{{500, 90}, false},                        // the best one counts
           Row{{kNan, 0, 114}, false},                   // two are no samples: still 15 %
           Row{{}, false},
           Row{{kNan}, false},
       }) {
    CAPTURE(row.samples.size());
    CHECK(has_lost(row.samples, 100, kMargins) == row.lost);
  }
  CHECK_FALSE(has_lost(std::vector<double>{1e9}, kInfinity, kMargins));
  CHECK_FALSE(has_lost(std::vector<double>{1e9}, kNan, kMargins));
  CHECK_FALSE(has_lost(std::vector<double>{1e9}, 0, kMargins));
  CHECK_FALSE(has_lost(std::vector<double>{1e9}, 100, {}));
}

TEST_CASE("samples settle by agreement, number or time") {
  CHECK_FALSE(is_settled(std::vector<double>{10, 10}, 3, 7));
  CHECK(is_settled(std::vector<double>{10, 10, 10.09}, 3, 7));
  CHECK_FALSE(is_settled(std::vector<double>{10, 10, 10.2}, 3, 7));
  CHECK_FALSE(is_settled(std::vector<double>{10, 10, 10.2, 10, 10, 10}, 3, 7));
  CHECK(is_settled(std::vector<double>{10, 10, 10.2, 10, 10, 10, 10}, 3, 7));
  CHECK(is_settled(std::vector<double>{60'000, 70'000, 65'000}, 3, 7));  // 195 ms together
  CHECK_FALSE(is_settled(std::vector<double>{90'000, 70'000}, 3, 7));
  CHECK_FALSE(is_settled(std::vector<double>{kNan, 0, 10, 10}, 3, 7));
  CHECK_FALSE(is_settled({}, 0, 7));
}

TEST_CASE("a series on a GPU that rested drops samples until two agree") {
  using Next = Series::Next;
  Series::Rules rules;
  rules.margins = kMargins;
  rules.bound_us = 100;
  {
    Series series(rules);
    CHECK(series.add(112, 1) == Next::more);  // 12 % behind, but the clock may be low
    CHECK(series.add(105, 2) == Next::more);
    CHECK(series.add(99, 3) == Next::more);
    CHECK(series.add(98.5, 4) == Next::more);
    CHECK(series.add(98.8, 5) == Next::enough);
    CHECK(series.samples_us() == std::vector<double>{99, 98.5, 98.8});
  }
  {
    Series series(rules);
    CHECK(series.add(151, 1) == Next::lost);  // that is not the clock
  }
  {
    Series series(rules);
    CHECK(series.add(120, 1) == Next::more);
    CHECK(series.add(119, 2) == Next::lost);  // two agree: up to speed, and clearly behind
    CHECK(series.samples_us().size() == 2);
  }
  {
    Series series(rules);
    CHECK(series.add(120, 21) == Next::lost);  // the time to settle is over
  }
  rules.rested = false;
  {
    Series series(rules);
    CHECK(series.add(116, 1) == Next::lost);
  }
  {
    Series series(rules);
    for (int i = 0; i < 7; ++i) CHECK(series.add(i % 2 == 0 ? 0 : kNan, 1) == Next::more);
    CHECK(series.add(-1, 1) == Next::unusable);
    CHECK(series.samples_us().empty());
  }
}

TEST_CASE("a config is not given up while its launches become faster") {
  using Next = Series::Next;
  Series::Rules rules;
  rules.margins = kMargins;
  rules.bound_us = 1450;
  rules.first_us = 5700;  // conv15m on a W6600: the best configs begin like this
  for (const bool rested : {true, false}) {
    rules.rested = rested;
    Series series(rules);
    CHECK(series.add(3980, 4) == Next::more);
    CHECK(series.add(3600, 8) == Next::more);
    CHECK(series.add(1420, 9) == Next::more);
    CHECK(series.add(1425, 11) == Next::more);
    CHECK(series.add(1421, 12) == Next::enough);
    CHECK(series.samples_us() == std::vector<double>{1420, 1425, 1421});
  }
  Series slow(rules);
  CHECK(slow.add(5400, 5) == Next::lost);  // a first launch is a little slower everywhere
}

TEST_CASE("interleaved series are compared by the median of their ratios") {
  const std::vector<double> slow{103, 105, 107, 109}, fast{100, 102, 104, 106};
  CHECK(compare_rounds(fast, slow, 0.01) == Verdict::first);
  CHECK(compare_rounds(slow, fast, 0.01) == Verdict::second);
  CHECK(compare_rounds(slow, fast, 0.05) == Verdict::tie);
  CHECK(compare_rounds({}, fast, 0.01) == Verdict::tie);
  CHECK(median_log_ratio(fast, slow) == doctest::Approx(-0.0285).epsilon(0.05));
  // Noise of the difference itself, ten times the difference: a tie whatever the threshold.
  CHECK(compare_rounds(std::vector<double>{80, 120, 90, 110}, std::vector<double>{120, 80, 108, 92}, 0.001) ==
        Verdict::tie);
  // A round where one is no time does not count.
  CHECK(compare_rounds(std::vector<double>{100, 0, 100}, std::vector<double>{110, 1, kNan}, 0.01) == Verdict::first);
}

TEST_CASE("the choice prefers the default in a tie, then the lowest index") {
  const std::vector<double> base{100, 100, 100}, near{100.5, 100.4, 100.6}, faster{97, 97, 97}, slower{110, 110, 110};
  CHECK(choose({base, near, slower}, 1, 0.01) == 1);
  CHECK(choose({base, near, slower}, 2, 0.01) == 0);
  CHECK(choose({near, base}, -1, 0.01) == 0);
  CHECK(choose({base, faster, near}, 0, 0.01) == 1);
  CHECK(choose({slower, {97.5, 97.4, 97.6}, faster}, 0, 0.01) == 1);  // 1 and 2 tie, both beat the default
  CHECK(choose({{}, base, near}, 0, 0.01) == 1);                      // the default has no times
  CHECK(choose({{}, {}}, 0, 0.01) == -1);
  CHECK(choose({}, -1, 0.01) == -1);
  CHECK(choose({{kNan, 0}, near, base}, 7, 0.01) == 1);  // an index out of range is no default
  // 99.5 ties with the default (100) and with the fastest (98.8), which beats it: a tie with the winner is not enough.
  CHECK(choose({{99.5, 99.5, 99.5}, base, {98.8, 98.8, 98.8}}, 1, 0.01) == 2);
}

TEST_CASE("a duel under 5 % drift finds a true difference of 1 % within 15 rounds") {
  constexpr int kSeeds = 200, kRounds = 15;
  int right = 0, wrong_verdicts = 0, wrong_in_turn = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    std::vector<double> fast, slow;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const double drift = 1 + 0.05 * static_cast<double>(round) / kRounds;
      fast.push_back(100 * drift * (1 + 0.01 * gauss(seed, 2 * round)));
      slow.push_back(101 * drift * (1 + 0.01 * gauss(seed, 2 * round + 1)));
    }
    right += median_log_ratio(fast, slow) < 0;
    wrong_verdicts += compare_rounds(fast, slow, 0.005) == Verdict::second;
    // The same samples one after the other, as a study without a rematch would have them.
    std::vector<double> first(fast), second(slow);
    for (double& us : first) us *= 1.05;
    wrong_in_turn += summarise(first).median_us > summarise(second).median_us;
  }
  MESSAGE("duels right: " << right << " of " << kSeeds);
  CHECK(right >= kSeeds * 95 / 100);
  CHECK(wrong_verdicts == 0);
  CHECK(wrong_in_turn > kSeeds * 95 / 100);  // what interleaving is for
}

TEST_CASE("a tie stays a tie under noise") {
  int decided = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    std::vector<double> one, two;
    for (uint64_t round = 0; round < 9; ++round) {
      one.push_back(50 * (1 + 0.002 * gauss(seed, 2 * round)));
      two.push_back(50.1 * (1 + 0.002 * gauss(seed, 2 * round + 1)));
    }
    decided += compare_rounds(one, two, 0.01) != Verdict::tie;
    CHECK(choose({one, two}, 1, 0.01) == 1);
  }
  CHECK(decided == 0);
}
