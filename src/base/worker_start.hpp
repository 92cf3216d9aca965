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

}  // namespace jitune
