#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "measure/serve.hpp"
#include "support/support.hpp"
#include "wire/frame.hpp"
#include "worker.hpp"

using namespace jitune;
using namespace jitune::measure;
using namespace jitune::measure::test;

namespace {

/// `scale<9>` has the fault; `scale<1>` is right.
std::string faulty(const std::string& fault, int after = 0) {
  return R"({"kernels": [{"match": "scale<9>", "fault": ")" + fault + R"(", "after": )" + std::to_string(after) + "}]}";
}

struct Study {
  explicit Study(const std::string& spec, int count = 4096) : driver(fake(spec)), args(scale_args(count)) {
    const SetupReply ready = worker.setup(setup_for(args));
    REQUIRE_MESSAGE(ready.ok, ready.error);
    const TrialReply reply = worker.reference(good());
    REQUIRE_MESSAGE(reply.status == TrialStatus::ok, reply.error);
  }
  Candidate good() const { return candidate(mangled("scale", 1), args); }
  Candidate bad() const { return candidate(mangled("scale", 9), args); }

  const fake_cuda::Loaded& driver;  // loaded before the worker asks for it
  std::vector<space::ArgSpec> args;
  Worker worker;
};

}  // namespace

TEST_CASE("a wrong element is found and named") {
  Study study(faulty("wrong"));
  const TrialReply reply = study.worker.trial(study.bad());
  CHECK(reply.status == TrialStatus::wrong_result);
  CHECK(reply.error.find("output `y`: 1 of 4096 elements differ from the reference, first [2048]: got ") == 0);
  CHECK(reply.error.find(", expected ") != std::string::npos);
  CHECK(reply.error.find("(rtol 1e-05, atol 1e-06)") != std::string::npos);
  CHECK(reply.samples_us.empty());
  CHECK_FALSE(reply.context_lost);
  CHECK(study.worker.trial(study.good()).status == TrialStatus::ok);
}

TEST_CASE("wrong results are sorted into those that agree") {
  fake(R"({"kernels": [{"match": "scale<[89]>", "fault": "wrong"}, {"match": "scale<7>", "fault": "half"}]})");
  Worker worker;
  const auto args = scale_args();
  REQUIRE(worker.setup(setup_for(args)).ok);
  REQUIRE(worker.reference(candidate(mangled("scale", 1), args)).status == TrialStatus::ok);
  CHECK(worker.trial(candidate(mangled("scale", 9), args)).group == 1);
  CHECK(worker.trial(candidate(mangled("scale", 7), args)).group == 2);
  CHECK(worker.trial(candidate(mangled("scale", 8), args)).group == 1);
  CHECK(worker.trial(candidate(mangled("scale", 2), args)).group == 0);
}

TEST_CASE("an allowed share of mismatches is allowed") {
  fake(faulty("wrong"));
  Worker worker;
  auto args = scale_args();
  args[0].tolerance.mismatch = 1.5 / 4096;
  REQUIRE(worker.setup(setup_for(args)).ok);
  REQUIRE(worker.reference(candidate(mangled("scale", 1), args)).status == TrialStatus::ok);
  CHECK(worker.trial(candidate(mangled("scale", 9), args)).status == TrialStatus::ok);
}

TEST_CASE("half an output is not an output: the rest holds poison, not what an earlier run left") {
  Study study(faulty("half"));
  const TrialReply reply = study.worker.trial(study.bad());
  CHECK(reply.status == TrialStatus::wrong_result);
  CHECK(reply.error.find("2048 of 4096 elements differ") != std::string::npos);
  CHECK(reply.error.find("got ") != std::string::npos);
  CHECK(reply.error.find("nan") != std::string::npos);
}

TEST_CASE("writes beside a buffer are found, named and repaired") {
  for (const char* fault : {"out_of_bounds", "before_bounds"}) {
    CAPTURE(fault);
    Study study(faulty(fault), 1021);  // ends within a word group of the guard
    const TrialReply reply = study.worker.trial(study.bad());
    CHECK(reply.status == TrialStatus::out_of_bounds);
    CHECK(reply.error == std::string("it wrote ") +
                             (std::string(fault) == "out_of_bounds" ? "past the end of" : "before the start of") +
                             " `y` (4084 bytes)");
    CHECK_FALSE(reply.context_lost);
    const TrialReply next = study.worker.trial(study.good());
    CHECK_MESSAGE(next.status == TrialStatus::ok, next.error);
  }
}

TEST_CASE("a write that comes only in timed runs is found too") {
  Study study(faulty("out_of_bounds", 2));
  CHECK(study.worker.trial(study.bad()).status == TrialStatus::out_of_bounds);
}

TEST_CASE("a config that changes an input ends the worker: its data is spoiled") {
  Study study(faulty("input"));
  const TrialReply reply = study.worker.trial(study.bad());
  CHECK(reply.status == TrialStatus::out_of_bounds);
  CHECK(reply.error == "it wrote into `x`, which is an input");
  CHECK(reply.context_lost);
  CHECK(study.worker.finish() == 70);
}

TEST_CASE("a sticky error is a crash of the config and the end of the worker") {
  Study study(faulty("illegal_address"));
  const TrialReply reply = study.worker.trial(study.bad());
  CHECK(reply.status == TrialStatus::run_crash);
  CHECK(reply.error.find("CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)") != std::string::npos);
  CHECK(reply.context_lost);
  CHECK(study.worker.finish() == 70);
}

TEST_CASE("a sticky error in a rematch ends the worker") {
  Study study(faulty("illegal_address", 3));
  const RematchReply reply = study.worker.rematch({study.good(), study.bad()});
  CHECK_FALSE(reply.ok);
  CHECK(reply.context_lost);
  CHECK(reply.error.find("finalist 1") == 0);
  CHECK(study.worker.finish() == 70);
}

TEST_CASE("a refused launch costs the config, not the worker") {
  Study study(faulty("launch_error"));
  const TrialReply refused = study.worker.trial(study.bad());
  CHECK(refused.status == TrialStatus::launch_error);
  CHECK(refused.error.find("launch of grid 32x1x1, block 128x1x1: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES") == 0);
  CHECK_FALSE(refused.context_lost);

  Candidate large = study.good();
  large.geometry.block = {2048, 1, 1};
  CHECK(study.worker.trial(large).status == TrialStatus::launch_error);
  Candidate greedy = study.good();
  greedy.geometry.shared_bytes = 300'000;
  const TrialReply shared = study.worker.trial(greedy);
  CHECK(shared.status == TrialStatus::launch_error);
  CHECK(shared.error.find("300000 bytes, more than this GPU gives a block") != std::string::npos);
  greedy.geometry.shared_bytes = 200'000;  // above 48 KiB the limit is raised
  CHECK(study.worker.trial(greedy).status == TrialStatus::ok);
  Candidate clustered = study.good();
  clustered.geometry.cluster = {16, 1, 1};
  CHECK(study.worker.trial(clustered).status == TrialStatus::ok);
  clustered.geometry.cluster = {3, 1, 1};
  CHECK(study.worker.trial(clustered).status == TrialStatus::launch_error);
  Candidate cooperative = study.good();
  cooperative.geometry.cooperative = true;
  CHECK(study.worker.trial(cooperative).status == TrialStatus::ok);
  cooperative.geometry.grid = {100'000, 1, 1};
  CHECK(study.worker.trial(cooperative).status == TrialStatus::launch_error);
  CHECK(study.worker.finish() == 0);
}

TEST_CASE("a cubin that is none, or lacks the kernel, is a launch error") {
  Study study("{}");
  Candidate broken = study.good();
  broken.cubin = "not an ELF file, but long enough to be looked at by whoever reads sixty-four bytes";
  CHECK(study.worker.trial(broken).error.find("no ELF file") != std::string::npos);
  broken.cubin = "";
  CHECK(study.worker.trial(broken).status == TrialStatus::launch_error);
  broken = study.good();
  broken.lowered_name = "missing";
  const TrialReply reply = study.worker.trial(broken);
  CHECK(reply.status == TrialStatus::launch_error);
  CHECK(reply.error.find("finding `missing` in the module: CUDA_ERROR_NOT_FOUND") == 0);
}

TEST_CASE("scratch that does not fit is the config's fault and leaves the worker whole") {
  Study study("{}");
  std::vector<space::ArgSpec> copy{floats(ArgKind::out, "y", 64), floats(ArgKind::in, "x", 64),
                                   floats(ArgKind::scratch, "scratch", 64), scalar(64)};
  REQUIRE(study.worker.setup(setup_for(copy)).ok);
  REQUIRE(study.worker.reference(candidate("scratch_copy", copy)).status == TrialStatus::ok);
  copy[2].count = int64_t{1} << 40;
  const TrialReply reply = study.worker.trial(candidate("scratch_copy", copy));
  CHECK(reply.status == TrialStatus::launch_error);
  CHECK(reply.error.find("the config's scratch memory needs ") == 0);
  CHECK(reply.error.find("CUDA_ERROR_OUT_OF_MEMORY") != std::string::npos);
  copy[2].count = 64;
  CHECK(study.worker.trial(candidate("scratch_copy", copy)).status == TrialStatus::ok);
}

TEST_CASE("event times that are no times fail the config, after a bounded number of tries") {
  Study study(faulty("zero_time"));
  const TrialReply reply = study.worker.trial(study.bad());
  CHECK(reply.status == TrialStatus::launch_error);
  CHECK(reply.error.find("not usable") != std::string::npos);
  CHECK(study.worker.trial(study.good()).status == TrialStatus::ok);
}

TEST_CASE("a kernel that never ends is ended from outside") {
  fake(faulty("hang"));
  int request[2], reply[2];
  REQUIRE(::pipe(request) == 0);
  REQUIRE(::pipe(reply) == 0);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(serve(request[0], reply[1]));
  ::close(request[0]);
  ::close(reply[1]);
  const auto args = scale_args();
  const auto send = [&](const Json& message) {
    return wire::write_frame(request[1], {{"id", 1}, {"request", message}}).ok();
  };
  REQUIRE(wire::read_frame(reply[0]));
  REQUIRE(send(to_json(setup_for(args))));
  REQUIRE(wire::read_frame(reply[0]));
  REQUIRE(send(to_json(TrialRequest{candidate(mangled("scale", 9), args), false, false, 0, {}})));
  ::usleep(100'000);
  CHECK(::waitpid(child, nullptr, WNOHANG) == 0);  // it waits, and nothing in the worker gives up for it
  REQUIRE(::kill(child, SIGKILL) == 0);
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  const auto end = wire::read_frame(reply[0]);
  CHECK((!end || end->is_null()));
  ::close(request[1]);
  ::close(reply[0]);
}
