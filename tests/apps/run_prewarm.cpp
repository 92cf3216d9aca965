#include "run_prewarm.hpp"

#include <unistd.h>

#include <cstdlib>

#include "base/files.hpp"
#include "compile/nvrtc.hpp"

namespace jitune::test {

ProgramResult prewarm(const std::string& home, const std::string& arguments, const std::string& prefix, int limit_s) {
  std::string tracer, variables = prefix;
  if (const auto at = prefix.find("strace"); at != std::string::npos) {
    variables = prefix.substr(0, at);
    tracer = prefix.substr(at) + " ";
  }
  return run_program("cd '" + home +
                         "' && exec env -u JITUNE_DATABASE -u JITUNE_WORKER -u JITUNE_LOG -u JITUNE_COMPILE_WORKERS "
                         "-u JITUNE_TRACK HOME='" +
                         home + "' XDG_CACHE_HOME='" + home + "/cache' " + variables + " " + tracer +
                         JITUNE_PREWARM_PATH + " " + arguments,
                     limit_s);
}

bool has_nvrtc() {
  const auto from = [](const char* name) { return std::string(std::getenv(name) != nullptr ? std::getenv(name) : ""); };
  const compile::NvrtcSearch search =
      compile::find_nvrtc({from("JITUNE_NVRTC"), from("CUDA_HOME"), from("CUDA_PATH"), {}});
  if (search.found.empty()) skip("nvrtc", compile::explain_missing(search));
  return !search.found.empty();
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string query(const std::string& database, const std::string& query) {
  const ProgramResult result = run_program("sqlite3 '" + database + "' \"" + query + "\"");
  INFO(query);
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  return result.out.empty() ? "" : result.out.substr(0, result.out.size() - 1);
}

bool exists(const std::string& path) {
  return ::access(path.c_str(), F_OK) == 0;
}

std::string content(const std::string& path) {
  const Result<std::string> bytes = read_file(path);
  return bytes ? *bytes : "";
}

void write_scale_kernel(const std::string& home) {
  write_file(home + "/scale.cu", R"(#include <cstdint>
template <class T, int BLOCK, int VEC>
__global__ void scale(T* y, const T* x, int n) {
  int first = (blockIdx.x * BLOCK + threadIdx.x) * VEC;
  for (int i = 0; i < VEC; ++i)
    if (first + i < n) y[first + i] = x[first + i] + x[first + i] * T(UNROLL);
}
)");
  write_file(home + "/scale.toml", R"toml(format = 1
name = "scale"
source = "scale.cu"
entry = "scale<{T}, {BLOCK}, {VEC}>"
problem = ["T", "n"]
derived = { TILE = "BLOCK * VEC" }
require = ["n % VEC == 0", "TILE <= 1024", "sizeof(T) * VEC <= 16"]

[params]
BLOCK = [64, 128, 256, 512]
VEC = [1, 2, 3, 4, 8]
UNROLL = [1, 2]

[launch]
grid = ["ceil_div(n, TILE)"]
block = ["BLOCK"]

[[args]]
out = "y"
type = "T"
count = "n"
[[args]]
in = "x"
type = "T"
count = "n"
[[args]]
scalar = "n"
type = "int"
value = "n"

[[defaults]]
when = "n >= 4096"
config = { BLOCK = 128, VEC = 4, UNROLL = 1 }
[[defaults]]
config = { BLOCK = 64, VEC = 1, UNROLL = 1 }
)toml");
}

}  // namespace jitune::test
