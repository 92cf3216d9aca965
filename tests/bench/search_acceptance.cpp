// Replays the search strategies on spaces that others measured, and the measuring rules on launches that others
// recorded, and prints each bar with what was reached.
//   search_acceptance DIR [--seeds N] [--threads N] [--only ID,ID]
// DIR holds replay-csv-1 files. Evaluations are counted by the replayed space. Exits 1 where a bar is missed. The same
// figures at any number of threads, but O1, which is measured.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "acceptance_runs.hpp"
#include "acceptance_table.hpp"
#include "search_overhead.hpp"
#include "space/space_state.hpp"
#include "space/valid_set.hpp"

using namespace jitune;
using search::RecordedSpace;
using search::ReplayOptions;
using search::ReplayRun;

namespace {

std::string text(double value, int digits = 3) {
  return AcceptanceTable::text(value, digits);
}

double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

class Acceptance {
 public:
  Acceptance(const std::string& directory, size_t seeds, size_t threads)
      : directory_(directory), runs_(directory, seeds, threads) {}

  using Check = void (Acceptance::*)();
  struct Section {
    const char* id;
    Check check;
  };
  static const std::vector<Section>& sections() {
    static const std::vector<Section> all{{"S1", &Acceptance::enumeration},
                                          {"S3", &Acceptance::traces},
                                          {"R1", &Acceptance::random_draws},
                                          {"Q2", &Acceptance::means},
                                          {"Q4", &Acceptance::to_five_percent},
                                          {"Q5", &Acceptance::never_worse},
                                          {"Q7", &Acceptance::others_beat_random},
                                          {"T1", &Acceptance::transfer},
                                          {"T2", &Acceptance::misleading_prior},
                                          {"N1", &Acceptance::noise},
                                          {"M1", &Acceptance::racing},
                                          {"M2", &Acceptance::racing_hard},
                                          {"M3", &Acceptance::duels},
                                          {"B1", &Acceptance::batches},
                                          {"O1", &Acceptance::overhead},
                                          {"S2", &Acceptance::nothing_wrong}};  // last: it counts all runs
    return all;
  }

  /// How many bars were missed.
  size_t run(const std::vector<Section>& chosen) {
    for (const Section& section : chosen) (this->*section.check)();
    return table_.missed();
  }
  size_t made() const { return runs_.made(); }

 private:
  void enumeration() {
    for (const RecordedSpace* recorded : runs_.large()) {
      const double start = cpu_seconds();
      const space::ValidSet valid(recorded->space());
      size_t exact = 0;
      valid.diagram()->visit([&](const space::Point& point) {
        exact += recorded->find(valid.config(point)) != nullptr;
        return true;
      });
      const double seconds = cpu_seconds() - start;
      const bool stated = !space::state_of(recorded->space())->form->is_list;
      table_.row("S1", recorded->name() + ": enumerates its rows, " + text(1000 * seconds, 0) + " ms",
                 std::to_string(recorded->rows()), std::to_string(exact),
                 stated && valid.size() == recorded->rows() && exact == recorded->rows() && seconds < 1);
    }
  }

  void traces() {
    size_t different = 0, count = 0;
    for (const char* name : {"auto", "bayes", "genetic", "annealing"}) {
      const ReplayOptions options = replay_with(name, 100);
      const RecordedSpace& recorded = needed("convold");
      const auto one = search::replay_seeds(recorded, options, 1, 8, 1);
      const auto many = search::replay_seeds(recorded, options, 1, 8, 4);
      for (size_t i = 0; i < one.size(); ++i, ++count) different += one[i].trace != many[i].trace;
    }
    table_.row("S3", "same trace at 1 and 4 threads, runs that differ of " + std::to_string(count), "0",
               std::to_string(different), different == 0);
  }

  void random_draws() {
    double worst = 0;
    for (const RecordedSpace& recorded : runs_.spaces()) {
      ReplayOptions options = replay_with("random", recorded.rows());
      options.until_within_5_percent = true;
      const auto all = runs_.make(recorded, options);
      // The first of K marked among N draws without repeats. The spread is that of this law, not the sample's own: of
      // so skewed a law a sample that is low in its mean is low in its spread too.
      const double rows = static_cast<double>(recorded.rows()),
                   marked = static_cast<double>(recorded.count_within(1.05));
      const double expected = (rows + 1) / (marked + 1);
      const double variance = (rows + 1) * (rows - marked) * marked / ((marked + 1) * (marked + 1) * (marked + 2));
      const double sigma = std::sqrt(variance / static_cast<double>(all.size()));
      worst = std::max(worst, std::abs(mean_to_5_percent(all, 0) - expected) / sigma);
    }
    table_.at_most("R1", "random: mean draws to 5 % against (N+1)/(K+1), worst sigmas", 3, worst, 2);
  }

  void means() {
    const std::vector<std::pair<size_t, double>> bars{{50, .90}, {100, .935}, {200, .96}, {400, .985}};
    for (const auto& [evaluations, bar] : bars)
      table_.at_least("Q2", "default: mean f over the large spaces at " + std::to_string(evaluations), bar,
                      runs_.mean_over_large([&, n = evaluations](const RecordedSpace& recorded) {
                        return search::mean_f(runs_.standard(recorded), n);
                      }));
  }

  void to_five_percent() {
    const std::vector<std::pair<std::string, double>> bars{{"gemm_RTX_2080_Ti", 95}, {"convold_RTX_3090", 40},
                                                           {"dedisp_MI250X", 30},    {"conv15m_A4000", 110},
                                                           {"conv15m_W7800", 85},    {"pnpoly_RTX_3060", 40}};
    for (const auto& [name, bar] : bars)
      table_.at_most("Q4", "default: median evaluations to 5 %, " + name, bar,
                     search::median_to_5_percent(runs_.standard(needed(name)), 401), 0);
  }

  void never_worse() {
    double worst = 1;
    std::string where;
    for (const RecordedSpace& recorded : runs_.spaces()) {
      const double ahead = search::mean_f(runs_.standard(recorded), 200) - search::mean_f(runs_.random(recorded), 200);
      if (ahead < worst) where = recorded.name();
      worst = std::min(worst, ahead);
    }
    table_.at_least("Q5", "default against random at 200, worst space " + where, -.005, worst);
  }

  void others_beat_random() {
    for (const char* name : {"annealing", "genetic", "bayes"}) {
      std::map<std::string, std::vector<ReplayRun>> own;
      for (const RecordedSpace* recorded : runs_.large())
        own[recorded->name()] = runs_.make(*recorded, replay_with(name, 200));
      for (const size_t n : {size_t{100}, size_t{200}})
        table_.at_least(
            "Q7", std::string(name) + ": mean f at " + std::to_string(n) + ", bar is random's",
            runs_.mean_over_large([&](const RecordedSpace& r) { return search::mean_f(runs_.random(r), n); }),
            runs_.mean_over_large([&](const RecordedSpace& r) { return search::mean_f(own[r.name()], n); }));
    }
  }

  void transfer() {
    std::vector<const RecordedSpace*> family;
    for (const RecordedSpace& recorded : runs_.spaces())
      if (recorded.name().starts_with("conv15m")) family.push_back(&recorded);
    std::map<size_t, double> sum;
    for (const RecordedSpace* target : family) {
      ReplayOptions options = replay_with("auto", 50);
      for (const RecordedSpace* other : family)
        if (other != target) options.strategy.records.push_back(other->record());
      const auto all = runs_.make(*target, options);
      for (const size_t n : {10, 20, 50}) sum[n] += search::mean_f(all, n);
    }
    const std::vector<std::pair<size_t, double>> bars{{10, .91}, {20, .945}, {50, .985}};
    for (const auto& [n, bar] : bars)
      table_.at_least("T1", "transfer within conv15m, one device left out, f at " + std::to_string(n), bar,
                      sum[n] / static_cast<double>(family.size()));
  }

  void misleading_prior() {
    const double ratio = runs_.evaluations_against_standard([](const RecordedSpace& recorded) {
      ReplayOptions options = replay_with("auto", 400);
      search::Record upside_down = recorded.record();
      for (auto& [config, time_us] : upside_down.times_us) time_us = 1e6 / time_us;
      options.strategy.records.push_back(std::move(upside_down));
      return options;
    });
    table_.at_most("T2", "a prior upside down: evaluations to 5 % against none", 1.6, ratio, 2);
  }

  void noise() {
    const auto at_200 = [](const std::vector<ReplayRun>& all) { return search::mean_f(all, 200); };
    const double clean = runs_.mean_over_large([&](const RecordedSpace& r) { return at_200(runs_.standard(r)); });
    const double noisy = runs_.mean_over_large(
        [&](const RecordedSpace& r) { return at_200(runs_.make(r, replay_with("auto", 200, 1, .03))); });
    table_.at_most("N1", "3 % noise on each time: loss of f at 200", .02, clean - noisy);
  }

  void racing() { measuring_rows(table_, directory_, "M1"); }
  void racing_hard() { measuring_rows(table_, directory_, "M2"); }
  void duels() { measuring_rows(table_, directory_, "M3"); }

  void batches() {
    const double ratio =
        runs_.evaluations_against_standard([](const RecordedSpace&) { return replay_with("auto", 400, 8); });
    table_.at_most("B1", "batches of 8: evaluations to 5 % against batches of 1", 1.15, ratio, 2);
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
    for (const RecordedSpace& recorded : runs_.spaces()) {
      double sum = 0;
      for (const ReplayRun& one : runs_.standard(recorded)) sum += one.proposal_ms;
      most = std::max(most, sum / static_cast<double>(runs_.standard(recorded).size()));
    }
    table_.at_most("O1", "a proposal's share of that, up to 20,000 configs, %", 2, 100 * most / compile_ms, 2);
    table_.at_most("O1", "the same for " + std::to_string(alone.configs) + " configs, %", 5,
                   100 * alone.proposal_ms / compile_ms, 2);
    table_.at_most("O1", "memory of the process that searched them, at its highest, MB", 200, alone.peak_mb, 0);
  }

  void nothing_wrong() {
    table_.row("S2", "invalid or repeated proposals in " + std::to_string(runs_.made()) + " runs", "0",
               std::to_string(runs_.wrong_proposals()), runs_.wrong_proposals() == 0);
    const RecordedSpace& base = needed("pnpoly");
    std::vector<RecordedSpace::Row> rows;
    base.visit([&](const space::Config& config, const search::Told&) {
      rows.push_back({config, {search::Fate::compile_failed, 0, 0}});
    });
    const RecordedSpace failing("failing", base.space(), rows);
    const auto all = runs_.make(failing, replay_with("auto", 400));
    const auto complete = std::count_if(
        all.begin(), all.end(), [](const ReplayRun& one) { return one.f.size() == 400 && one.wrong_proposals == 0; });
    table_.row("S2", "a space where everything fails: runs that go on to the end", std::to_string(all.size()),
               std::to_string(complete), static_cast<size_t>(complete) == all.size());
  }

  const RecordedSpace& needed(const std::string& name) const {
    const RecordedSpace* recorded = runs_.find(name);
    if (recorded != nullptr) return *recorded;
    std::fprintf(stderr, "%s has no recording of %s\n", directory_.c_str(), name.c_str());
    std::exit(2);
  }

  std::string directory_;
  AcceptanceRuns runs_;
  AcceptanceTable table_;
};

/// Those that `only` names, comma between them; all where it is empty. Nothing where a name is unknown.
std::vector<Acceptance::Section> chosen_sections(const std::string& only) {
  std::vector<Acceptance::Section> chosen;
  for (const Acceptance::Section& section : Acceptance::sections())
    if (only.empty() || ("," + only + ",").find("," + std::string(section.id) + ",") != std::string::npos)
      chosen.push_back(section);
  const auto asked = only.empty() ? chosen.size() : static_cast<size_t>(std::count(only.begin(), only.end(), ',')) + 1;
  if (chosen.size() != asked) chosen.clear();
  return chosen;
}

void print_overhead() {
  const SearchOverhead found = measure_search_overhead(JITUNE_SOURCE_DIR "/tests/gpu/search/gemm_wide.toml");
  std::printf("%lu %.6f %.3f %.3f\n", static_cast<unsigned long>(found.configs), found.proposal_ms, found.peak_mb,
              found.compile_ms);
}

}  // namespace

int main(int argc, char** argv) {
  long seeds = 100, threads = std::max(1L, static_cast<long>(std::thread::hardware_concurrency()));
  std::string directory, only;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--seeds" && i + 1 < argc)
      seeds = std::atol(argv[++i]);
    else if (argument == "--threads" && i + 1 < argc)
      threads = std::atol(argv[++i]);
    else if (argument == "--only" && i + 1 < argc)
      only = argv[++i];
    else if (argument == "--overhead")
      return print_overhead(), 0;
    else
      directory = argument;
  }
  const auto chosen = chosen_sections(only);
  if (directory.empty() || seeds < 2 || threads < 1 || chosen.empty()) {
    std::fprintf(stderr, "usage: search_acceptance DIR [--seeds N] [--threads N] [--only ID,ID]\nIDs:");
    for (const Acceptance::Section& section : Acceptance::sections()) std::fprintf(stderr, " %s", section.id);
    std::fprintf(stderr, "\n");
    return 2;
  }
  std::printf("seeds 1 to %ld, %ld threads\n", seeds, threads);
  const auto start = std::chrono::steady_clock::now();
  Acceptance acceptance(directory, static_cast<size_t>(seeds), static_cast<size_t>(threads));
  const size_t missed = acceptance.run(chosen);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("%zu bars missed; %zu searches in %.0f s\n", missed, acceptance.made(), seconds);
  return missed == 0 ? 0 : 1;
}
