#include "base/worker_start.hpp"

#include <fcntl.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

namespace jitune {
namespace {

Failure system_failure(const char* what) {
  return {std::string(what) + ": " + std::strerror(errno)};
}

/// A copy of `fd` above the standard descriptors that no program started from here inherits.
int move_up(int fd) {
  return ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

}  // namespace

Result<WorkerPipes> start_worker(int parent_pid) {
  // Asked first, compared after: a parent that died in between would otherwise leave us running for nobody.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return system_failure("cannot tie the worker's life to its parent's");
  if (::getppid() != parent_pid) return Failure{"the process that started this worker is gone"};

  WorkerPipes pipes;
  pipes.in = move_up(STDIN_FILENO);
  pipes.out = move_up(STDOUT_FILENO);
  if (pipes.in < 0 || pipes.out < 0) return system_failure("cannot keep the protocol's descriptors");
  // Whatever a library prints goes to stderr from now on, and whatever reads finds nothing.
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing < 0 || ::dup2(nothing, STDIN_FILENO) < 0 || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
    return system_failure("cannot redirect stray input and output");
  ::close(nothing);

  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);  // a crash is told by its signal; a core of NVRTC is hundreds of megabytes
  return pipes;
}

void fix_addresses(char** argv) {
  const int now = ::personality(0xffffffff);
  if (now < 0 || (now & ADDR_NO_RANDOMIZE) != 0) return;
  if (::personality(static_cast<unsigned long>(now | ADDR_NO_RANDOMIZE)) < 0) return;
  // Only a change that the kernel has taken leads to a second start: never to a third.
  if ((::personality(0xffffffff) & ADDR_NO_RANDOMIZE) == 0) return;
  char path[4096];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path - 1);
  if (length > 0) {  // by its own path, so that the process keeps its name
    path[length] = '\0';
    ::execv(path, argv);
  }
  ::execv("/proc/self/exe", argv);
}

}  // namespace jitune
