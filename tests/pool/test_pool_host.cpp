// Hosts that make life hard: blocked signals, closed descriptors, forks, signal handlers that take our children.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <latch>
#include <set>
#include <thread>

#include "base/clock.hpp"
#include "pool/pool_support.hpp"
#include "support/support.hpp"
#include "wire/frame.hpp"

using namespace jitune;
using namespace jitune::test;
using pool::Outcome;
using pool::Pool;
using pool::Reply;

namespace {

/// Runs `body` in a forked child with a bound of time; its result must be 0. The child has one thread only.
int in_child(int (*body)()) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    try {
      std::_Exit(body());
    } catch (...) {
      std::_Exit(99);
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

#define JITUNE_EXPECT(number, condition) \
  if (!(condition)) return number

int with_hostile_signals() {
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::signal(SIGINT, SIG_IGN);
  ::signal(SIGPIPE, SIG_IGN);
  Pool pool(fake_pool());
  const Reply reply = pool.call(fake("self"), 5s);
  JITUNE_EXPECT(1, reply.outcome == Outcome::ok);
  JITUNE_EXPECT(2, std::stoull(wire::get_string(reply.message, "blocked"), nullptr, 16) == 0);
  // 32 and 33 are glibc's own, which posix_spawn leaves ignored until the new program sets them up.
  JITUNE_EXPECT(3, (std::stoull(wire::get_string(reply.message, "ignored"), nullptr, 16) & 0x7fffffff) == 0);
  return 0;
}

int without_standard_descriptors() {
  for (const int fd : {0, 1, 2}) ::close(fd);
  Pool pool(fake_pool(2));
  for (int i = 0; i < 4; ++i) JITUNE_EXPECT(1, pool.call(fake("echo"), 5s).outcome == Outcome::ok);
  JITUNE_EXPECT(2, pool.call(fake("noise"), 5s).message == "quiet");
  JITUNE_EXPECT(3, pool.call(fake("exit", 3), 5s).detail == "exited with code 3");
  return 0;
}

int with_ignored_sigchld() {
  ::signal(SIGCHLD, SIG_IGN);
  Pool pool(fake_pool());
  for (int i = 0; i < 3; ++i) {
    JITUNE_EXPECT(1, pool.call(fake("echo"), 5s).outcome == Outcome::ok);
    const Reply reply = pool.call(fake("segv"), 5s);
    JITUNE_EXPECT(2, reply.outcome == Outcome::crash);
    JITUNE_EXPECT(3, reply.detail.find("status unknown") != std::string::npos);
  }
  JITUNE_EXPECT(4, pool.call(fake("spin"), 50ms).outcome == Outcome::timeout);
  JITUNE_EXPECT(5, pool.restart());
  return 0;
}

int with_a_host_that_reaps_everything() {
  std::atomic<bool> stop{false};
  std::thread reaper([&] {
    while (!stop)
      if (::waitpid(-1, nullptr, WNOHANG) <= 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
  });
  int wrong = 0;
  {
    auto options = fake_pool(2);
    options.storm_deaths = 1000;
    options.backoff = 0ms;
    Pool pool(options);
    for (int i = 0; i < 30; ++i) {
      if (pool.call(fake("segv"), 5s).outcome != Outcome::crash) ++wrong;
      if (pool.call(fake("echo"), 5s).outcome != Outcome::ok) ++wrong;
    }
  }
  stop = true;
  reaper.join();
  return wrong;
}

int with_few_descriptors() {
  auto options = fake_pool(8);
  Pool pool(options);
  JITUNE_EXPECT(1, pool.call(fake("echo"), 5s).outcome == Outcome::ok);
  const int open = open_descriptors();
  const rlimit few{static_cast<rlim_t>(open + 8), static_cast<rlim_t>(open + 8)};
  ::setrlimit(RLIMIT_NOFILE, &few);
  // One more worker at best: the rest must wait for those that are there.
  std::latch done(16);
  std::atomic<int> good{0};
  for (int i = 0; i < 16; ++i)
    pool.submit(fake("sleep", 5), 20s, [&](Reply reply) {
      if (reply.outcome == Outcome::ok) ++good;
      done.count_down();
    });
  done.wait();
  JITUNE_EXPECT(2, good == 16);
  JITUNE_EXPECT(3, pool.spawned() <= 3);
  return 0;
}

int with_no_descriptors_at_all() {
  const rlimit none{3, 3};
  ::setrlimit(RLIMIT_NOFILE, &none);
  Pool pool(fake_pool());
  const auto start = Clock::now();
  const Reply reply = pool.call(fake("echo"), 5s);
  JITUNE_EXPECT(1, reply.outcome == Outcome::no_worker);
  JITUNE_EXPECT(2, reply.detail.find("open files") != std::string::npos);
  JITUNE_EXPECT(3, ms_since(start) < 3000);
  return 0;
}

int with_descriptors_closed_later() {
  Pool pool(fake_pool());
  const int64_t pid = wire::get_int(pool.call(fake("self"), 5s).message, "pid");
  // By the bare system call: thread sanitizers would, rightly, call the host's deed a race.
  for (int fd = 3; fd < 1024; ++fd) ::syscall(SYS_close, fd);
  // Numbers that were ours now belong to the host: nothing may be written into its file.
  char name[] = "/tmp/jitune-test-XXXXXX";
  const int file = ::mkstemp(name);
  ::unlink(name);
  for (int i = 0; i < 20; ++i) (void)!::dup(file);
  const Reply lost = pool.call(fake("echo"), 5s);
  // The first request finds it out, unless the pool's own thread did before and the pool is made anew already.
  JITUNE_EXPECT(1, lost.outcome == Outcome::no_worker || lost.outcome == Outcome::ok);
  JITUNE_EXPECT(2, lost.outcome == Outcome::ok || lost.detail.find("closed jitune's descriptors") != std::string::npos);
  JITUNE_EXPECT(3, pool.call(fake("echo"), 5s).outcome == Outcome::ok);  // rebuilt
  JITUNE_EXPECT(4, ::lseek(file, 0, SEEK_END) == 0);
  JITUNE_EXPECT(5, wait_until([&] { return !exists(pid); }));
  return 0;
}

int with_no_processes() {
  if (::geteuid() == 0) {  // root has no limit of processes
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) return 0;
  }
  Pool running(fake_pool()), late(fake_pool());
  const bool reachable = running.call(fake("echo"), 5s).outcome == Outcome::ok;  // by that user
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_NPROC, &none);
  const auto start = Clock::now();
  const Reply reply = late.call(fake("echo"), 5s);
  JITUNE_EXPECT(1, reply.outcome == Outcome::no_worker);  // not even a thread of the pool's own
  JITUNE_EXPECT(2, !reply.detail.empty());
  if (reachable) {
    JITUNE_EXPECT(3, running.call(fake("exit", 3), 5s).outcome == Outcome::crash);
    const Reply refused = running.call(fake("echo"), 5s);
    JITUNE_EXPECT(4, refused.outcome == Outcome::no_worker);
    JITUNE_EXPECT(5, refused.detail.find("cannot start the worker") != std::string::npos);
  }
  JITUNE_EXPECT(6, ms_since(start) < 5000);
  return 0;
}

int with_sigpipe() {
  ::signal(SIGPIPE, SIG_DFL);  // would end this program
  Pool pool(fake_pool());
  for (int i = 0; i < 3; ++i) {
    JITUNE_EXPECT(1, pool.call(fake("close-in"), 30ms).outcome == Outcome::timeout);
    // More than a pipe holds, to a worker that dies while it is being written.
    Json large = fake("exit", 3);
    large["payload"] = wire::to_binary(std::string(3u << 20, 'x'));
    JITUNE_EXPECT(2, pool.call(large, 20s).outcome == Outcome::crash);
    const int64_t pid = wire::get_int(pool.call(fake("self"), 5s).message, "pid");
    pool.submit(fake("stop"), 200ms, [](Reply) {});
    ::kill(static_cast<pid_t>(pid), SIGKILL);
    JITUNE_EXPECT(3, pool.call(large, 20s).outcome == Outcome::crash);
  }
  struct sigaction now {};
  ::sigaction(SIGPIPE, nullptr, &now);
  JITUNE_EXPECT(4, now.sa_handler == SIG_DFL);
  return 0;
}

int with_folder_umask_and_limits_changed() {
  char folder[] = "/tmp/jitune-test-XXXXXX";
  if (::mkdtemp(folder) == nullptr) return 90;
  auto options = fake_pool();
  options.slots = {std::string(folder) + "/run", 2, 60s};
  Pool pool(options);
  if (::chdir(folder) != 0) return 91;
  ::umask(0);
  const rlimit core{RLIM_INFINITY, RLIM_INFINITY};
  ::setrlimit(RLIMIT_CORE, &core);
  const Reply reply = pool.call(fake("self"), 5s);
  struct stat info {};
  JITUNE_EXPECT(1, reply.outcome == Outcome::ok);
  JITUNE_EXPECT(2, wire::get_string(reply.message, "cwd") == "/");
  JITUNE_EXPECT(3, wire::get_int(reply.message, "core_limit", -1) == 0);
  JITUNE_EXPECT(4, ::stat((std::string(folder) + "/run").c_str(), &info) == 0 && (info.st_mode & 0777) == 0700);
  JITUNE_EXPECT(
      5, ::stat((std::string(folder) + "/run/compile-slots").c_str(), &info) == 0 && (info.st_mode & 0777) == 0600);
  return std::filesystem::remove_all(folder) > 0 ? 0 : 92;
}

int orphan_pipe[2];

/// The pool's destructor runs in exit(), after main.
int exits_while_workers_are_busy() {
  static Pool at_exit(fake_pool(2));
  const int64_t pid = wire::get_int(at_exit.call(fake("self"), 5s).message, "pid");
  (void)!::write(orphan_pipe[1], &pid, sizeof pid);
  for (int i = 0; i < 6; ++i) at_exit.submit(fake(i % 2 == 0 ? "sigign" : "spin"), 100s, [](Reply) {});
  std::this_thread::sleep_for(50ms);
  std::exit(0);
}

int starts_workers_and_is_killed() {
  Pool pool(fake_pool(2));
  std::latch both(2);
  std::atomic<int> spins{0};
  const int64_t idle = wire::get_int(pool.call(fake("self"), 5s).message, "pid");
  pool.submit(fake("sigign"), 100s, [](Reply) {});
  std::this_thread::sleep_for(100ms);
  (void)!::write(orphan_pipe[1], &idle, sizeof idle);
  ::kill(::getpid(), SIGKILL);
  return 0;
}

}  // namespace

TEST_CASE("workers start with clean signals, descriptors, folder, group and limits") {
  Pool pool([] {
    auto options = fake_pool();
    options.program.environment.emplace_back("JITUNE_ONLY=1");
    options.program.nice = 3;
    return options;
  }());
  const int leaked = ::open("/dev/null", O_RDONLY);  // without O_CLOEXEC
  REQUIRE(leaked >= 0);
  const Json self = pool.call(fake("self"), 5s).message;
  ::close(leaked);
  CHECK(wire::get_int(self, "ppid") == ::getpid());
  CHECK(wire::get_int(self, "pgid") == wire::get_int(self, "pid"));
  CHECK(wire::get_int(self, "nice") == ::getpriority(PRIO_PROCESS, 0) + 3);
  CHECK(wire::get_string(self, "cwd") == "/");
  CHECK(wire::get_int(self, "core_limit", -1) == 0);
  CHECK(self["fds"].size() == 5);  // 0, 1, 2 and the protocol's two
  bool found = false;
  for (const Json& one : self["environment"]) {
    found = found || one == "JITUNE_ONLY=1";
    CHECK(one.get<std::string>().rfind("LD_PRELOAD=", 0) != 0);
  }
  CHECK(found);
}

TEST_CASE("the host's own signals, mask and children are left alone") {
  struct sigaction before {};
  ::sigaction(SIGCHLD, nullptr, &before);
  sigset_t mask_before;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask_before);
  const pid_t child = ::fork();
  if (child == 0) std::_Exit(7);
  {
    Pool pool(fake_pool());
    CHECK(pool.call(fake("segv"), 5s).outcome == Outcome::crash);
  }
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 7);
  struct sigaction after {};
  ::sigaction(SIGCHLD, nullptr, &after);
  CHECK((before.sa_handler == after.sa_handler));
  sigset_t mask_after;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask_after);
  for (int number = 1; number < 32; ++number)
    CHECK(::sigismember(&mask_before, number) == ::sigismember(&mask_after, number));
}

TEST_CASE("a host that blocks and ignores signals") {
  CHECK(in_child(with_hostile_signals) == 0);
}
TEST_CASE("a host without descriptors 0, 1 and 2") {
  CHECK(in_child(without_standard_descriptors) == 0);
}
TEST_CASE("a host that ignores SIGCHLD") {
  CHECK(in_child(with_ignored_sigchld) == 0);
}
TEST_CASE("a host that waits for any child") {
  CHECK(in_child(with_a_host_that_reaps_everything) == 0);
}
TEST_CASE("too few descriptors narrow the pool") {
  CHECK(in_child(with_few_descriptors) == 0);
}
TEST_CASE("no descriptors at all: no_worker") {
  CHECK(in_child(with_no_descriptors_at_all) == 0);
}
TEST_CASE("a host that closes our descriptors") {
#ifdef __SANITIZE_THREAD__
  constexpr bool kRacesAreReported = true;
#else
  constexpr bool kRacesAreReported = false;
#endif
  if (kRacesAreReported)
    return test::skip("threads unwatched", "closing descriptors that a thread waits on is a race, here on purpose");
  CHECK(in_child(with_descriptors_closed_later) == 0);
}

TEST_CASE("a host that is killed takes its workers along, whatever they ignore") {
  REQUIRE(::pipe(orphan_pipe) == 0);
  CHECK(in_child(starts_workers_and_is_killed) == 1000 + SIGKILL);
  int64_t idle = 0;
  REQUIRE(::read(orphan_pipe[0], &idle, sizeof idle) == sizeof idle);
  CHECK(wait_until([&] { return !exists(idle); }, 1000));
  ::close(orphan_pipe[0]);
  ::close(orphan_pipe[1]);
}

TEST_CASE("no processes to be had: a reason, not a hang") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr bool kThreadsAreNeeded = true;
#else
  constexpr bool kThreadsAreNeeded = false;
#endif
  if (kThreadsAreNeeded) return test::skip("sanitizers", "their runtimes end a program that can't make threads");
  CHECK(in_child(with_no_processes) == 0);
}
TEST_CASE("a write to a dead worker raises no SIGPIPE in the host") {
  CHECK(in_child(with_sigpipe) == 0);
}
TEST_CASE("a host that changes its folder, umask and limits after the pool was made") {
  CHECK(in_child(with_folder_umask_and_limits_changed) == 0);
}

TEST_CASE("exit() while workers are busy ends them, at once") {
  REQUIRE(::pipe(orphan_pipe) == 0);
  const auto start = Clock::now();
  CHECK(in_child(exits_while_workers_are_busy) == 0);
  CHECK(ms_since(start) < 5000);
  int64_t pid = 0;
  REQUIRE(::read(orphan_pipe[0], &pid, sizeof pid) == sizeof pid);
  CHECK_FALSE(exists(pid));
  ::close(orphan_pipe[0]);
  ::close(orphan_pipe[1]);
}

TEST_CASE("a forked child's copy of the pool does nothing and ends at once") {
  auto pool = std::make_unique<Pool>(fake_pool(2));
  const int64_t worker = wire::get_int(pool->call(fake("self"), 5s).message, "pid");
  std::atomic<bool> slept{false};
  pool->submit(fake("sleep", 300), 10s, [&](Reply reply) { slept = reply.outcome == Outcome::ok; });
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    int wrong = 0;
    if (pool->call(fake("echo"), 5s).outcome != Outcome::no_worker) wrong |= 1;
    pool->cancel_all();
    pool->warm_up(2);
    if (!pool->restart()) wrong |= 2;
    if (!pool->hello().is_null()) wrong |= 4;
    pool.reset();
    std::_Exit(wrong);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(wait_until([&] { return slept.load(); }));  // the parent's workers never noticed
  CHECK(exists(worker));
  CHECK(pool->call(fake("echo"), 5s).outcome == Outcome::ok);
}

TEST_CASE("without pidfd death is found by asking") {
  auto options = fake_pool();
  options.use_pidfd = false;
  Pool pool(options);
  CHECK(pool.call(fake("echo"), 5s).outcome == Outcome::ok);
  CHECK(pool.call(fake("segv"), 5s).detail == "killed by SIGSEGV");
  CHECK(pool.call(fake("spin"), 50ms).outcome == Outcome::timeout);
  CHECK(pool.call(fake("echo"), 5s).outcome == Outcome::ok);
  CHECK(pool.restart());
  CHECK(zombies() == 0);
}
