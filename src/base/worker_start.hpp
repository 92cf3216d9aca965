#pragma once

#include <string>

#include "base/result.hpp"

namespace jitune {

/// The two descriptors of a worker's protocol, moved away from 0 and 1.
struct WorkerPipes {
  int in = -1;
  int out = -1;
};

/// What every worker does first: dies with its parent (whose pid the host passed), moves the protocol off 0 and 1,
/// sends stray output to stderr, writes no core. Fails when the parent is gone already.
Result<WorkerPipes> start_worker(int parent_pid);

/// Starts this program again without address randomisation, so that NVRTC's heap lies at the same place in all compile
/// workers. Returns when it is off already, or can't be turned off (a sandbox that forbids it).
void fix_addresses(char** argv);

}  // namespace jitune
