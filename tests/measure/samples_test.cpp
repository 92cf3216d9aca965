#include "measure/samples.hpp"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "measure/several.hpp"
#include "support/support.hpp"

using namespace jitune::measure;

namespace {

const std::vector<double> kMargins{0.15, 0.08, 0.05, 0.04};
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

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

TEST_CASE("a series says why it ended, and is not sampled for ever") {
  Series::Rules rules;
  rules.rested = false;
  {
    Series series(rules);
    for (const double us : {10.0, 10.01, 10.02}) series.add(us, 1);
    CHECK(std::string(series.stop()) == "agreed");
  }
  {
    Series series(rules);
    for (int i = 0; i < 7; ++i) series.add(10 + i, 1);
    CHECK(std::string(series.stop()) == "count");
  }
  {
    Series series(rules);
    CHECK(series.add(10, 900) == Series::Next::more);
    CHECK(std::string(series.stop()).empty());
    CHECK(series.add(20, 1001) == Series::Next::enough);  // restoring gigabytes takes its time too
    CHECK(std::string(series.stop()) == "time");
  }
}

TEST_CASE("the clock's gate waits for a GPU that rested, not for one that stays slow") {
  ClockGate gate;
  CHECK(gate.open(500, 0));  // nobody knows yet what it can do
  gate.note_busy(1980);
  CHECK(gate.open(0, 0));  // not known
  CHECK_FALSE(gate.open(1700, 0));
  CHECK(gate.open(1800, 0));
  CHECK_FALSE(gate.open(1500, 19));
  CHECK(gate.open(1500, 21));  // it took its time: that is its speed today
  CHECK(gate.open(1500, 0));
  gate.note_busy(1980);
  CHECK_FALSE(gate.open(1500, 0));
}

TEST_CASE("what one config did at several problems is put together by weight") {
  const auto reply = [](std::vector<double> samples_us, TrialStatus status = TrialStatus::ok) {
    TrialReply made;
    made.status = status;
    made.samples_us = std::move(samples_us);
    made.run_ms = 1;
    return made;
  };
  SeveralProblems several({3, 1}, {"n=1", "n=2"});
  CHECK(several.next_bound_us(10) == doctest::Approx(40.0 / 3));  // as if the other one took nothing
  CHECK(several.add(reply({8, 10, 12})));
  CHECK(several.next_bound_us(10) == doctest::Approx(10));
  CHECK(several.next_bound_us(kInfinity) == kInfinity);
  CHECK_FALSE(several.add(reply({20, 40})));
  const TrialReply whole = std::move(several).result();
  CHECK(whole.status == TrialStatus::ok);
  REQUIRE(whole.samples_us.size() == 3);
  CHECK(whole.samples_us[0] == doctest::Approx((3 * 8 + 20) / 4.0));
  CHECK(whole.samples_us[2] == doctest::Approx((3 * 12 + 20) / 4.0));
  CHECK(whole.run_ms == 2);

  SeveralProblems spoilt({1, 1}, {"a", "b"});
  CHECK(spoilt.add(reply({5, 0, 5})));
  CHECK_FALSE(spoilt.add(reply({5, 5, kNan})));
  CHECK(summarise(std::move(spoilt).result().samples_us).samples == 1);

  SeveralProblems lost({1, 1}, {"a", "b"});
  CHECK_FALSE(lost.add(reply({30}, TrialStatus::early_stopped)));
  const TrialReply early = std::move(lost).result();
  CHECK(early.status == TrialStatus::early_stopped);
  CHECK(early.samples_us == std::vector<double>{15});

  SeveralProblems failed({1, 1}, {"a", "b"});
  CHECK(failed.add(reply({5})));
  TrialReply wrong = reply({}, TrialStatus::wrong_result);
  wrong.error = "y differs";
  CHECK_FALSE(failed.add(wrong));
  const TrialReply told = std::move(failed).result();
  CHECK(told.status == TrialStatus::wrong_result);
  CHECK(told.error == "at b: y differs");
  CHECK(told.samples_us.empty());
}
