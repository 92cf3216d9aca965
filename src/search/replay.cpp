#include "search/replay.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <ctime>
#include <set>
#include <thread>

#include "base/random.hpp"

namespace jitune::search {

RecordedSpace::RecordedSpace(std::string name, space::Space space, const std::vector<Row>& rows)
    : name_(std::move(name)), space_(std::move(space)) {
  for (const Row& row : rows) {
    told_.emplace(row.config, row.told);
    if (row.told.fate == Fate::ok && (optimum_us_ == 0 || row.told.time_us < optimum_us_))
      optimum_us_ = row.told.time_us;
  }
}

size_t RecordedSpace::count_within(double factor) const {
  return static_cast<size_t>(std::count_if(told_.begin(), told_.end(), [&](const auto& row) {
    return row.second.fate == Fate::ok && row.second.time_us <= factor * optimum_us_;
  }));
}

Record RecordedSpace::record() const {
  Record record;
  for (const auto& [config, told] : told_)
    if (told.fate == Fate::ok) record.times_us.emplace_back(config, told.time_us);
  return record;
}

const Told* RecordedSpace::find(const space::Config& config) const {
  const auto at = told_.find(config);
  return at == told_.end() ? nullptr : &at->second;
}

namespace {

/// Of this thread's own work: what other programs do meanwhile does not count.
double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// What one run is charged for.
class Charges {
 public:
  Charges(const RecordedSpace& recorded, const ReplayOptions& options)
      : recorded_(recorded), noise_(options.noise), random_(options.strategy.seed ^ 0x4E6F697365U) {}

  Told evaluate(const space::Config& config, ReplayRun& run) {
    const Told* truth = recorded_.find(config);
    if (truth == nullptr || !seen_.insert(config).second) {
      ++run.wrong_proposals;
      return {Fate::run_failed, 0, 0};
    }
    Told told = *truth;
    const double factor = noise_ > 0 ? std::exp(noise_ * random_.normal()) : 1;
    if (told.fate == Fate::ok) {
      told.time_us *= factor;
      told.noise = noise_;
      if (best_seen_ == 0 || told.time_us < best_seen_) {
        best_seen_ = told.time_us;
        f_ = recorded_.optimum_us() / truth->time_us;
      }
    }
    run.f.push_back(static_cast<float>(f_));
    if (run.within_5_percent == 0 && f_ >= 1 / 1.05) run.within_5_percent = run.f.size();
    return told;
  }

 private:
  const RecordedSpace& recorded_;
  double noise_;
  Random random_;
  std::set<space::Config> seen_;
  double best_seen_ = 0, f_ = 0;
};

}  // namespace

ReplayRun replay(const RecordedSpace& recorded, const ReplayOptions& options) {
  ReplayRun run;
  double strategy_s = 0, start = thread_seconds();
  const auto stop = [&] { strategy_s += thread_seconds() - start; };
  auto strategy = make_strategy(recorded.space(), options.strategy);
  if (!strategy) return run;
  stop();
  Charges charges(recorded, options);
  while (run.f.size() + run.wrong_proposals < options.budget) {
    start = thread_seconds();
    const auto batch = (*strategy)->ask(std::min<size_t>(options.batch, options.budget - run.f.size()));
    stop();
    if (batch.empty() || (options.until_within_5_percent && run.within_5_percent > 0)) break;
    std::vector<Told> told;
    for (const space::Config& config : batch) {
      told.push_back(charges.evaluate(config, run));
      for (const auto& [name, value] : config)
        for (const char c : value.text()) run.trace = mix_bits(run.trace ^ static_cast<uint64_t>(c));
    }
    start = thread_seconds();
    for (size_t i = 0; i < batch.size(); ++i) (*strategy)->tell(batch[i], told[i]);
    stop();
  }
  if (!run.f.empty()) run.proposal_ms = 1000 * strategy_s / static_cast<double>(run.f.size());
  return run;
}

std::vector<ReplayRun> replay_seeds(const RecordedSpace& recorded, const ReplayOptions& options, uint64_t first_seed,
                                    size_t seeds, size_t threads) {
  std::vector<ReplayRun> runs(seeds);
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < seeds; i = next++) {
      ReplayOptions own = options;
      own.strategy.seed = first_seed + i;
      runs[i] = replay(recorded, own);
    }
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
  return runs;
}

double mean_f(const std::vector<ReplayRun>& runs, size_t evaluations) {
  double sum = 0;
  for (const ReplayRun& run : runs)
    if (!run.f.empty()) sum += static_cast<double>(run.f[std::min(evaluations, run.f.size()) - 1]);
  return runs.empty() ? 0 : sum / static_cast<double>(runs.size());
}

double share_within(const std::vector<ReplayRun>& runs, double f, size_t evaluations) {
  size_t count = 0;
  for (const ReplayRun& run : runs)
    count += !run.f.empty() && static_cast<double>(run.f[std::min(evaluations, run.f.size()) - 1]) >= f;
  return runs.empty() ? 0 : static_cast<double>(count) / static_cast<double>(runs.size());
}

double median_to_5_percent(const std::vector<ReplayRun>& runs, double missing) {
  std::vector<double> counts;
  for (const ReplayRun& run : runs)
    counts.push_back(run.within_5_percent > 0 ? static_cast<double>(run.within_5_percent) : missing);
  if (counts.empty()) return missing;
  std::sort(counts.begin(), counts.end());
  return (counts[(counts.size() - 1) / 2] + counts[counts.size() / 2]) / 2;
}

}  // namespace jitune::search
