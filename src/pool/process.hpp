#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/fd.hpp"
#include "base/result.hpp"
#include "pool/pool.hpp"

namespace jitune::pool {

/// A started worker and our ends of its pipes.
struct Spawned {
  pid_t pid = -1;
  UniqueFd pidfd;  ///< empty where the system refuses pidfd_open: then death is found by asking
  UniqueFd to_stdin, from_stdout, from_stderr;
};

/// Why a worker could not be started.
struct SpawnFailure {
  int error = 0;
  std::string message;  ///< with the path and the system's reason
  /// True when it may work later: no descriptors, processes or memory left.
  bool transient() const;
};

/// Starts a worker with clean signals, no descriptors but its three pipes, its own process group, `/` as its folder and
/// the given environment only. The cost does not depend on the size of this process. `without_pidfd` is for tests.
std::variant<Spawned, SpawnFailure> spawn(const WorkerProgram& program, bool without_pidfd = false);

/// SIGKILL to a process that has not been reaped by us. By pidfd where there is one, so that nobody else can be hit.
void kill_now(const Spawned& process);

/// How a process ended, for people: `killed by SIGSEGV`, `exited with code 3`.
std::string describe_status(int status);

/// Resident memory of a process, or 0 when it can't be told.
int64_t resident_bytes(pid_t pid);

}  // namespace jitune::pool
