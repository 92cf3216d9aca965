#include "races.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <sstream>
#include <utility>

#include "measure/duel.hpp"
#include "measure/early_stop.hpp"
#include "measure/samples.hpp"
#include "noise.hpp"

namespace jitune::measure::test {
namespace {

constexpr size_t kConfigs = 400;       // drawn from a space, as a study would try
constexpr size_t kSampleLaunches = 8;  // of 32: one check run and up to seven samples

using Launches = std::vector<double>;  // of one config in microseconds, in launch order

uint64_t random_bits(uint64_t seed, uint64_t counter) {
  uint64_t z = seed + (counter + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

/// Empty where that fails.
std::vector<Launches> read_launches(const std::string& path) {
  FILE* pipe = ::popen(("gzip -dc '" + path + "'").c_str(), "r");
  if (pipe == nullptr) return {};
  std::string text;
  std::vector<char> chunk(1 << 16);
  for (size_t got = 0; (got = std::fread(chunk.data(), 1, chunk.size(), pipe)) > 0;) text.append(chunk.data(), got);
  if (::pclose(pipe) != 0) return {};
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

/// One study: every config in this order, then a rematch of the finalists over later launches.
RaceOutcome race(const std::vector<Launches>& configs) {
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
  std::vector<double> times_us;
  for (const auto& [us, i] : survivors) times_us.push_back(us);
  const std::vector<size_t> finalists = choose_finalists(times_us);
  std::vector<std::vector<double>> rounds;
  for (const size_t place : finalists) rounds.push_back(every_second(configs[survivors[place].second], 8, 9));
  const auto chosen = static_cast<size_t>(choose(rounds, -1, 0.01));
  double best_us = std::numeric_limits<double>::infinity();
  for (const Launches& config : configs) best_us = std::min(best_us, true_us(config));
  RaceOutcome outcome;
  outcome.time_share = spent_us / fixed_us;
  outcome.runs = static_cast<double>(launches) / static_cast<double>(configs.size());
  outcome.regret = true_us(configs[survivors[finalists[chosen]].second]) / best_us - 1;
  return outcome;
}

}  // namespace

const std::vector<std::string>& raced_spaces() {
  static const std::vector<std::string> spaces{"conv15m_A4000", "conv15m_A6000", "conv15m_W7800",
                                               "dedisp_A4000",  "dedisp_MI250X", "gemm_RTX_2080_Ti"};
  return spaces;
}

std::optional<RaceOutcome> race_recorded(const std::string& directory, const std::string& space, int orders) {
  const std::vector<Launches> rows = read_launches(directory + "/" + space + ".times.csv.gz");
  if (rows.size() < kConfigs) return std::nullopt;
  RaceOutcome mean;
  mean.rows = rows.size();
  for (int order = 0; order < orders; ++order) {
    std::vector<size_t> picks(rows.size());
    std::iota(picks.begin(), picks.end(), size_t{0});
    std::vector<Launches> configs;
    for (size_t i = 0; i < kConfigs; ++i) {
      const uint64_t draw = random_bits(static_cast<uint64_t>(order), i) % (rows.size() - i);
      std::swap(picks[i], picks[i + draw]);
      configs.push_back(rows[picks[i]]);
    }
    const RaceOutcome outcome = race(configs);
    mean.time_share += outcome.time_share / orders;
    mean.runs += outcome.runs / orders;
    mean.regret += outcome.regret / orders;
  }
  return mean;
}

DuelOutcome drifting_duels(int seeds) {
  DuelOutcome outcome;
  for (int seed = 1; seed <= seeds; ++seed) {
    Random random(static_cast<uint64_t>(seed));
    Duel duel(2, {.tie = 0.005});
    for (int round = 0; !duel.is_over(); ++round) {
      const auto at = [&](double us, double part) {
        return us * (1 + 0.05 * (round + part) / 15) * (1 + 0.01 * random.normal());
      };
      const double fast = at(100, 0), slow = at(101, 0.3);
      duel.add(std::vector<double>{fast, slow}, {}, 0, at(100, 0.6));
    }
    const auto& series = duel.samples_us();
    ++outcome.duels;
    outcome.rounds = std::max(outcome.rounds, duel.rounds());
    outcome.right += median_log_ratio(series[0], series[1]) < 0;
    outcome.wrong += compare_rounds(series[0], series[1], 0.005) == Verdict::second;
    std::vector<double> first(series[0]);
    for (double& us : first) us *= 1.05;
    outcome.wrong_in_turn += summarise(first).median_us > summarise(series[1]).median_us;
  }
  return outcome;
}

}  // namespace jitune::measure::test
