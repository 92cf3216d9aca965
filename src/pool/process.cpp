#include "pool/process.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

namespace jitune::pool {
namespace {

struct Pipe {
  UniqueFd read, write;
};

/// A pipe whose ends lie above the standard descriptors, which the host may have closed: 0, 1 and 2 are the ones that
/// the worker gets, and a dup2 from one onto another would lose it.
bool make_pipe(Pipe& pipe) {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return false;
  pipe.read = UniqueFd(fds[0]);
  pipe.write = UniqueFd(fds[1]);
  for (UniqueFd* end : {&pipe.read, &pipe.write}) {
    if (end->get() > 2) continue;
    const int lifted = ::fcntl(end->get(), F_DUPFD_CLOEXEC, 3);
    if (lifted < 0) return false;
    *end = UniqueFd(lifted);
  }
  return true;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  list.reserve(texts.size() + 1);
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

/// posix_spawn's settings; freed with the object.
struct SpawnSettings {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  SpawnSettings() {
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
  }
  ~SpawnSettings() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  int prepare(int in, int out, int err) {
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    sigdelset(&all, SIGKILL);
    sigdelset(&all, SIGSTOP);
    const std::array<int, 9> results{
        ::posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO),
        ::posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO),
        ::posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO),
        ::posix_spawn_file_actions_addclosefrom_np(&actions, 3),
        // Else the host's folder could not be unmounted, and a build could depend on where the host was started.
        ::posix_spawn_file_actions_addchdir_np(&actions, "/"),
        ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP),
        ::posix_spawnattr_setsigmask(&attributes, &none), ::posix_spawnattr_setsigdefault(&attributes, &all),
        // A terminal's ^C is for the host; it decides what becomes of its workers.
        ::posix_spawnattr_setpgroup(&attributes, 0)};
    for (const int result : results)
      if (result != 0) return result;
    return 0;
  }
};

const char* signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return name != nullptr ? name : "?";
}

}  // namespace

bool SpawnFailure::transient() const {
  return error == EMFILE || error == ENFILE || error == EAGAIN || error == ENOMEM;
}

std::variant<Spawned, SpawnFailure> spawn(const WorkerProgram& program, bool without_pidfd) {
  const auto failed = [&](int error) {
    return SpawnFailure{error, "cannot start the worker '" + program.path + "': " + std::strerror(error)};
  };
  Pipe in, out, err;
  if (!make_pipe(in) || !make_pipe(out) || !make_pipe(err)) return failed(errno);
  SpawnSettings settings;
  if (const int error = settings.prepare(in.read.get(), out.write.get(), err.write.get()); error != 0)
    return failed(error);

  std::vector<std::string> argument_texts{program.path};
  argument_texts.insert(argument_texts.end(), program.args.begin(), program.args.end());
  argument_texts.push_back(std::to_string(::getpid()));
  std::vector<std::string> environment_texts = program.environment;
  std::vector<char*> arguments = pointers(argument_texts), environment = pointers(environment_texts);

  Spawned child;
  const int error = ::posix_spawn(&child.pid, program.path.c_str(), &settings.actions, &settings.attributes,
                                  arguments.data(), environment.data());
  if (error != 0) return failed(error);
  if (program.nice != 0) {
    errno = 0;
    const int own = ::getpriority(PRIO_PROCESS, 0);
    if (errno == 0) ::setpriority(PRIO_PROCESS, static_cast<id_t>(child.pid), own + program.nice);
  }
  if (!without_pidfd) child.pidfd = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, child.pid, 0)));
  child.to_stdin = std::move(in.write);
  child.from_stdout = std::move(out.read);
  child.from_stderr = std::move(err.read);
  return child;
}

void kill_now(const Spawned& process) {
  if (process.pidfd && ::syscall(SYS_pidfd_send_signal, process.pidfd.get(), SIGKILL, nullptr, 0) == 0) return;
  if (process.pid > 0) ::kill(process.pid, SIGKILL);
}

std::string describe_status(int status) {
  if (WIFEXITED(status)) return "exited with code " + std::to_string(WEXITSTATUS(status));
  if (!WIFSIGNALED(status)) return "ended with status " + std::to_string(status);
  std::string text = std::string("killed by SIG") + signal_name(WTERMSIG(status));
  if (WTERMSIG(status) == SIGKILL) text += ", not by us; probably out of memory";
  return text;
}

int64_t resident_bytes(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/statm";
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char text[128];
  const ssize_t size = file ? ::read(file.get(), text, sizeof text - 1) : 0;
  if (size <= 0) return 0;
  text[size] = '\0';
  long long total = 0, resident = 0;
  if (std::sscanf(text, "%lld %lld", &total, &resident) != 2) return 0;
  return resident * ::sysconf(_SC_PAGESIZE);
}

}  // namespace jitune::pool
