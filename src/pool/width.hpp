#pragma once

#include <cstdint>
#include <string>

namespace jitune::pool {

/// What a machine, or the part of it that we may use, offers.
struct Resources {
  int cores = 1;                ///< of the affinity mask
  double quota_cores = 0;       ///< the cgroup's cpu.max; 0 = none
  int64_t available_bytes = 0;  ///< MemAvailable, or what the cgroup leaves if that is less; 0 = not known
};

/// Reads them: affinity of this process, cgroups v2 and v1 of /proc/self/cgroup, /proc/meminfo. `root` is put before
/// each path, for tests; affinity is asked only with an empty one.
Resources read_resources(const std::string& root = {});

/// Nine tenths of the cores, at least one, at most what memory holds.
int width_for(const Resources& resources, int64_t bytes_each);

}  // namespace jitune::pool
