#include <cuda.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "gpu/driver.hpp"
#include "support/support.hpp"
#include "worker.hpp"

using namespace jitune;
using namespace jitune::measure;
using namespace jitune::measure::test;

namespace {

/// Whether y = 2 x came out for inputs from `source` exactly as for the same inputs from a file. The reference is
/// made from the file, so that it survives the second setup only if contents are equal: the check is a checksum by eye.
struct SharedMemory {
  SharedMemory(const std::string& name, const std::vector<float>& values) : name_(name) {
    const int fd = ::shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    REQUIRE(fd >= 0);
    const size_t bytes = values.size() * sizeof(float);
    REQUIRE(::ftruncate(fd, static_cast<off_t>(bytes)) == 0);
    REQUIRE(::write(fd, values.data(), bytes) == static_cast<ssize_t>(bytes));
    ::close(fd);
  }
  ~SharedMemory() { ::shm_unlink(name_.c_str()); }
  std::string name_;
};

/// The expectation in `wrong` names the values: got (from the faulty run) and expected (from the reference).
std::string expected_value(Worker& worker, const std::vector<space::ArgSpec>& args) {
  const TrialReply reply = worker.trial(candidate(mangled("scale", 9), args));
  CHECK(reply.status == TrialStatus::wrong_result);
  const size_t at = reply.error.find("expected ");
  return reply.error.substr(at + 9, reply.error.find(';') - at - 9);
}

const char* kWrong = R"({"kernels": [{"match": "scale<9>", "fault": "wrong"}]})";

}  // namespace

TEST_CASE("inputs come from shared memory") {
  fake(kWrong);
  std::vector<float> values(4096, 1.0f);
  values[2048] = 21.25f;
  const SharedMemory memory("/jitune-test-" + std::to_string(::getpid()), values);
  const auto args = scale_args();
  Setup setup = setup_for(args);
  setup.data.resize(args.size());
  setup.data[1].kind = DataSource::Kind::shared_memory;
  setup.data[1].shm_name = memory.name_;
  Worker worker;
  const SetupReply ready = worker.setup(setup);
  REQUIRE_MESSAGE(ready.ok, ready.error);
  REQUIRE(worker.reference(candidate("scale", args)).status == TrialStatus::ok);
  CHECK(expected_value(worker, args) == "42.5");

  setup.data[1].shm_name = "/jitune-test-absent";
  CHECK(worker.setup(setup).error.find("`x`: the shared memory `/jitune-test-absent` cannot be opened") == 0);
  const SharedMemory small("/jitune-test-small-" + std::to_string(::getpid()), {1, 2, 3});
  setup.data[1].shm_name = small.name_;
  CHECK(worker.setup(setup).error.find("holds 12 bytes, 16384 are needed") != std::string::npos);
}

TEST_CASE("inputs come from a file") {
  fake(kWrong);
  const jitune::test::TempDir dir;
  std::vector<float> values(5000, 1.0f);  // longer than needed: the first ones count
  values[2048] = -3.0f;
  jitune::test::write_file(dir / "x.bin", std::string(reinterpret_cast<const char*>(values.data()), 20'000));
  auto args = scale_args();
  args[1].fill = Fill::file(dir / "x.bin");
  Worker worker;
  REQUIRE(worker.setup(setup_for(args)).ok);
  REQUIRE(worker.reference(candidate("scale", args)).status == TrialStatus::ok);
  CHECK(expected_value(worker, args) == "-6");
  args[1].fill = Fill::file(dir / "absent.bin");
  CHECK(worker.setup(setup_for(args)).error.find("absent.bin` cannot be opened: No such file") != std::string::npos);
}

TEST_CASE("inputs come from another process's GPU memory over IPC, which is not kept mapped") {
  const auto& driver = fake(kWrong);
  int handle_pipe[2], done_pipe[2];
  REQUIRE(::pipe(handle_pipe) == 0);
  REQUIRE(::pipe(done_pipe) == 0);
  const pid_t owner = ::fork();
  if (owner == 0) {  // an application with a buffer of its own, x at byte 512 of its allocation
    const gpu::Driver& cuda = **gpu::driver();
    if (!gpu::use_primary_context(cuda, 0)) ::_exit(1);
    CUdeviceptr memory = 0;
    CUipcMemHandle handle{};
    std::vector<float> values(4096, 0.5f);
    values[2048] = 8.0f;
    if (cuda.cuMemAlloc(&memory, 512 + 4096 * 4) != CUDA_SUCCESS) ::_exit(2);
    if (cuda.cuMemcpyHtoD(memory + 512, values.data(), 4096 * 4) != CUDA_SUCCESS) ::_exit(3);
    if (cuda.cuIpcGetMemHandle(&handle, memory) != CUDA_SUCCESS) ::_exit(4);
    if (::write(handle_pipe[1], &handle, sizeof handle) != sizeof handle) ::_exit(5);
    char done = 0;
    if (::read(done_pipe[0], &done, 1) != 1) ::_exit(6);
    float after = 0;  // what a worker did must not show here
    if (cuda.cuMemcpyDtoH(&after, memory + 512 + 2048 * 4, 4) != CUDA_SUCCESS || after != 8.0f) ::_exit(7);
    ::_exit(0);
  }
  CUipcMemHandle handle{};
  REQUIRE(::read(handle_pipe[0], &handle, sizeof handle) == sizeof handle);

  const auto args = scale_args();
  Setup setup = setup_for(args);
  setup.data.resize(args.size());
  setup.data[1].kind = DataSource::Kind::ipc;
  setup.data[1].ipc_handle.assign(reinterpret_cast<const char*>(&handle), sizeof handle);
  setup.data[1].offset = 512;
  Worker worker;
  const int64_t before = driver.allocated_bytes();
  const SetupReply ready = worker.setup(setup);
  REQUIRE_MESSAGE(ready.ok, ready.error);
  CHECK(driver.allocated_bytes() - before < ready.buffer_bytes + 4096);  // no mapping of 16,896 bytes is left
  REQUIRE(worker.reference(candidate("scale", args)).status == TrialStatus::ok);
  CHECK(expected_value(worker, args) == "16");

  setup.data[1].offset = 1024;
  CHECK(worker.setup(setup).error.find("the caller's allocation has 16896 bytes, 17408 are needed") !=
        std::string::npos);
  setup.data[1].ipc_handle = "short";
  CHECK(worker.setup(setup).error.find("5 bytes, not 64") != std::string::npos);
  REQUIRE(::write(done_pipe[1], "x", 1) == 1);
  int status = 0;
  REQUIRE(::waitpid(owner, &status, 0) == owner);
  CHECK(WEXITSTATUS(status) == 0);
  for (const int fd : {handle_pipe[0], handle_pipe[1], done_pipe[0], done_pipe[1]}) ::close(fd);
}

TEST_CASE("a second setup frees what the first one made, and the end frees all") {
  const auto& driver = fake();
  const int64_t before = driver.allocated_bytes();
  const int64_t modules = driver.modules();
  {
    Worker worker;
    REQUIRE(worker.setup(setup_for(scale_args(1 << 20))).ok);
    const int64_t large = driver.allocated_bytes();
    CHECK(large - before > 3 << 22);
    std::vector<space::ArgSpec> args{floats(ArgKind::inout, "x", 1000), floats(ArgKind::scratch, "scratch", 5000),
                                     scalar(1000)};
    REQUIRE(worker.setup(setup_for(args)).ok);
    CHECK(driver.allocated_bytes() < before + (4 << 20));
    args[1].pass = false;
    REQUIRE(worker.reference(candidate("increment", args)).status == TrialStatus::ok);
    for (int i = 0; i < 5; ++i) {
      const int64_t held = driver.allocated_bytes();
      REQUIRE(worker.setup(setup_for(args)).ok);
      CHECK(driver.allocated_bytes() <= held);
      REQUIRE(worker.reference(candidate("increment", args)).status == TrialStatus::ok);
    }
  }
  CHECK(driver.allocated_bytes() == before);
  CHECK(driver.modules() == modules);
}

TEST_CASE("too little memory is the study's outcome, with the numbers") {
  const auto& driver = fake(R"({"devices": [{"memory_bytes": 67108864}]})");
  Worker worker;
  const int64_t free_bytes = 67108864 - driver.allocated_bytes();
  const SetupReply much = worker.setup(setup_for(scale_args(16 << 20)));
  CHECK_FALSE(much.ok);
  CHECK(much.out_of_memory);
  CHECK(much.error.find("measuring needs " + std::to_string(much.buffer_bytes) + " bytes of GPU memory") == 0);
  CHECK(much.error.find(std::to_string(free_bytes) + " are free and " + std::to_string(free_bytes * 9 / 10) +
                        " may be used") != std::string::npos);
  CHECK(worker.setup(setup_for(scale_args())).ok);

  Setup limited = setup_for(scale_args(1 << 20));
  limited.memory_limit_bytes = 1 << 20;
  CHECK(worker.setup(limited).out_of_memory);
  limited.memory_limit_bytes = int64_t{1} << 40;  // more than there is: the driver's refusal says so
  limited.args = scale_args(6 << 20);
  const SetupReply refused = worker.setup(limited);
  CHECK(refused.out_of_memory);
  CHECK(refused.error.find("CUDA_ERROR_OUT_OF_MEMORY") != std::string::npos);
}

TEST_CASE("a setup names what is wrong with it") {
  fake();
  Worker worker;
  Setup setup = setup_for(scale_args());
  setup.device_uuid = "GPU-00000000-0000-0000-0000-000000000000";
  const std::string absent = worker.setup(setup).error;
  CHECK(absent.find("no GPU has the UUID GPU-00000000-0000-0000-0000-000000000000; this process sees " +
                    std::string(kUuid)) == 0);
  setup = setup_for(scale_args());
  setup.utility_cubin.clear();
  CHECK(worker.setup(setup).error == "the setup came without the worker's own kernels");
  setup.utility_cubin = fake_cuda::make_cubin({"jitune_fill"});
  CHECK(worker.setup(setup).error.find("jitune_compare: CUDA_ERROR_NOT_FOUND") == 0);
  setup.device_uuid = "MIG-fa4e0000-0000-4000-8000-000000000000";  // the digits count, not how they are introduced
  setup.utility_cubin = fake_cuda::utility_cubin();
  CHECK(worker.setup(setup).ok);
}

TEST_CASE("a GPU that others hold, or share through MPS, is refused with the reason") {
  for (const auto& [spec, words] : std::vector<std::pair<std::string, std::string>>{
           {R"({"devices": [{"mps": true}]})", "go through MPS"},
           {R"({"devices": [{"uuid": "GPU-fa4e0001-0000-4000-8000-000000000000"}, {"compute_mode": 3}]})",
            "exclusive compute mode"},
           {R"({"devices": [{"uuid": "GPU-fa4e0001-0000-4000-8000-000000000000"}, {"compute_mode": 2}]})",
            "prohibited compute mode"}}) {
    fake(spec);
    Worker worker;
    const SetupReply reply = worker.setup(setup_for(scale_args()));
    CHECK_FALSE(reply.ok);
    CHECK_FALSE(reply.out_of_memory);
    CHECK_MESSAGE(reply.error.find(words) != std::string::npos, reply.error);
  }
}
