#include "acceptance_runs.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "apps/prewarm/replay_files.hpp"
#include "base/files.hpp"
#include "base/hash.hpp"

using namespace jitune;

namespace {

constexpr const char* kSmall = "coulomb";  // too small for a share in the means

}  // namespace

AcceptanceRuns::AcceptanceRuns(const std::string& directory, size_t seeds, size_t threads)
    : seeds_(seeds), threads_(threads) {
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
}

std::vector<const AcceptanceRuns::Space*> AcceptanceRuns::large() const {
  std::vector<const Space*> result;
  for (const Space& space : spaces_)
    if (!space.name().starts_with(kSmall)) result.push_back(&space);
  return result;
}

const AcceptanceRuns::Space* AcceptanceRuns::find(const std::string& start) const {
  for (const Space& space : spaces_)
    if (space.name().starts_with(start)) return &space;
  return nullptr;
}

std::vector<AcceptanceRuns::Run> AcceptanceRuns::make(const Space& space, const Options& options) {
  auto all = search::replay_seeds(space, options, 1, seeds_, threads_);
  for (const Run& one : all) wrong_ += one.wrong_proposals;
  made_ += all.size();
  return all;
}

const std::vector<AcceptanceRuns::Run>& AcceptanceRuns::standard(const Space& space) {
  auto& known = standard_[space.name()];
  if (known.empty()) known = make(space, replay_with("auto", 400));
  return known;
}

const std::vector<AcceptanceRuns::Run>& AcceptanceRuns::random(const Space& space) {
  auto& known = random_[space.name()];
  if (known.empty()) known = make(space, replay_with("random", 400));
  return known;
}

double AcceptanceRuns::mean_over_large(const std::function<double(const Space&)>& value) const {
  double sum = 0;
  for (const Space* space : large()) sum += value(*space);
  return sum / static_cast<double>(large().size());
}

double AcceptanceRuns::evaluations_against_standard(const std::function<Options(const Space&)>& options) {
  return std::exp(mean_over_large([&](const Space& space) {
    Options own = options(space);
    own.until_within_5_percent = true;
    const auto budget = static_cast<double>(own.budget);
    return std::log(mean_to_5_percent(make(space, own), budget) / mean_to_5_percent(standard(space), budget));
  }));
}

AcceptanceRuns::Options replay_with(const char* strategy, uint64_t budget, size_t batch, double noise) {
  AcceptanceRuns::Options options;
  options.strategy.name = strategy;
  options.strategy.trials = budget;
  options.budget = budget;
  options.batch = batch;
  options.noise = noise;
  return options;
}

double mean_to_5_percent(const std::vector<AcceptanceRuns::Run>& runs, double budget) {
  double sum = 0;
  for (const AcceptanceRuns::Run& one : runs)
    sum += one.within_5_percent > 0 ? static_cast<double>(one.within_5_percent) : budget;
  return sum / static_cast<double>(runs.size());
}
