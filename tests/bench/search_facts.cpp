// What the search gains from numbers that are known of configs before they are compiled, beside their params: a
// strategy on spaces of our own kernels that were measured whole, without and with what each launch declares.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "apps/prewarm/replay_files.hpp"
#include "search/replay.hpp"
#include "space/instance.hpp"
#include "space/occupancy.hpp"

using namespace jitune;

namespace {

struct Measured {
  const char* recording;
  const char* definition;
  space::ProblemValues problem;
};

/// The definition's own space with the recorded times. The card was an H200; what a launch takes of an SM is the same
/// on the nominal one of its architecture.
struct Space {
  std::shared_ptr<space::Instance> instance;
  std::unique_ptr<search::RecordedSpace> recorded;
};

Space open(const Measured& measured) {
  const std::string root = JITUNE_SOURCE_DIR;
  auto bound = space::Instance::bind(space::Model::make(load(root + measured.definition)), measured.problem,
                                     *space::nominal_device("sm_90"));
  auto file = prewarm::read_recorded(root + measured.recording);
  if (!bound || !file) {
    std::fprintf(stderr, "%s\n", bound ? file.error().c_str() : bound.error().c_str());
    std::exit(2);
  }
  std::vector<search::RecordedSpace::Row> rows;
  file->visit([&](const space::Config& config, const search::Told& told) { rows.push_back({config, told}); });
  Space space;
  space.instance = std::make_shared<space::Instance>(*bound);
  space.recorded = std::make_unique<search::RecordedSpace>(file->name(), space.instance->space(), rows);
  return space;
}

const std::vector<std::string> kLaunchNames{"launch.threads", "launch.shared_bytes", "launch.blocks",
                                            "launch.cluster", "launch.occupancy",    "launch.waves",
                                            "launch.fill"};

/// In the order of kLaunchNames. Occupancy is that which shared memory and threads leave; registers are not known yet.
void append_launch(const space::Instance& instance, const space::Config& config, std::vector<double>& out) {
  const space::KernelFacts unknown{0, 0, 0, 1};
  const auto geometry = instance.geometry(config, unknown);
  if (!geometry) {
    out.insert(out.end(), kLaunchNames.size(), std::numeric_limits<double>::quiet_NaN());
    return;
  }
  const auto& device = instance.device();
  const double blocks = 1.0 * geometry->grid[0] * geometry->grid[1] * geometry->grid[2];
  const double cluster = 1.0 * geometry->cluster[0] * geometry->cluster[1] * geometry->cluster[2];
  const int held = space::blocks_per_sm(device, *geometry, unknown);
  const double waves = held > 0 && device.sm_count > 0 ? blocks / (1.0 * held * device.sm_count)
                                                       : std::numeric_limits<double>::quiet_NaN();
  out.insert(out.end(), {static_cast<double>(geometry->threads()), static_cast<double>(geometry->shared_bytes), blocks,
                         cluster, space::occupancy(device, *geometry, unknown), waves, waves / std::ceil(waves)});
}

search::ConfigNumbers launch_numbers(const space::Instance& instance) {
  return {kLaunchNames, [&instance](const space::Config& config) {
            std::vector<double> values;
            append_launch(instance, config, values);
            return values;
          }};
}

void print_row(const std::string& what, const std::vector<search::ReplayRun>& runs, uint64_t budget) {
  std::printf("  %-28s", what.c_str());
  for (const size_t mark : {10UL, 20UL, 50UL, 100UL, 200UL, 400UL})
    if (mark <= budget) std::printf("  %.4f", search::mean_f(runs, mark));
  double cost_ms = 0;
  for (const auto& run : runs) cost_ms += run.proposal_ms / static_cast<double>(runs.size());
  std::printf("  to 5 %%: %5.1f  %.2f ms a proposal\n",
              search::median_to_5_percent(runs, static_cast<double>(budget) + 1), cost_ms);
}

}  // namespace

int main(int argc, char** argv) {
  const size_t seeds = argc > 1 ? static_cast<size_t>(std::atol(argv[1])) : 100;
  const char* strategy = argc > 2 ? argv[2] : "hls";
  const std::vector<Measured> all{
      {"/tests/data/gemm_wide_H200.csv",
       "/tests/gpu/search/gemm_wide.toml",
       {{"T", Value("bfloat16")}, {"M", Value(2048)}, {"N", Value(2048)}, {"K", Value(2048)}}},
      {"/tests/data/softmax_wide_H200.csv",
       "/tests/gpu/search/softmax_wide.toml",
       {{"T", Value("half")}, {"rows", Value(8192)}, {"cols", Value(4096)}}}};
  std::printf("%s, seeds 1 to %zu; f after 10, 20, 50, 100, 200, 400 evaluations\n", strategy, seeds);
  for (const Measured& measured : all) {
    const Space space = open(measured);
    std::printf("%s, %zu configs\n", space.recorded->name().c_str(), space.recorded->rows());
    search::ReplayOptions options;
    options.strategy.name = strategy;
    options.strategy.trials = options.budget = 400;
    print_row("params alone", search::replay_seeds(*space.recorded, options, 1, seeds, 1), options.budget);
    options.strategy.numbers = launch_numbers(*space.instance);
    print_row("and the launch's numbers", search::replay_seeds(*space.recorded, options, 1, seeds, 1), options.budget);
  }
  return 0;
}
