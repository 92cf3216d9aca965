// A program that leaves, forks, moves or is signalled while its kernel is tuned. leave_test.cpp starts it with the
// stand-in driver:   runtime_leaver exit|stop|fork|chdir|signal DATABASE tune|background
#include <cuda.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include "gpu/driver.hpp"
#include "jitune/jitune.hpp"
#include "support/increment.hpp"

namespace {

using namespace jitune;
using namespace std::chrono_literals;
using Increment = Kernel<void(device_ptr, int)>;

constexpr int kCount = 1024;

KernelDefinition increment() {
  return test::increment({32, 64, 96, 128, 160, 192, 256, 512});
}

const gpu::Driver* driver = nullptr;
CUcontext context = nullptr;
CUdeviceptr buffer = 0;
std::atomic<int> signals{0};
Track track = Track::tune;

Options options(const std::string& database) {
  Options made;
  made.track = track;
  made.database = database;
  made.compile_workers = 1;
  made.first_call_budget = 60s;
  made.log.function = [](void*, const Event&) noexcept {};
  return made;
}

void launch(Increment& kernel) {
  driver->cuCtxSetCurrent(context);
  kernel.launch(nullptr, kernel.problem({{"n", kCount}}), device_ptr{buffer}, kCount);
}

/// After a launch: on the track `background` goes on until the winner is swapped in.
void wait_for_winner(Increment& kernel) {
  const auto problem = kernel.problem({{"n", kCount}});
  const auto end = std::chrono::steady_clock::now() + 60s;
  while (kernel.choice(problem).source != Choice::Source::tuned && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(5ms);
    launch(kernel);
  }
}

/// Tunes in a thread of its own until at least one compilation is done.
std::thread tune_in_thread(Tuner& tuner, Increment& kernel, std::atomic<bool>& done) {
  std::thread thread([&] {
    try {
      launch(kernel);
    } catch (const Error& error) {
      std::printf("launch: %s\n", to_string(error.code()));
    }
    done = true;
  });
  while (tuner.statistics().compilations == 0) std::this_thread::sleep_for(1ms);
  if (track == Track::background) {
    thread.join();  // the launch; its study goes on behind it
    thread = std::thread([] {});
    done = kernel.choice(kernel.problem({{"n", kCount}})).source == Choice::Source::tuned;
  }
  std::this_thread::sleep_for(500ms);  // into the study
  return thread;
}

int leave(const std::string& database) {
  auto* tuner = new Tuner(options(database));  // never destroyed, as in a program that calls exit deep inside
  auto* kernel = new Increment(*tuner, increment());
  static std::atomic<bool> done{false};
  tune_in_thread(*tuner, *kernel, done).detach();
  std::printf(done ? "tuned already\n" : "leaving\n");
  std::fflush(stdout);
  std::exit(3);
}

int stop(const std::string& database) {
  std::optional<Tuner> tuner(options(database));
  Increment kernel(*tuner, increment());
  std::atomic<bool> done{false};
  auto thread = tune_in_thread(*tuner, kernel, done);
  if (done) std::printf("tuned already\n");
  const auto start = std::chrono::steady_clock::now();
  tuner.reset();
  thread.join();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::printf("%s\n", took < 5s ? "stopped in time" : "stopped late");
  return 0;
}

int fork_child(const std::string& database) {
  Tuner tuner(options(database));
  Increment kernel(tuner, increment());
  launch(kernel);
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      launch(kernel);
      std::printf("the child launched\n");
    } catch (const Error& error) {
      std::printf("child: %s\n", to_string(error.code()));
    }
    std::fflush(stdout);
    std::exit(0);  // with all destructors that a program's end runs
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  std::printf("child ended with %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  wait_for_winner(kernel);
  kernel.launch(nullptr, kernel.problem({{"n", kCount / 2}}).on(Track::lookup), device_ptr{buffer}, kCount / 2);
  std::printf("parent: %s\n", to_string(kernel.choice(kernel.problem({{"n", kCount}})).source));
  return 0;
}

int change_directory(const std::string& database) {
  Tuner tuner(options(database));  // a relative path
  Increment kernel(tuner, increment());
  if (::chdir("/") != 0) return 1;
  launch(kernel);
  wait_for_winner(kernel);
  std::printf("%s\n", to_string(kernel.choice(kernel.problem({{"n", kCount}})).source));
  return 0;
}

int be_signalled(const std::string& database) {
  std::signal(SIGUSR1, [](int) { signals = signals + 1; });
  Tuner tuner(options(database));
  Increment kernel(tuner, increment());
  std::atomic<bool> done{false};
  std::thread thread([&] {
    while (!done) {
      ::kill(::getpid(), SIGUSR1);
      std::this_thread::sleep_for(2ms);
    }
  });
  launch(kernel);
  wait_for_winner(kernel);
  done = true;
  thread.join();
  std::printf("%s %s\n", to_string(kernel.choice(kernel.problem({{"n", kCount}})).source),
              signals > 10 ? "signalled" : "too few signals");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  if (std::string(argv[3]) == "background") track = Track::background;
  auto found = gpu::driver();
  CUdevice device = 0;
  if (!found || (*found)->cuDeviceGet(&device, 0) != CUDA_SUCCESS) return 2;
  driver = *found;
  auto made = gpu::use_primary_context(*driver, device);
  if (!made || driver->cuMemAlloc(&buffer, kCount * sizeof(float)) != CUDA_SUCCESS) return 2;
  context = *made;
  const std::string mode = argv[1];
  if (mode == "exit") return leave(argv[2]);
  if (mode == "stop") return stop(argv[2]);
  if (mode == "fork") return fork_child(argv[2]);
  if (mode == "chdir") return change_directory(argv[2]);
  if (mode == "signal") return be_signalled(argv[2]);
  return 2;
}
