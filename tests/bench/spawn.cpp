// How long starting a worker takes from a small host and from one with gigabytes resident:
//   bench_spawn [--worker PATH] [--gib 4] [--starts 50]
// Each start is timed from posix_spawn to the worker's answer. The two hosts are processes of their own, started
// afresh, and take turns, so that the machine's other load meets both alike. The last line is the ratio of the medians.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "pool/pool.hpp"
#include "pool/process.hpp"

namespace {

using jitune::pool::Pool;

struct Arguments {
  std::string worker;
  double gib = 4;
  int starts = 50;
};

/// Memory that is really there: each page is written, none is shared or huge.
void hold(int64_t bytes) {
  void* const memory =
      ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("mmap");
    std::_Exit(1);
  }
  ::madvise(memory, static_cast<size_t>(bytes), MADV_NOHUGEPAGE);
  auto* const pages = static_cast<volatile char*>(memory);
  for (int64_t i = 0; i < bytes; i += 4096) pages[i] = 1;
}

/// One start: a pool's first request, which brings one worker up. Milliseconds, or -1.
double start_once(const Arguments& arguments) {
  jitune::pool::PoolOptions options;
  options.program.path = arguments.worker;
  options.program.args = {"compile"};
  options.program.environment = jitune::pool::worker_environment(false);
  Pool pool(options);
  const auto start = jitune::Clock::now();
  const auto reply = pool.call({{"fake", "echo"}}, std::chrono::seconds(30));
  const double ms = jitune::ms_since(start);
  if (reply.outcome != jitune::pool::Outcome::ok) std::fprintf(stderr, "%s\n", reply.detail.c_str());
  return reply.outcome == jitune::pool::Outcome::ok ? ms : -1;
}

struct Host {
  pid_t pid = -1;
  int to = -1, from = -1;
  double resident_mib = 0;
  std::vector<double> times_ms;
};

/// A host holding `bytes`, which starts one worker for each byte that it is sent.
Host start_host(const Arguments& arguments, int64_t bytes) {
  int to[2], from[2];
  Host host;
  if (::pipe(to) != 0 || ::pipe(from) != 0) return host;
  host.pid = ::fork();
  if (host.pid == 0) {
    ::close(to[1]);
    ::close(from[0]);
    hold(bytes);
    double value = static_cast<double>(jitune::pool::resident_bytes(::getpid())) / (1 << 20);
    for (char go = 0;;) {
      if (::write(from[1], &value, sizeof value) != sizeof value || ::read(to[0], &go, 1) != 1) std::_Exit(0);
      value = start_once(arguments);
    }
  }
  ::close(to[0]);
  ::close(from[1]);
  host.to = to[1];
  host.from = from[0];
  if (::read(host.from, &host.resident_mib, sizeof host.resident_mib) != sizeof host.resident_mib) host.pid = -1;
  return host;
}

bool time_one(Host& host, bool keep) {
  double ms = -1;
  if (::write(host.to, "g", 1) != 1 || ::read(host.from, &ms, sizeof ms) != sizeof ms || ms < 0) return false;
  if (keep) host.times_ms.push_back(ms);
  return true;
}

double at(std::vector<double> times, double quantile) {
  std::sort(times.begin(), times.end());
  return times[static_cast<size_t>(quantile * static_cast<double>(times.size() - 1) + 0.5)];
}

void end(Host& host) {
  ::close(host.to);
  ::close(host.from);
  ::kill(host.pid, SIGKILL);  // it has no worker now, and the other host may hold a copy of its pipe
  ::waitpid(host.pid, nullptr, 0);
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  std::string own(4096, '\0');
  const ssize_t size = ::readlink("/proc/self/exe", own.data(), own.size());
  own.resize(size > 0 ? static_cast<size_t>(size) : 0);
  arguments.worker = own.substr(0, own.rfind('/') + 1) + "jitune-fake-worker";
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--worker") arguments.worker = argv[i + 1];
    if (name == "--gib") arguments.gib = std::atof(argv[i + 1]);
    if (name == "--starts") arguments.starts = std::max(1, std::atoi(argv[i + 1]));
  }
  Host small = start_host(arguments, 10ll << 20);
  Host large = start_host(arguments, static_cast<int64_t>(arguments.gib * (1ll << 30)));
  if (small.pid < 0 || large.pid < 0) return std::fprintf(stderr, "a host could not be started\n"), 1;
  bool fine = time_one(small, false) && time_one(large, false);
  for (int i = 0; i < arguments.starts && fine; ++i) fine = time_one(small, true) && time_one(large, true);
  end(small);
  end(large);
  if (!fine) return 1;
  for (const Host* host : {&small, &large})
    std::printf("host of %7.0f MiB resident: %d starts, median %.2f ms, 10 %% %.2f, 90 %% %.2f\n", host->resident_mib,
                arguments.starts, at(host->times_ms, 0.5), at(host->times_ms, 0.1), at(host->times_ms, 0.9));
  const double ratio = at(large.times_ms, 0.5) / at(small.times_ms, 0.5);
  std::printf("ratio of medians %.2f\n", ratio);
  return ratio <= 1.5 ? 0 : 2;
}
