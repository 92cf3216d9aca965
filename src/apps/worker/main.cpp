// jitune-worker: the process that compiles or measures for a host. It is started by jitune's pool, not by people.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/worker_start.hpp"
#include "compile/serve.hpp"
#ifdef JITUNE_WORKER_MEASURES
#include "measure/serve.hpp"
#endif

namespace {

int usage() {
  std::fputs(
      "usage: jitune-worker compile [--nvrtc=PATH] PARENT_PID\n"
      "       jitune-worker measure [--device=UUID] PARENT_PID\n"
      "       jitune-worker --version\n"
      "jitune starts this program by itself; it talks in frames over its standard input and output.\n",
      stderr);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--version") == 0) {
    std::puts("jitune-worker " JITUNE_VERSION);
    return 0;
  }
  if (argc < 3) return usage();
  const std::string kind = argv[1];
  if (kind == "compile") jitune::fix_addresses(argv);
  std::string nvrtc_path, device;
  for (int i = 2; i + 1 < argc; ++i) {
    const std::string option = argv[i];
    if (option.starts_with("--nvrtc="))
      nvrtc_path = option.substr(std::strlen("--nvrtc="));
    else if (option.starts_with("--device="))
      device = option.substr(std::strlen("--device="));
    else
      return usage();
  }
  const auto pipes = jitune::start_worker(std::atoi(argv[argc - 1]));
  if (!pipes) {
    std::fprintf(stderr, "jitune-worker: %s\n", pipes.error().c_str());
    return 1;
  }
  if (kind == "compile") return jitune::compile::serve(pipes->in, pipes->out, nvrtc_path);
#ifdef JITUNE_WORKER_MEASURES
  // Where an MPS daemon runs, a process that finds no pipe of it gets a context of its own.
  if (kind == "measure") ::setenv("CUDA_MPS_PIPE_DIRECTORY", "/dev/null", 1);
  if (kind == "measure") return jitune::measure::serve(pipes->in, pipes->out, device);
#endif
  return usage();
}
