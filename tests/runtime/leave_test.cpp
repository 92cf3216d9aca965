#include "runtime/fixture.hpp"

using namespace jitune;

namespace {

/// Runs the leaver with the stand-in driver, whose kernels take `time_us` of real time.
test::ProgramResult leave(const std::string& mode, const test::TempDir& dir, int time_us,
                          const std::string& track = "tune") {
  const std::string spec =
      test::with_own_gpu(R"({"real_time": true, "kernels": [{"match": "increment<", "time_us": )" +
                         std::to_string(time_us) + R"(, "spread": 0, "noise": 0, "factors": [{"128": 0.5}]}]})");
  return test::run_program("cd " + dir.path() +
                           " && LD_LIBRARY_PATH=" JITUNE_BINARY_DIR
                           "/tests/fake_cuda:$LD_LIBRARY_PATH JITUNE_FAKE_CUDA='" +
                           spec + "' " JITUNE_BINARY_DIR "/bin/runtime_leaver " + mode + " a.db " + track);
}

constexpr int kSlow = 50'000, kQuick = 200;

/// Workers of a program that is gone, given a moment to see it.
std::string workers_left(const std::string& mode) {
  return test::run_program(
             "for i in 1 2 3 4 5 6 7 8 9 10; do n=$(pgrep -fc '[j]itune-worker measure'); "
             "p=$(pgrep -fc '[r]untime_leaver " +
             mode +
             "'); [ \"$p\" = 0 ] && break; sleep 0.2; done; "
             "echo $p")
      .out;
}

}  // namespace

TEST_CASE("exit() in the middle of tuning ends the program with its own code, and its workers") {
  if (!test::have_nvrtc()) return;
  for (const char* track : {"tune", "background"}) {
    const test::TempDir dir;
    const auto result = leave("exit", dir, kSlow, track);
    INFO(track << result.err);
    CHECK(result.out == "leaving\n");
    CHECK(result.exit_code == 3);
    CHECK(workers_left("exit") == "0\n");
  }
}

TEST_CASE("a Tuner destroyed in the middle of tuning ends the study at once; the launch ends without harm") {
  if (!test::have_nvrtc()) return;
  for (const char* track : {"tune", "background"}) {
    const test::TempDir dir;
    const auto result = leave("stop", dir, 20'000, track);
    INFO(track << result.err);
    CHECK(result.out == "stopped in time\n");
    CHECK(result.exit_code == 0);
  }
}

TEST_CASE("after fork() the child is refused and may exit; the parent goes on") {
  if (!test::have_nvrtc()) return;
  for (const char* track : {"tune", "background"}) {
    const test::TempDir dir;
    const auto result = leave("fork", dir, kQuick, track);
    INFO(track << result.err);
    CHECK(result.out == "child: lifetime\nchild ended with 0\nparent: tuned\n");
    CHECK(result.exit_code == 0);
  }
}

TEST_CASE("chdir() between the Tuner's construction and the first launch changes nothing") {
  if (!test::have_nvrtc()) return;
  for (const char* track : {"tune", "background"}) {
    const test::TempDir dir;
    const auto result = leave("chdir", dir, kQuick, track);
    INFO(track << result.err);
    CHECK(result.out == "tuned\n");
    CHECK(test::run_program("ls " + dir.path()).out.find("a.db") != std::string::npos);
  }
}

TEST_CASE("a program that is signalled all the time tunes like any other") {
  if (!test::have_nvrtc()) return;
  for (const char* track : {"tune", "background"}) {
    const test::TempDir dir;
    const auto result = leave("signal", dir, kQuick, track);
    INFO(track << result.err);
    CHECK(result.out == "tuned signalled\n");
  }
}
