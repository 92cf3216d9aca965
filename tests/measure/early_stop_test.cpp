#include "measure/early_stop.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "measure/duel.hpp"
#include "measure/samples.hpp"
#include "noise.hpp"
#include "support/support.hpp"

using namespace jitune::measure;
using jitune::measure::test::Random;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The GPU of a simulated study: AR(1) noise that outlasts a config, and a speed that changes.
class SimulatedGpu {
 public:
  /// levels: no drift, but a kernel that takes one of two times, for some launches each, as one of 69 us on an H200.
  enum class Drift : uint8_t { none, ramp, wave, steps, levels };
  SimulatedGpu(uint64_t seed, double noise, double correlation, Drift drift, double size)
      : random_(seed), noise_(noise), correlation_(correlation), drift_(drift), size_(size) {}

  double launch(double us) {
    now_ms_ += us / 1000;
    if (drift_ == Drift::levels && random_.uniform() < 0.25) is_low_ = random_.uniform() < 0.3;
    correlated_ = correlation_ * correlated_ + std::sqrt(1 - correlation_ * correlation_) * random_.normal();
    return us * std::exp(noise_ * correlated_ + speed());
  }
  double now_ms() const { return now_ms_; }

 private:
  double speed() const {
    const double part = now_ms_ / 60;  // of a study of 100 configs at 100 us and more
    switch (drift_) {
      case Drift::none:
        return 0;
      case Drift::ramp:
        return size_ * std::min(1.0, part);
      case Drift::wave:
        return size_ * std::sin(6.28 * part);
      case Drift::steps:
        return size_ * (static_cast<int>(4 * part) % 2);
      case Drift::levels:
        return is_low_ ? -size_ : 0;
    }
    return 0;
  }

  Random random_;
  double noise_, correlation_;
  Drift drift_;
  double size_;
  double correlated_ = 0;
  double now_ms_ = 0;
  bool is_low_ = false;
};

struct Studied {
  bool lost_best = false;  // the true best config was given up
  double regret = 0;       // of the final choice
  double share = 0;        // launches against seven each
};

/// A study as tune runs it: series under the rule, the incumbent timed again now and then, the finalists in a duel.
Studied study(SimulatedGpu& gpu, const std::vector<double>& true_us) {
  const size_t best = static_cast<size_t>(std::min_element(true_us.begin(), true_us.end()) - true_us.begin());
  EarlyStop stop({.configs = static_cast<double>(true_us.size())});
  DriftMonitor drift;
  std::vector<std::pair<double, size_t>> good;
  double bound_us = kInfinity;
  int bound_samples = 0, since_anchor = 0, launches = 0;
  size_t anchor = 0;
  Studied result;
  const auto series_of = [&](size_t config, double bound, const std::vector<double>& margins, Series::Next& next) {
    Series::Rules rules;
    rules.margins = margins;
    rules.bound_us = bound;
    rules.first_us = gpu.launch(true_us[config]);
    rules.rested = false;
    Series series(rules);
    for (next = Series::Next::more; next == Series::Next::more; ++launches)
      next = series.add(gpu.launch(true_us[config]), 0);
    return series.samples_us();
  };
  for (size_t i = 0; i < true_us.size(); ++i) {
    Series::Next next{};
    if (drift.has_anchor() && DriftMonitor::due(0, ++since_anchor)) {
      drift.note(summarise(series_of(anchor, kInfinity, {}, next)).median_us);
      since_anchor = 0;
    }
    const auto samples = series_of(i, bound_us * drift.factor(), stop.margins(bound_samples), next);
    stop.note(samples);
    if (next == Series::Next::lost) {
      result.lost_best = result.lost_best || i == best;
      continue;
    }
    const Summary summary = summarise(samples);
    const double us = summary.median_us / drift.factor();
    good.emplace_back(us, i);
    if (us >= bound_us) continue;
    bound_us = us;
    bound_samples = summary.samples;
    anchor = i;
    drift.set_anchor(summary.median_us);
    since_anchor = 0;
  }
  result.share = launches / (7.0 * static_cast<double>(true_us.size()));
  std::vector<double> times_us;
  for (const auto& [us, config] : good) times_us.push_back(us);
  const std::vector<size_t> finalists = choose_finalists(times_us);
  Duel duel(finalists.size(), {.most_rounds = 60});
  while (!duel.is_over()) {
    std::vector<double> round(finalists.size(), 0);
    for (size_t i = 0; i < finalists.size(); ++i)
      if (duel.is_in(i)) round[i] = gpu.launch(true_us[good[finalists[i]].second]);
    size_t first = 0;
    while (!duel.is_in(first)) ++first;
    duel.add(round, {}, first, gpu.launch(true_us[good[finalists[first]].second]));
  }
  const int chosen = choose(duel.samples_us(), -1, 0.01);
  result.regret = true_us[good[finalists[static_cast<size_t>(chosen)]].second] / true_us[best] - 1;
  return result;
}

}  // namespace

TEST_CASE("the quantile of the normal distribution") {
  CHECK(normal_quantile(0.5) == doctest::Approx(0).epsilon(1e-6));
  CHECK(normal_quantile(0.025) == doctest::Approx(1.959964).epsilon(1e-6));
  CHECK(normal_quantile(0.05 / 2000) == doctest::Approx(4.0556).epsilon(1e-4));
}

TEST_CASE("margins are the fixed ones until the noise is known, then follow it") {
  EarlyStop stop({});
  for (int i = 0; i < EarlyStop::kCandidatesForNoise; ++i) {
    CHECK(stop.margins(3) == std::vector<double>{0.15, 0.08, 0.05, 0.04});
    stop.note(std::vector<double>{100, 101, 99});
  }
  CHECK(stop.noise() == doctest::Approx(0.0182).epsilon(0.02));  // of {-1, 0, 1} %: MAD .0122 with the correction
  const std::vector<double> margins = stop.margins(3);
  REQUIRE(margins.size() == 7);
  CHECK(margins[0] == doctest::Approx(std::expm1(stop.z() * stop.noise() * std::sqrt(1 + 1.0 / 3) + 0.02)));
  CHECK(std::is_sorted(margins.rbegin(), margins.rend()));
  EarlyStop quiet({});
  for (int i = 0; i < 40; ++i) quiet.note(std::vector<double>{100, 100, 100});
  CHECK(quiet.noise() == EarlyStop::kNoiseFloor);
  EarlyStop never({.fixed = {}});
  for (int i = 0; i < 40; ++i) never.note(std::vector<double>{100, 100, 100});
  CHECK(never.margins(3).empty());
  EarlyStop careful({.lost_best = 0.001});
  CHECK(careful.z() > stop.z());
}

TEST_CASE("the noise is that of a sample, whatever the length of the series") {
  Random random(1);
  for (const int length : {2, 3, 7}) {
    EarlyStop stop({});
    for (int config = 0; config < 4000; ++config) {
      std::vector<double> samples;
      for (int i = 0; i < length; ++i) samples.push_back(50 * std::exp(0.02 * random.normal()));
      stop.note(samples);
    }
    CAPTURE(length);
    CHECK(stop.noise() == doctest::Approx(0.02).epsilon(0.04));
  }
}

TEST_CASE("drift is followed, another tenant's work is not") {
  DriftMonitor drift;
  drift.note(100);
  CHECK(drift.factor() == 1);
  drift.set_anchor(100);
  drift.note(104);
  CHECK(drift.factor() == doctest::Approx(1.04));
  drift.note(350);
  CHECK(drift.factor() == doctest::Approx(1.04));
  drift.note(102);  // may be noise
  CHECK(drift.factor() == doctest::Approx(std::sqrt(1.04 * 1.02)));
  for (int i = 0; i < 20; ++i) drift.note(104);
  CHECK(drift.factor() == doctest::Approx(1.04));
  drift.set_anchor(52);  // another anchor, timed at the speed of now
  drift.note(50);
  CHECK(drift.factor() == doctest::Approx(1.0));
  CHECK(drift.worst() == doctest::Approx(std::log(1.04)));
  CHECK_FALSE(DriftMonitor::due(10, 3));
  CHECK(DriftMonitor::due(10, DriftMonitor::kEveryTrials));
  CHECK(DriftMonitor::due(DriftMonitor::kEveryMs, 0));
}

TEST_CASE("a second chance is for configs whose neighbours are good") {
  const std::vector<SeenTrial> trials{
      {{0, 0, 0}, 3, 100, false}, {{0, 0, 1}, 1, 300, true},  // beside the best: worth another look
      {{2, 2, 2}, 3, 300, false}, {{2, 2, 1}, 1, 310, true},  // beside a slow one
      {{0, 1, 0}, 3, 104, true},                              // had three samples: known to be slower
      {{0, 1, 1}, 2, 400, true},  {{5, 5, 5}, 1, 200, true},  // like none that was timed
  };
  CHECK(second_chances(trials, 100, 5) == std::vector<size_t>{1, 5});
  CHECK(second_chances(trials, 100, 1) == std::vector<size_t>{1});
  CHECK(second_chances(trials, 100, 0).empty());
  CHECK(second_chances({}, 100, 5).empty());
}

TEST_CASE("simulated studies lose the true best in less than the stated probability") {
  constexpr int kStudies = 10'000;
  constexpr size_t kConfigs = 100;
  using Drift = SimulatedGpu::Drift;
  struct Kind {
    const char* name;
    double noise, correlation;
    Drift drift;
    double size;
    int studies = 0, lost = 0, behind = 0;
    double regret = 0, share = 0;
  };
  std::vector<Kind> kinds{{"quiet", 0.002, 0, Drift::none, 0},
                          {"noise 1 %", 0.01, 0, Drift::none, 0},
                          {"noise 2 %, correlated .57", 0.02, 0.57, Drift::none, 0},
                          {"noise 1 % correlated .57, 6 % slower by the end", 0.01, 0.57, Drift::ramp, 0.06},
                          {"noise .5 % correlated .57, 8 % faster by the end", 0.005, 0.57, Drift::ramp, -0.08},
                          {"noise .5 % correlated .9, wave of 3 %", 0.005, 0.9, Drift::wave, 0.03},
                          {"noise 1 % correlated .57, steps of 4 %", 0.01, 0.57, Drift::steps, 0.04},
                          {"noise .2 %, two levels 2.4 % apart", 0.002, 0, Drift::levels, 0.024}};
  int lost = 0;
  double worst_regret = 0;
  for (int i = 0; i < kStudies; ++i) {
    const auto seed = static_cast<uint64_t>(i) + 1;
    Kind& kind = kinds[static_cast<size_t>(i) % kinds.size()];
    Random random(seed + (uint64_t{1} << 40));
    std::vector<double> true_us;
    for (size_t config = 0; config < kConfigs; ++config) {
      const double u = random.uniform();  // few good ones, a long tail
      true_us.push_back(100 * (1 + 0.4 * u + 3 * u * u * u));
    }
    SimulatedGpu gpu(seed, kind.noise, kind.correlation, kind.drift, kind.size);
    const Studied done = study(gpu, true_us);
    ++kind.studies;
    kind.lost += done.lost_best;
    kind.behind += done.regret > 0.01;
    kind.regret += done.regret;
    kind.share += done.share;
    lost += done.lost_best;
  }
  for (const Kind& kind : kinds) {
    const double regret = 100 * kind.regret / kind.studies;
    worst_regret = std::max(worst_regret, regret);
    MESSAGE(std::string(kind.name) << ": best given up in " << kind.lost << " of " << kind.studies
                                   << ", winner more than 1 % behind in " << kind.behind << ", mean regret " << regret
                                   << " %, launches against seven each " << kind.share / kind.studies);
    CHECK(kind.lost < 0.05 * kind.studies);
    CHECK(kind.behind < 0.05 * kind.studies);
  }
  MESSAGE("M4 true best given up: bar < 5 %, value " << 100.0 * lost / kStudies << " % of " << kStudies << " studies");
  CHECK(lost < 0.05 * kStudies);
  CHECK(worst_regret < 1);  // a tie
}
