// Replays the search strategies on spaces that others measured and prints each bar with what was reached.
//   search_acceptance DIR [--seeds N] [--only ID,ID]
// DIR holds replay-csv-1 files. Evaluations are counted by the replayed space. Exits 1 where a bar is missed.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "apps/prewarm/replay_files.hpp"
#include "base/files.hpp"
#include "base/hash.hpp"
#include "search_overhead.hpp"
#include "space/space_state.hpp"

using namespace jitune;
using search::RecordedSpace;
using search::ReplayOptions;
using search::ReplayRun;

namespace {

constexpr const char* kSmall = "coulomb";  // too small for a share in the means

class Acceptance {
 public:
  Acceptance(const std::string& directory, size_t seeds, std::string only)
      : seeds_(seeds), only_(std::move(only)), threads_(std::max(1U, std::thread::hardware_concurrency())) {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(directory))
      if (entry.path().string().ends_with(".csv.gz") && entry.path().string().find(".times.") == std::string::npos)
        paths.push_back(entry.path().string());
    std::sort(paths.begin(), paths.end());
    for (const std::string& path : paths) {
      auto recorded = prewarm::read_recorded(path);
      if (!recorded) {
        std::fprintf(stderr, "%s\n", recorded.error().c_str());
        std::exit(2);
      }
      std::printf("%s  %s  %zu rows\n", sha256_hex(*read_file(path)).substr(0, 16).c_str(), recorded->name().c_str(),
                  recorded->rows());
      spaces_.push_back(std::move(*recorded));
    }
    std::printf("seeds 1 to %zu\n\n", seeds_);
  }

  int run() {
    std::printf("%-5s %-58s %-14s %-14s %s\n", "id", "what", "bar", "value", "pass");
    section("S1", &Acceptance::enumeration);
    section("S3", &Acceptance::traces);
    section("R1", &Acceptance::random_draws);
    section("Q2", &Acceptance::means);
    section("Q4", &Acceptance::to_five_percent);
    section("Q5", &Acceptance::never_worse);
    section("Q7", &Acceptance::others_beat_random);
    section("T1", &Acceptance::transfer);
    section("T2", &Acceptance::misleading_prior);
    section("N1", &Acceptance::noise);
    section("B1", &Acceptance::batches);
    section("O1", &Acceptance::overhead);
    section("S2", &Acceptance::nothing_wrong);
    std::printf("M1-M3 are rows of the measuring room's own replay: see tests/measure\n");
    return missed_ == 0 ? 0 : 1;
  }

 private:
  void section(const std::string& id, void (Acceptance::*check)()) {
    if (only_.empty() || ("," + only_ + ",").find("," + id + ",") != std::string::npos) (this->*check)();
    std::fflush(stdout);
  }

  void row(const char* id, const std::string& what, const std::string& bar, const std::string& value, bool pass) {
    std::printf("%-5s %-58s %-14s %-14s %s\n", id, what.c_str(), bar.c_str(), value.c_str(), pass ? "yes" : "NO");
    missed_ += !pass;
  }
  static std::string text(double value, int digits = 3) {
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, "%.*f", digits, value);
    return buffer;
  }
  void at_least(const char* id, const std::string& what, double bar, double value) {
    row(id, what, ">= " + text(bar), text(value), value >= bar);
  }
  void at_most(const char* id, const std::string& what, double bar, double value, int digits = 3) {
    row(id, what, "<= " + text(bar, digits), text(value, digits), value <= bar);
  }

  static bool is_large(const RecordedSpace& recorded) { return !recorded.name().starts_with(kSmall); }
  const RecordedSpace* find(const std::string& start) const {
    for (const RecordedSpace& recorded : spaces_)
      if (recorded.name().starts_with(start)) return &recorded;
    return nullptr;
  }

  std::vector<ReplayRun> runs(const RecordedSpace& recorded, const ReplayOptions& options) {
    auto all = search::replay_seeds(recorded, options, 1, seeds_, threads_);
    for (const ReplayRun& one : all) wrong_ += one.wrong_proposals;
    runs_made_ += all.size();
    return all;
  }
  static ReplayOptions plain(const char* strategy, uint64_t budget, size_t batch = 1, double noise = 0) {
    ReplayOptions options;
    options.strategy.name = strategy;
    options.strategy.trials = budget;
    options.budget = budget;
    options.batch = batch;
    options.noise = noise;
    return options;
  }
  /// Runs of the default strategy with 400 evaluations, made once.
  const std::vector<ReplayRun>& standard(const RecordedSpace& recorded) {
    auto& known = standard_[recorded.name()];
    if (known.empty()) known = runs(recorded, plain("auto", 400));
    return known;
  }
  const std::vector<ReplayRun>& random(const RecordedSpace& recorded) {
    auto& known = random_[recorded.name()];
    if (known.empty()) known = runs(recorded, plain("random", 400));
    return known;
  }
  double mean_over_large(const std::function<double(const RecordedSpace&)>& value) const {
    double sum = 0, count = 0;
    for (const RecordedSpace& recorded : spaces_) {
      if (!is_large(recorded)) continue;
      sum += value(recorded);
      ++count;
    }
    return sum / count;
  }
  /// Mean evaluations to 5 %, those that did not get there counted with the budget.
  static double mean_to_5_percent(const std::vector<ReplayRun>& all, double budget) {
    double sum = 0;
    for (const ReplayRun& one : all)
      sum += one.within_5_percent > 0 ? static_cast<double>(one.within_5_percent) : budget;
    return sum / static_cast<double>(all.size());
  }

  void enumeration() {
    for (const RecordedSpace& recorded : spaces_) {
      if (!is_large(recorded)) continue;
      timespec begin{}, end{};
      ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
      const space::ValidSet valid(recorded.space());
      size_t exact = 0;
      valid.diagram()->visit([&](const space::Point& point) {
        exact += recorded.find(valid.config(point)) != nullptr;
        return true;
      });
      ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
      const double seconds =
          static_cast<double>(end.tv_sec - begin.tv_sec) + 1e-9 * static_cast<double>(end.tv_nsec - begin.tv_nsec);
      const bool stated = !space::state_of(recorded.space())->form->is_list;
      row("S1", recorded.name() + ": enumerates its rows, " + text(1000 * seconds, 0) + " ms",
          std::to_string(recorded.rows()), std::to_string(exact),
          stated && valid.size() == recorded.rows() && exact == recorded.rows() && seconds < 1);
    }
  }

  void traces() {
    size_t different = 0, count = 0;
    for (const char* name : {"auto", "bayes", "genetic", "annealing"}) {
      const RecordedSpace& recorded = *find("convold");
      const ReplayOptions options = plain(name, 100);
      const auto one = search::replay_seeds(recorded, options, 1, 8, 1);
      const auto many = search::replay_seeds(recorded, options, 1, 8, 4);
      for (size_t i = 0; i < one.size(); ++i, ++count) different += one[i].trace != many[i].trace;
    }
    row("S3", "same trace at 1 and 4 threads, runs that differ of " + std::to_string(count), "0",
        std::to_string(different), different == 0);
  }

  void random_draws() {
    double worst = 0;
    for (const RecordedSpace& recorded : spaces_) {
      ReplayOptions options = plain("random", recorded.rows());
      options.until_within_5_percent = true;
      const auto all = runs(recorded, options);
      // The first of K marked among N draws without repeats. The spread is that of this law, not the sample's own: of
      // so skewed a law a sample that is low in its mean is low in its spread too.
      const double rows = static_cast<double>(recorded.rows()),
                   marked = static_cast<double>(recorded.count_within(1.05));
      const double expected = (rows + 1) / (marked + 1);
      const double variance = (rows + 1) * (rows - marked) * marked / ((marked + 1) * (marked + 1) * (marked + 2));
      const double mean = mean_to_5_percent(all, 0);
      const double sigma = std::sqrt(variance / static_cast<double>(all.size()));
      worst = std::max(worst, std::abs(mean - expected) / sigma);
    }
    at_most("R1", "random: mean draws to 5 % against (N+1)/(K+1), worst sigmas", 3, worst, 2);
  }

  void means() {
    const std::map<size_t, double> bars{{50, .90}, {100, .935}, {200, .96}, {400, .985}};
    for (const auto& [evaluations, bar] : bars)
      at_least(
          "Q2", "default: mean f over the large spaces at " + std::to_string(evaluations), bar,
          mean_over_large([&, n = evaluations](const RecordedSpace& r) { return search::mean_f(standard(r), n); }));
  }

  void to_five_percent() {
    const std::map<std::string, double> bars{{"gemm_RTX_2080_Ti", 95}, {"convold_RTX_3090", 40},
                                             {"dedisp_MI250X", 30},    {"conv15m_A4000", 110},
                                             {"conv15m_W7800", 85},    {"pnpoly_RTX_3060", 40}};
    for (const auto& [name, bar] : bars)
      if (const RecordedSpace* recorded = find(name))
        at_most("Q4", "default: median evaluations to 5 %, " + name, bar,
                search::median_to_5_percent(standard(*recorded), 401), 0);
  }

  void never_worse() {
    double worst = 1;
    std::string where;
    for (const RecordedSpace& recorded : spaces_) {
      const double ahead = search::mean_f(standard(recorded), 200) - search::mean_f(random(recorded), 200);
      if (ahead < worst) where = recorded.name();
      worst = std::min(worst, ahead);
    }
    at_least("Q5", "default against random at 200, worst space " + where, -.005, worst);
  }

  void others_beat_random() {
    for (const char* name : {"annealing", "genetic", "bayes"}) {
      std::map<std::string, std::vector<ReplayRun>> own;
      for (const RecordedSpace& recorded : spaces_)
        if (is_large(recorded)) own[recorded.name()] = runs(recorded, plain(name, 200));
      for (const size_t n : {size_t{100}, size_t{200}})
        at_least("Q7", std::string(name) + ": mean f at " + std::to_string(n) + ", bar is random's",
                 mean_over_large([&](const RecordedSpace& r) { return search::mean_f(random(r), n); }),
                 mean_over_large([&](const RecordedSpace& r) { return search::mean_f(own[r.name()], n); }));
    }
  }

  void transfer() {
    std::vector<const RecordedSpace*> family;
    for (const RecordedSpace& recorded : spaces_)
      if (recorded.name().starts_with("conv15m")) family.push_back(&recorded);
    std::map<size_t, double> sum;
    for (const RecordedSpace* target : family) {
      ReplayOptions options = plain("auto", 50);
      for (const RecordedSpace* other : family)
        if (other != target) options.strategy.records.push_back(other->record());
      const auto all = runs(*target, options);
      for (const size_t n : {10, 20, 50}) sum[n] += search::mean_f(all, n);
    }
    const std::map<size_t, double> bars{{10, .91}, {20, .945}, {50, .985}};
    for (const auto& [n, bar] : bars)
      at_least("T1", "transfer within conv15m, one device left out, f at " + std::to_string(n), bar,
               sum[n] / static_cast<double>(family.size()));
  }

  void misleading_prior() {
    double seeded = 0, plainly = 0;
    for (const RecordedSpace& recorded : spaces_) {
      if (!is_large(recorded)) continue;
      ReplayOptions options = plain("auto", 400);
      search::Record upside_down = recorded.record();
      for (auto& [config, time_us] : upside_down.times_us) time_us = 1e6 / time_us;
      options.strategy.records.push_back(std::move(upside_down));
      seeded += std::log(mean_to_5_percent(runs(recorded, options), 400));
      plainly += std::log(mean_to_5_percent(standard(recorded), 400));
    }
    const double spaces = mean_over_large([](const RecordedSpace&) { return 1.0; }) *
                          static_cast<double>(std::count_if(spaces_.begin(), spaces_.end(), is_large));
    at_most("T2", "a prior upside down: evaluations to 5 % against none", 1.6, std::exp((seeded - plainly) / spaces),
            2);
  }

  void noise() {
    const double clean = mean_over_large([&](const RecordedSpace& r) { return search::mean_f(standard(r), 200); });
    const double noisy = mean_over_large(
        [&](const RecordedSpace& r) { return search::mean_f(runs(r, plain("auto", 200, 1, .03)), 200); });
    at_most("N1", "3 % noise on each time: loss of f at 200", .02, clean - noisy);
  }

  void batches() {
    double ratio = 0, count = 0;
    for (const RecordedSpace& recorded : spaces_) {
      if (!is_large(recorded)) continue;
      ratio += std::log(mean_to_5_percent(runs(recorded, plain("auto", 400, 8)), 400) /
                        mean_to_5_percent(standard(recorded), 400));
      ++count;
    }
    at_most("B1", "batches of 8: evaluations to 5 % against batches of 1", 1.15, std::exp(ratio / count), 2);
  }

  /// Measured in a process of its own, which holds no recordings.
  static SearchOverhead overhead_alone() {
    SearchOverhead overhead;
    const std::string command = "'" + std::filesystem::read_symlink("/proc/self/exe").string() + "' --overhead";
    FILE* child = ::popen(command.c_str(), "r");
    unsigned long configs = 0;
    if (child == nullptr || std::fscanf(child, "%lu %lf %lf %lf", &configs, &overhead.proposal_ms, &overhead.peak_mb,
                                        &overhead.compile_ms) != 4)
      std::exit(2);
    ::pclose(child);
    overhead.configs = configs;
    return overhead;
  }

  void overhead() {
    const SearchOverhead alone = overhead_alone();
    constexpr double kUsualCompileMs = 100;  // one gemm config with NVRTC 13.0, tests/gpu/RESULTS.md
    const double compile_ms = alone.compile_ms > 0 ? alone.compile_ms : kUsualCompileMs;
    std::printf("      one compilation of a gemm: %.0f ms%s\n", compile_ms,
                alone.compile_ms > 0 ? "" : " (assumed: there is no NVRTC here)");
    double most = 0;
    for (const RecordedSpace& recorded : spaces_) {
      double sum = 0;
      for (const ReplayRun& one : standard(recorded)) sum += one.proposal_ms;
      most = std::max(most, sum / static_cast<double>(standard(recorded).size()));
    }
    at_most("O1", "a proposal's share of that, up to 20,000 configs, %", 2, 100 * most / compile_ms, 2);
    at_most("O1", "the same for " + std::to_string(alone.configs) + " configs, %", 5,
            100 * alone.proposal_ms / compile_ms, 2);
    at_most("O1", "memory of the process that searched them, at its highest, MB", 200, alone.peak_mb, 0);
  }

  void nothing_wrong() {
    row("S2", "invalid or repeated proposals in " + std::to_string(runs_made_) + " runs", "0", std::to_string(wrong_),
        wrong_ == 0);
    const RecordedSpace& base = *find("pnpoly");
    std::vector<RecordedSpace::Row> rows;
    base.visit([&](const space::Config& config, const search::Told&) {
      rows.push_back({config, {search::Fate::compile_failed, 0, 0}});
    });
    const RecordedSpace failing("failing", base.space(), rows);
    const auto all = runs(failing, plain("auto", 400));
    const auto complete = std::count_if(
        all.begin(), all.end(), [](const ReplayRun& one) { return one.f.size() == 400 && one.wrong_proposals == 0; });
    row("S2", "a space where everything fails: runs that go on to the end", std::to_string(all.size()),
        std::to_string(complete), static_cast<size_t>(complete) == all.size());
  }

  size_t seeds_;
  std::string only_;
  size_t threads_;
  std::vector<RecordedSpace> spaces_;
  std::map<std::string, std::vector<ReplayRun>> standard_, random_;
  size_t runs_made_ = 0, wrong_ = 0, missed_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  size_t seeds = 100;
  std::string directory, only;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--seeds" && i + 1 < argc)
      seeds = static_cast<size_t>(std::atol(argv[++i]));
    else if (argument == "--only" && i + 1 < argc)
      only = argv[++i];
    else if (argument == "--overhead") {
      const SearchOverhead found = measure_search_overhead(JITUNE_SOURCE_DIR "/tests/gpu/search/gemm_wide.toml");
      std::printf("%lu %.6f %.3f %.3f\n", static_cast<unsigned long>(found.configs), found.proposal_ms, found.peak_mb,
                  found.compile_ms);
      return 0;
    } else
      directory = argument;
  }
  if (directory.empty() || seeds < 2) {
    std::fprintf(stderr, "usage: search_acceptance DIR [--seeds N] [--only ID,ID]\n");
    return 2;
  }
  return Acceptance(directory, seeds, only).run();
}
