#include "gpu_support.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "compile/nvrtc.hpp"
#include "measure/serve.hpp"
#include "support/support.hpp"
#include "wire/frame.hpp"

namespace jitune::test {
namespace {

constexpr const char* kServe = "JITUNE_TEST_SERVE";

/// Turns this program into a measuring worker when it was started as one, before any test runs.
const struct Entry {
  Entry() {
    int in = -1;
    int out = -1;
    if (const char* pipes = std::getenv(kServe); pipes != nullptr && std::sscanf(pipes, "%d %d", &in, &out) == 2)
      ::_exit(measure::serve(in, out));
  }
} kEntry;

/// NVRTC as a Tuner would find it; null when there is none.
struct Toolchain {
  std::unique_ptr<compile::Nvrtc> nvrtc;
  std::string path, why;
  std::vector<std::string> include_dirs;
};
const Toolchain& toolchain() {
  static const Toolchain found = [] {
    Toolchain toolchain;
    compile::NvrtcSearchOptions options;
    const auto environment = [](const char* name) {
      const char* value = std::getenv(name);
      return std::string(value == nullptr ? "" : value);
    };
    options.explicit_path = environment("JITUNE_NVRTC");
    options.cuda_home = environment("CUDA_HOME");
    options.cuda_path = environment("CUDA_PATH");
    const compile::NvrtcSearch search = compile::find_nvrtc(options);
    if (search.found.empty()) {
      toolchain.why = compile::explain_missing(search);
      return toolchain;
    }
    toolchain.path = search.found[0].path;
    toolchain.include_dirs = search.found[0].include_dirs;
    auto loaded = compile::Nvrtc::load(toolchain.path);
    if (loaded)
      toolchain.nvrtc = std::move(*loaded);
    else
      toolchain.why = loaded.error();
    return toolchain;
  }();
  return found;
}

}  // namespace

Bench bench() {
  Bench made;
  const auto driver = gpu::driver();
  if (!driver) {
    skip("gpu", driver.error());
    return made;
  }
  if (toolchain().nvrtc == nullptr) {
    skip("nvrtc", toolchain().why);
    return made;
  }
  const auto device = gpu::device_info(**driver, 0);
  REQUIRE(device);
  REQUIRE(gpu::use_primary_context(**driver, 0));
  made.device = *device;
  made.toolkit_dir = std::filesystem::path(toolchain().path).parent_path().string();
  made.driver = *driver;
  return made;
}

Compiled compile(const Bench& bench, const std::string& source, const std::string& entry) {
  static std::map<std::string, Compiled> known;
  Compiled& compiled = known[entry + "\n" + source];
  if (!compiled.cubin.empty()) return compiled;
  compile::Request request;
  request.spec.source_text = source;
  request.spec.source_name = "test.cu";
  request.spec.entry = entry;
  request.spec.is_template = entry.find('<') != std::string::npos;
  request.spec.arch = bench.device.arch();
  request.nvrtc_path = toolchain().path;
  request.toolkit_include_dirs = toolchain().include_dirs;
  const compile::Artifact artifact = toolchain().nvrtc->compile(request);
  REQUIRE_MESSAGE(artifact.status == compile::Status::ok, artifact.log);
  compiled = {artifact.cubin, artifact.lowered_name};
  return compiled;
}

GpuWorker::GpuWorker() {
  int request[2];
  int reply[2];
  REQUIRE(::pipe(request) == 0);
  REQUIRE(::pipe(reply) == 0);
  const std::string pipes = std::to_string(request[0]) + " " + std::to_string(reply[1]);
  const char* other = std::getenv("JITUNE_WORKER");  // memcheck_worker
  const std::string parent = std::to_string(::getpid());
  pid_ = ::fork();
  if (pid_ == 0) {
    ::close(request[1]);
    ::close(reply[0]);
    if (other != nullptr) {
      ::dup2(request[0], STDIN_FILENO);
      ::dup2(reply[1], STDOUT_FILENO);
      ::execl(other, other, "measure", parent.c_str(), nullptr);
      ::_exit(127);
    }
    ::setenv(kServe, pipes.c_str(), 1);
    ::execl("/proc/self/exe", "measuring-worker", nullptr);
    ::_exit(127);
  }
  ::close(request[0]);
  ::close(reply[1]);
  to_ = request[1];
  from_ = reply[0];
  ::fcntl(to_, F_SETFD, FD_CLOEXEC);
  ::fcntl(from_, F_SETFD, FD_CLOEXEC);
  const auto hello = wire::read_frame(from_);
  REQUIRE(hello);
  CHECK(wire::get_string(*hello, "hello") == "measure");
}

GpuWorker::~GpuWorker() {
  finish(true);
}

int GpuWorker::finish(bool kill_first) {
  if (pid_ < 0) return -1;
  if (kill_first) ::kill(pid_, SIGKILL);
  ::close(to_);
  int status = 0;
  ::waitpid(pid_, &status, 0);
  ::close(from_);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void GpuWorker::send(const Json& request) {
  REQUIRE(wire::write_frame(to_, {{"id", ++id_}, {"request", request}}));
}

Json GpuWorker::receive() {
  const auto answer = wire::read_frame(from_);
  REQUIRE(answer);
  REQUIRE(answer->is_object());
  return (*answer)["reply"];
}

measure::SetupReply GpuWorker::setup(const measure::Setup& setup) {
  send(to_json(setup));
  const auto reply = measure::setup_reply_from_json(receive());
  REQUIRE(reply);
  return *reply;
}

measure::TrialReply GpuWorker::trial(const measure::Candidate& candidate, double bound_us, bool reference) {
  send(to_json(measure::TrialRequest{candidate, reference, false, bound_us, measure::Policy{}.margins}));
  const auto reply = measure::trial_reply_from_json(receive());
  REQUIRE(reply);
  return *reply;
}

measure::RematchReply GpuWorker::rematch(std::vector<measure::Candidate> candidates) {
  send(to_json(measure::RematchRequest{std::move(candidates)}));
  const auto reply = measure::rematch_reply_from_json(receive());
  REQUIRE(reply);
  return *reply;
}

}  // namespace jitune::test
