#include "tune/config_numbers.hpp"

#include <cmath>
#include <limits>

#include "space/occupancy.hpp"

namespace jitune::tune {
namespace {

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

}  // namespace

search::ConfigNumbers numbers_of(const space::Instance& instance) {
  search::ConfigNumbers numbers;
  numbers.names = kLaunchNames;
  for (const std::string& name : instance.feature_names()) numbers.names.push_back(name);
  numbers.values = [&instance](const space::Config& config) {
    std::vector<double> values;
    append_launch(instance, config, values);
    const auto own = instance.features(config);
    values.insert(values.end(), own.begin(), own.end());
    return values;
  };
  return numbers;
}

search::ConfigNumbers features_of(const space::Instance& instance) {
  return {instance.feature_names(), [&instance](const space::Config& config) { return instance.features(config); }};
}

}  // namespace jitune::tune
