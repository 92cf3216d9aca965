#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "measure/duel.hpp"
#include "measure/early_stop.hpp"
#include "measure/samples.hpp"
#include "support/support.hpp"

using namespace jitune::measure;

namespace {

constexpr size_t kConfigs = 400;  // drawn from a space, as a study would try
constexpr int kOrders = 20;
constexpr size_t kSampleLaunches = 8;  // of 32: one check run and up to seven samples

using Launches = std::vector<double>;  // of one config in microseconds, in launch order

uint64_t random_bits(uint64_t seed, uint64_t counter) {
  uint64_t z = seed + (counter + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

std::vector<Launches> read_launches(const std::string& path) {
  FILE* pipe = ::popen(("gzip -dc '" + path + "'").c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text;
  std::vector<char> chunk(1 << 16);
  for (size_t got = 0; (got = std::fread(chunk.data(), 1, chunk.size(), pipe)) > 0;) text.append(chunk.data(), got);
  REQUIRE(::pclose(pipe) == 0);
  std::vector<Launches> rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    Launches launches;
    for (const char* at = line.c_str(); *at != '\0';) {
      char* end = nullptr;
      launches.push_back(std::strtod(at, &end) * 1000);
      if (end == at) break;
      at = *end == ',' ? end + 1 : end;
    }
    if (launches.size() == 32) rows.push_back(std::move(launches));
  }
  return rows;
}

double median(Launches values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// `count` launches from `first` on, leaving out every other one: rematch and truth each get one half, so that they are
/// disjoint and see the same regimes of a card that changes its clock after some launches.
Launches every_second(const Launches& launches, size_t first, size_t count) {
  Launches kept;
  for (size_t i = first; i < launches.size() && kept.size() < count; i += 2) kept.push_back(launches[i]);
  return kept;
}

double true_us(const Launches& launches) {
  return median(every_second(launches, 9, launches.size()));
}

/// What racing cost against seven fixed runs, and how far its choice is from the best of the configs.
struct Outcome {
  double time_share = 0;
  double runs = 0;
  double regret = 0;
};

/// One study: every config in this order, then a rematch of the eight best over later launches.
Outcome race(const std::vector<Launches>& configs) {
  double spent_us = 0, fixed_us = 0, bound_us = std::numeric_limits<double>::infinity();
  size_t launches = 0;
  std::vector<std::pair<double, size_t>> survivors;
  EarlyStop stop({.configs = static_cast<double>(configs.size())});
  int bound_samples = 0;
  for (size_t i = 0; i < configs.size(); ++i) {
    const std::vector<double> margins = stop.margins(bound_samples);
    Series::Rules rules;
    rules.margins = margins;
    rules.bound_us = bound_us;
    rules.first_us = configs[i][0];
    Series series(rules);
    double elapsed_us = 0;
    Series::Next next = Series::Next::more;
    size_t at = 1;  // launch 0 is the check run
    while (next == Series::Next::more && at < kSampleLaunches) {
      elapsed_us += configs[i][at];
      next = series.add(configs[i][at++], elapsed_us / 1000);
    }
    launches += at;
    spent_us += configs[i][0] + elapsed_us;
    fixed_us += std::accumulate(configs[i].begin(), configs[i].begin() + 7, 0.0);
    stop.note(series.samples_us());
    if (next == Series::Next::lost) continue;
    const Summary summary = summarise(series.samples_us());
    survivors.emplace_back(summary.median_us, i);
    if (summary.median_us < bound_us) {
      bound_us = summary.median_us;
      bound_samples = summary.samples;
    }
  }
  std::sort(survivors.begin(), survivors.end());
  survivors.resize(std::min<size_t>(survivors.size(), 8));
  std::vector<std::vector<double>> rounds;
  for (const auto& [us, i] : survivors) rounds.push_back(every_second(configs[i], 8, 9));
  const auto chosen = static_cast<size_t>(choose(rounds, -1, 0.01));
  double best_us = std::numeric_limits<double>::infinity();
  for (const Launches& config : configs) best_us = std::min(best_us, true_us(config));
  Outcome outcome;
  outcome.time_share = spent_us / fixed_us;
  outcome.runs = static_cast<double>(launches) / static_cast<double>(configs.size());
  outcome.regret = true_us(configs[survivors[chosen].second]) / best_us - 1;
  return outcome;
}

Outcome mean_outcome(const std::vector<Launches>& rows) {
  Outcome mean;
  for (int order = 0; order < kOrders; ++order) {
    std::vector<size_t> picks(rows.size());
    std::iota(picks.begin(), picks.end(), size_t{0});
    const size_t count = std::min(kConfigs, rows.size());
    std::vector<Launches> configs;
    for (size_t i = 0; i < count; ++i) {
      const uint64_t draw = random_bits(static_cast<uint64_t>(order), i) % (rows.size() - i);
      std::swap(picks[i], picks[i + draw]);
      configs.push_back(rows[picks[i]]);
    }
    const Outcome outcome = race(configs);
    mean.time_share += outcome.time_share / kOrders;
    mean.runs += outcome.runs / kOrders;
    mean.regret += outcome.regret / kOrders;
  }
  return mean;
}

}  // namespace

TEST_CASE("racing on recorded launches") {
  const char* directory = std::getenv("JITUNE_REPLAY_DIR");
  if (directory == nullptr) return jitune::test::skip("replay", "JITUNE_REPLAY_DIR is not set");
  Outcome mean;
  const std::vector<std::string> spaces{"conv15m_A4000", "conv15m_A6000", "conv15m_W7800",
                                        "dedisp_A4000",  "dedisp_MI250X", "gemm_RTX_2080_Ti"};
  for (const std::string& space : spaces) {
    const auto rows = read_launches(std::string(directory) + "/" + space + ".times.csv.gz");
    REQUIRE(rows.size() > kConfigs);
    const Outcome outcome = mean_outcome(rows);
    MESSAGE(space << ": " << rows.size() << " rows, time against 7 runs " << outcome.time_share << ", runs "
                  << outcome.runs << ", regret " << 100 * outcome.regret << " %");
    mean.time_share += outcome.time_share / static_cast<double>(spaces.size());
    mean.regret += outcome.regret / static_cast<double>(spaces.size());
  }
  MESSAGE("M1 mean: time " << mean.time_share << ", regret " << 100 * mean.regret << " %");
  MESSAGE("M1 bar: time <= 0.35, regret <= 0.6 %");
  CHECK(mean.time_share <= 0.35);
  CHECK(mean.regret <= 0.006);
  const Outcome hard = mean_outcome(read_launches(std::string(directory) + "/conv15m_W6600.times.csv.gz"));
  MESSAGE("M2 conv15m_W6600: time " << hard.time_share << ", runs " << hard.runs << ", regret " << 100 * hard.regret
                                    << " %");
  MESSAGE("M2 bar: regret <= 5 %");
  CHECK(hard.regret <= 0.05);
}
