#include <algorithm>
#include <set>

#include "base/json.hpp"
#include "run_prewarm.hpp"

using namespace jitune;
using namespace jitune::test;

namespace {

/// A kernel with few configs. BLOCK = 96 does not compile, as its author meant it to.
void write_small_kernel(const std::string& home) {
  write_file(home + "/small.cu", R"(#include <cstdint>
template <class T, int BLOCK, int VEC>
__global__ void small(T* y, const T* x, int n) {
  static_assert(BLOCK != 96, "96 threads are not supported");
  int first = (blockIdx.x * BLOCK + threadIdx.x) * VEC;
  for (int i = 0; i < VEC; ++i)
    if (first + i < n) y[first + i] = x[first + i] + T(1);
}
)");
  write_file(home + "/small.toml", R"toml(format = 1
name = "small"
source = "small.cu"
entry = "small<{T}, {BLOCK}, {VEC}>"
problem = ["T", "n"]
require = ["BLOCK * VEC <= 256", "n % VEC == 0"]
[params]
BLOCK = [64, 96, 128]
VEC = [1, 2, 4]
[launch]
grid = ["ceil_div(n, BLOCK * VEC)"]
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
config = { BLOCK = 64, VEC = 1 }
)toml");
}

struct Walked {
  int good = 0, bad = 0;
};

Walked walk(int n) {
  Walked walked;
  for (const int block : {64, 96, 128})
    for (const int vec : {1, 2, 4})
      if (block * vec <= 256 && n % vec == 0) ++(block == 96 ? walked.bad : walked.good);
  return walked;
}

const std::string kCompile =
    "compile small.toml --arch sm_90 --problem T=float,n=4096 --database x.db --compile-workers 2";

}  // namespace

TEST_CASE("compile stores one artifact a config, and the second time does nothing") {
  if (!has_nvrtc()) return;
  TempDir home;
  write_small_kernel(home.path());
  const Walked walked = walk(4096);
  const ProgramResult first = prewarm(home.path(), kCompile, kNoGpu);
  INFO(first.out);
  INFO(first.err);
  CHECK(first.exit_code == 1);  // some configs do not compile
  CHECK(contains(first.out, std::to_string(walked.good + walked.bad) + " configs: "));
  CHECK(contains(first.out, std::to_string(walked.bad) + " failed (error): "));
  CHECK(contains(first.out, "96 threads are not supported"));
  CHECK(contains(first.out, "for example BLOCK=96"));
  CHECK(contains(first.out, "2 workers started"));
  CHECK(query(home / "x.db", "select count(*) from artifacts where status='ok'") == std::to_string(walked.good));
  CHECK(query(home / "x.db", "select count(*) from trials") == "0");

  const ProgramResult second = prewarm(home.path(), kCompile + " --json", kNoGpu);
  INFO(second.err);
  const Json result = Json::parse(second.out).at("results").at(0);
  CHECK(second.exit_code == 1);
  CHECK(result.at("compiled") == 0);
  CHECK(result.at("from_store") == walked.good + walked.bad);
  CHECK(result.at("failed") == walked.bad);
  CHECK(result.at("workers_started") == 0);
  CHECK(result.at("failures").at(0).at("count") == walked.bad);
}

TEST_CASE("every cubin is a CUDA ELF that holds its symbol") {
  if (!has_nvrtc()) return;
  TempDir home;
  write_small_kernel(home.path());
  REQUIRE(prewarm(home.path(), kCompile, kNoGpu).exit_code == 1);
  const std::string rows =
      query(home / "x.db",
            "select a.lowered_name || ' ' || c.cubin_sha256 || ' ' || writefile('" + home.path() +
                "/' || a.lowered_name || '.cubin', c.cubin) from artifacts a join cubins c using (cubin_sha256)");
  std::set<std::string> names;
  for (size_t begin = 0; begin < rows.size();) {
    const size_t end = std::min(rows.find('\n', begin), rows.size());
    const std::string line = rows.substr(begin, end - begin);
    begin = end + 1;
    const std::string name = line.substr(0, line.find(' '));
    CAPTURE(name);
    names.insert(name);
    const std::string file = home / (name + ".cubin");
    const ProgramResult elf = run_program("readelf -hsW '" + file + "'");
    CHECK(elf.exit_code == 0);
    CHECK((contains(elf.out, "CUDA") || contains(elf.out, "<unknown>: 0xbe")));
    CHECK(contains(elf.out, " " + name + "\n"));
    CHECK(contains(line, run_program("sha256sum '" + file + "'").out.substr(0, 64)));
  }
  CHECK(static_cast<int>(names.size()) == walk(4096).good);
}

TEST_CASE("a second run with nothing to do starts no process") {
  if (!has_nvrtc()) return;
  if (run_program("strace -f -o /dev/null true").exit_code != 0) {
    MESSAGE("strace can't trace here");
    return;
  }
  TempDir home;
  write_small_kernel(home.path());
  const std::string command =
      "compile small.toml --arch sm_90 --problem T=float,n=4096 --database x.db --defaults-only";
  const auto traced = [&](const std::string& file) {
    const ProgramResult result = prewarm(home.path(), command,
                                         "ASAN_OPTIONS=detect_leaks=0 " + kNoGpu +
                                             " strace -f -e trace=execve,fork,vfork,clone,clone3 -o " + (home / file));
    INFO(result.err);
    CHECK(result.exit_code == 0);
    return result.out;
  };
  CHECK(contains(traced("first"), "1 config: 1 compiled"));
  CHECK(contains(content(home / "first"), "jitune-worker"));
  CHECK(contains(traced("second"), "nothing to do: the artifact is in the database"));
  const std::string calls = content(home / "second");
  INFO(calls);
  CHECK_FALSE(contains(calls, "jitune-worker"));
  CHECK_FALSE(contains(calls, "fork("));
  for (size_t at = calls.find("clone"); at != std::string::npos; at = calls.find("clone", at + 1))
    CHECK(contains(calls.substr(at, calls.find('\n', at) - at), "CLONE_THREAD"));  // threads are no processes
  CHECK(calls.find("execve(") == calls.rfind("execve("));
}

TEST_CASE("a source that compiles in no config") {
  if (!has_nvrtc()) return;
  TempDir home;
  write_small_kernel(home.path());
  write_file(home / "small.cu",
             "template <class T, int B, int V> __global__ void small(T* y, const T* x, int n) { y[0] = z; }\n");
  const ProgramResult result = prewarm(home.path(), kCompile, kNoGpu);
  INFO(result.out);
  CHECK(result.exit_code == 6);
  const Walked walked = walk(4096);
  CHECK(contains(result.out, std::to_string(walked.good + walked.bad) + " failed (error): "));
  CHECK(contains(result.out, "identifier \"z\" is undefined"));
  CHECK(contains(result.out, "small.cu(1)"));
  CHECK(query(home / "x.db", "select count(*) from artifacts where status='ok'") == "0");
}

TEST_CASE("^C ends the run, keeps what is compiled, and the next run goes on") {
  if (!has_nvrtc()) return;
  TempDir home;
  write_scale_kernel(home.path());
  // 32 configs on one worker take seconds; the interrupt comes as soon as one of them is stored.
  const std::string arguments =
      "compile scale.toml --arch sm_90 --problem T=half,n=4096 --database x.db --compile-workers 1";
  write_file(
      home / "interrupt.sh",
      "exec 3>&2 2>/dev/null\n" JITUNE_PREWARM_PATH " " + arguments +
          " >out 2>err & pid=$!\n"
          "for i in $(seq 600); do\n"
          "  [ \"$(sqlite3 -readonly x.db 'select count(*) from artifacts')\" -gt 0 ] && break; sleep 0.05\ndone\n"
          "kill -INT $pid; wait $pid; exit $?\n");
  const ProgramResult result = run_program("cd '" + home.path() + "' && bash interrupt.sh");
  INFO(content(home / "out"));
  INFO(content(home / "err"));
  CHECK(result.exit_code == 130);
  CHECK(contains(content(home / "out"), "interrupted"));
  const int kept = std::stoi(query(home / "x.db", "select count(*) from artifacts"));
  CHECK(kept > 0);
  const ProgramResult rest = prewarm(home.path(), arguments + " --json", kNoGpu);
  INFO(rest.err);
  CHECK(rest.exit_code == 0);
  const Json report = Json::parse(rest.out).at("results").at(0);
  CHECK(report.at("from_store").get<int>() >= kept);
  CHECK(report.at("compiled").get<int>() > 0);
  CHECK(report.at("configs") == report.at("compiled").get<int>() + report.at("from_store").get<int>());
}

TEST_CASE("several architectures in one call, with what each cost and what failed by cause") {
  if (!has_nvrtc()) return;
  TempDir home;
  write_small_kernel(home.path());
  const Walked walked = walk(4096);
  const std::string arguments =
      "compile small.toml --arch sm_80,sm_90 --problem T=float,n=4096 --database x.db --jobs 2";
  const ProgramResult first = prewarm(home.path(), arguments, kNoGpu);
  INFO(first.out);
  INFO(first.err);
  CHECK(contains(first.out, "for sm_80, sm_90 with NVRTC "));
  CHECK(contains(first.out, "sm_80  small T=float"));
  CHECK(contains(first.out, "sm_90  small T=float"));
  const std::string errors = std::to_string(2 * walked.bad) + " failed (" + std::to_string(2 * walked.bad) + " errors)";
  CHECK(contains(first.out, std::to_string(2 * (walked.good + walked.bad)) + " configs: "));
  CHECK(contains(first.out, errors));
  CHECK(contains(first.out, "times one compiler's pace"));
  CHECK(query(home / "x.db", "select count(distinct arch) from artifacts where status='ok'") == "2");
  // Kept until their keys are tuned.
  CHECK(query(home / "x.db", "select count(*) from ahead") == std::to_string(2 * walked.good));
  const ProgramResult second = prewarm(home.path(), arguments + " --json --arch sm_80", kNoGpu);
  INFO(second.err);
  const Json report = Json::parse(second.out);
  CHECK(report.at("results").size() == 2);  // an arch named twice is compiled for once
  for (const Json& result : report.at("results")) {
    CHECK(result.at("compiled") == 0);
    CHECK(result.at("errors") == walked.bad);
  }
  const ProgramResult space = prewarm(home.path(), "space small.toml --arch sm_80,sm_90 --problem T=float,n=4096");
  CHECK(space.exit_code != 0);
}

TEST_CASE("doctor says which NVRTC is used and why") {
  if (!has_nvrtc()) return;
  TempDir home;
  const Json report = Json::parse(prewarm(home.path(), "doctor --json", kNoGpu).out);
  int used = 0;
  for (const Json& one : report.at("nvrtc").at("found")) {
    used += one.at("used").get<bool>() ? 1 : 0;
    CHECK_FALSE(one.at("reason").get<std::string>().empty());
  }
  CHECK(used == 1);
}

TEST_CASE("a terminal gets a bar, a pipe gets none") {
  if (!has_nvrtc()) return;
  if (run_program("command -v script").exit_code != 0) {
    MESSAGE("there is no script(1) to play a terminal");
    return;
  }
  TempDir home;
  write_small_kernel(home.path());
  const ProgramResult piped = prewarm(home.path(), kCompile, kNoGpu);
  CHECK_FALSE(contains(piped.err, "\r"));
  CHECK_FALSE(contains(piped.out, "["));
  write_file(home / "run.sh",
             "cd '" + home.path() + "' && rm -f x.db* && TERM=xterm " JITUNE_PREWARM_PATH " " + kCompile + "\n");
  const ProgramResult terminal = run_program("script -qec 'sh " + (home / "run.sh") + "' /dev/null");
  CHECK(contains(terminal.out, "\r"));
  CHECK(contains(terminal.out, "configs"));
  CHECK(contains(terminal.out, "[#"));
}
