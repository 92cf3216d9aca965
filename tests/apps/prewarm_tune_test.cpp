#include <algorithm>
#include <set>

#include "base/json.hpp"
#include "run_prewarm.hpp"

using namespace jitune;
using namespace jitune::test;

// Real compilers, a real measuring worker, a real database; the GPU is the stand-in of tests/fake_cuda.
namespace {

const std::string kUuid = "GPU-fa4e0000-0000-4000-8000-000000000000";

/// A kernel that the stand-in knows, with 3 x 3 configs less one.
void write_kernel(const std::string& home) {
  write_file(home + "/scale.cu",
             "template <int BLOCK, int ITEMS> __global__ void scale(float* y, const float* x, float a, int n) {\n"
             "  static_assert(BLOCK != 96, \"96 threads are not supported\");\n"
             "  for (int k = 0; k < ITEMS; ++k) {\n"
             "    int i = (blockIdx.x * ITEMS + k) * BLOCK + threadIdx.x;\n"
             "    if (i < n) y[i] = a * x[i];\n"
             "  }\n"
             "}\n");
  write_file(home + "/scale.toml", R"toml(format = 1
name = "scale"
source = "scale.cu"
entry = "scale<{BLOCK}, {ITEMS}>"
problem = ["n"]
require = ["BLOCK * ITEMS <= 512"]
[params]
BLOCK = [64, 128, 256]
ITEMS = [1, 2, 4]
[launch]
grid = ["ceil_div(n, BLOCK * ITEMS)"]
block = ["BLOCK"]
[[args]]
out = "y"
type = "float"
count = "n"
[[args]]
in = "x"
type = "float"
count = "n"
[[args]]
scalar = "a"
type = "float"
value = 2.0
[[args]]
scalar = "n"
type = "int"
value = "n"
[[defaults]]
config = { BLOCK = 64, ITEMS = 1 }
)toml");
}

/// The stand-in with these rules for times, in front of the machine's own driver.
std::string fake_gpu(const std::string& home, const std::string& rules, const std::string& devices = "") {
  write_file(home + "/gpu.json", "{" + devices + "\"kernels\": [" + rules + "]}");
  return "LD_LIBRARY_PATH=" JITUNE_BINARY_DIR "/tests/fake_cuda:$LD_LIBRARY_PATH JITUNE_FAKE_CUDA=@" + home +
         "/gpu.json";
}

const std::string kTimes = R"({"match": "scale<128, 2>", "time_us": 50, "spread": 0, "noise": 0},)"
                           R"({"match": "scale<", "time_us": 100, "spread": 0, "noise": 0})";
const std::string kTune = "tune scale.toml --problem n=4096 --database x.db --compile-workers 2";

}  // namespace

TEST_CASE("tune finds the fastest config and stores it, and the next run finds it stored") {
  if (!has_nvrtc()) return;
  TempDir home;
  write_kernel(home.path());
  const std::string gpu = fake_gpu(home.path(), kTimes);
  const ProgramResult first = prewarm(home.path(), kTune, gpu);
  INFO(first.out);
  INFO(first.err);
  CHECK(first.exit_code == 0);
  CHECK(contains(first.out, "on Fake H200 (sm_90)"));
  CHECK(contains(first.out, "winner   BLOCK=128 ITEMS=2   50.0"));
  CHECK(contains(first.out, "default  BLOCK=64 ITEMS=1   100.0"));
  CHECK(contains(first.out, "8 trials: "));
  CHECK(contains(first.out, "2.00x"));

  const ProgramResult second = prewarm(home.path(), kTune + " --json", gpu);
  INFO(second.err);
  CHECK(second.exit_code == 0);
  const Json result = Json::parse(second.out).at("results").at(0);
  CHECK(result.at("outcome") == "answered");
  CHECK(result.at("compilations") == 0);
  CHECK(result.at("trials").at("total") == 0);
  CHECK(result.at("winner").at("config") == Json{{"BLOCK", 128}, {"ITEMS", 2}});
  CHECK(result.at("winner").at("median_us").get<double>() == doctest::Approx(50).epsilon(0.05));
  CHECK(result.at("default_config") == Json{{"BLOCK", 64}, {"ITEMS", 1}});

  const ProgramResult list = prewarm(home.path(), "list --json --database x.db");
  const Json key = Json::parse(list.out).at("keys").at(0);
  CHECK(key.at("key") == result.at("key"));
  CHECK(key.at("trials") == 8);
  CHECK(key.at("device") == "Fake H200");
  CHECK(key.at("fields").at("problem") == Json{{"n", 4096}});
  const std::string prefix = result.at("key").get<std::string>().substr(0, 6);
  const ProgramResult show = prewarm(home.path(), "show --database x.db " + prefix);
  INFO(show.out);
  CHECK(show.exit_code == 0);
  CHECK(contains(show.out, "winner  BLOCK=128 ITEMS=2"));
  CHECK(contains(show.out, "8 trials on Fake H200"));
  CHECK(contains(show.out, "registers"));
  CHECK(contains(show.out, "samples by stream"));
  CHECK(contains(show.out, "of kernel time; the GPU's speed changed by"));
  CHECK(contains(show.out, "1980 MHz"));
  CHECK(contains(show.out, "agreed"));
  const Json trials = Json::parse(prewarm(home.path(), "show --json --database x.db " + prefix).out).at("trials");
  REQUIRE(trials.size() == 8);
  CHECK(trials.at(0).at("stop") == "agreed");
  CHECK(trials.at(0).at("occupancy").get<double>() > 0);
  const Json study = Json::parse(prewarm(home.path(), "show --json --database x.db " + prefix).out).at("study");
  CHECK(study.at("outcome") == "won");
  CHECK(study.at("saved_ms").get<double>() >= 0);
  CHECK(study.at("run_ms").get<double>() > 0);
  const ProgramResult dump = prewarm(home.path(), "dump --database x.db --output out " + prefix);
  INFO(dump.out);
  CHECK(dump.exit_code == 0);
  CHECK(content(home / "out/kernel.cu") == content(home / "scale.cu"));
  CHECK(content(home / "out/winner.cubin").substr(1, 3) == "ELF");
  CHECK(contains(dump.out, "--kernel-name scale --launch-count 1"));
  CHECK(trials.at(0).at("config") == Json{{"BLOCK", 128}, {"ITEMS", 2}});
  CHECK(trials.at(0).at("registers").get<int>() > 0);
  CHECK(contains(prewarm(home.path(), "list --database x.db").out, "BLOCK=128 ITEMS=2"));
  CHECK(contains(prewarm(home.path(), "list --kernel other --database x.db").out,
                 "nothing is tuned yet of kernel 'other'"));
}

TEST_CASE("the policy of measuring is part of the key") {
  if (!has_nvrtc()) return;
  TempDir home;
  write_kernel(home.path());
  const std::string gpu = fake_gpu(home.path(), kTimes);
  std::set<std::string> keys;
  for (const std::string option : {"", " --l2 hot", " --method graph", " --skip-check", " --fixed-time 1ms"}) {
    const ProgramResult result = prewarm(home.path(), kTune + " --json" + option, gpu);
    INFO(result.err);
    CHECK(result.exit_code == 0);
    const Json tuned = Json::parse(result.out).at("results").at(0);
    CHECK(tuned.at("outcome") == "won");
    keys.insert(tuned.at("key").get<std::string>());
  }
  CHECK(keys.size() == 5);
  const ProgramResult same = prewarm(home.path(), kTune + " --json", gpu + " JITUNE_MEASURE=hot");
  CHECK(Json::parse(same.out).at("results").at(0).at("outcome") == "answered");
  CHECK(contains(prewarm(home.path(), "list --json --database x.db").out, "unchecked"));
}

TEST_CASE("a config that writes astray and one that does not compile cost only themselves") {
  if (!has_nvrtc()) return;
  TempDir home;
  write_kernel(home.path());
  std::string toml = content(home / "scale.toml");
  toml.replace(toml.find("[64, 128, 256]"), 14, "[64, 96, 128, 256]");
  write_file(home / "scale.toml", toml);
  const std::string gpu =
      fake_gpu(home.path(), R"({"match": "scale<256, 1>", "time_us": 10, "fault": "illegal_address"},)" + kTimes);
  const ProgramResult result = prewarm(home.path(), kTune + " --json", gpu);
  INFO(result.out);
  INFO(result.err);
  CHECK(result.exit_code == 0);
  const Json tuned = Json::parse(result.out).at("results").at(0);
  CHECK(tuned.at("outcome") == "won");
  CHECK(tuned.at("trials").at("total") == 11);
  CHECK(tuned.at("trials").at("failed") == 4);  // BLOCK = 96 with three ITEMS, and the one that writes astray
  CHECK(tuned.at("winner").at("config") == Json{{"BLOCK", 128}, {"ITEMS", 2}});
  CHECK(query(home / "x.db",
              "select status, count(*) from trials group by 1 having status not in ('ok', 'early_stopped') "
              "order by 1") == "compile_error|3\nrun_crash|1");
}

TEST_CASE("no config works") {
  if (!has_nvrtc()) return;
  TempDir home;
  write_kernel(home.path());
  write_file(home / "scale.cu",
             "template <int B, int I> __global__ void scale(float* y, const float*, float, int) { y[0] = z; }\n");
  const ProgramResult result = prewarm(home.path(), kTune, fake_gpu(home.path(), kTimes));
  INFO(result.out);
  INFO(result.err);
  CHECK(result.exit_code == 6);
  CHECK(contains(result.out, "no config works"));
}

TEST_CASE("--device with several GPUs, or all, spreads a study over those of one class and refuses others") {
  if (!has_nvrtc()) return;
  TempDir home;
  write_kernel(home.path());
  const std::string second = "GPU-fb4e0000-0000-4000-8000-000000000001";
  const std::string gpu =
      fake_gpu(home.path(), kTimes,
               R"("devices": [{"name": "Fake A", "uuid": ")" + kUuid + R"("}, {"name": "Fake A", "uuid": ")" + second +
                   R"("}, {"name": "Fake C", "uuid": "GPU-fc4e0000-0000-4000-8000-000000000002", "sm_count": 78}],)");
  for (const std::string which : {"0,1", "all"}) {
    CAPTURE(which);
    const ProgramResult tuned = prewarm(home.path(), kTune + " --force --json --device " + which, gpu);
    INFO(tuned.err);
    REQUIRE(tuned.exit_code == 0);
    const Json result = Json::parse(tuned.out).at("results").at(0);
    CHECK(result.at("outcome") == "won");
    CHECK(result.at("devices") >= 1);  // the second one may come too late for so small a space
    CHECK(result.at("winner").at("config") == Json{{"BLOCK", 128}, {"ITEMS", 2}});
    CHECK(contains(tuned.err, "Fake C") == (which == "all"));
  }
  const ProgramResult refused = prewarm(home.path(), kTune + " --device 0,2", gpu);
  CHECK(refused.exit_code == 2);
  CHECK(contains(refused.err, "is not of the class of"));
  CHECK(contains(refused.err, "sm_count: 132 / 78"));
  const ProgramResult twice = prewarm(home.path(), kTune + " --device 1," + second, gpu);
  CHECK(twice.exit_code == 2);
  CHECK(contains(twice.err, "is named twice"));
}

TEST_CASE("--device takes an index or a UUID, and names the GPUs there are") {
  TempDir home;
  write_kernel(home.path());
  const std::string gpu = fake_gpu(home.path(), kTimes,
                                   R"("devices": [{"name": "Fake A", "uuid": ")" + kUuid + R"(", "sm_count": 100},)" +
                                       R"({"name": "Fake B", "uuid": "GPU-fb4e0000-0000-4000-8000-000000000001"}],)");
  const auto device = [&](const std::string& which) {
    return prewarm(home.path(), "space scale.toml --problem n=4096 --device " + which, gpu);
  };
  CHECK(contains(device("0").out, "on Fake A"));
  CHECK(contains(device("1").out, "on Fake B"));
  CHECK(contains(device(kUuid).out, "on Fake A"));
  for (const std::string which : {"2", "GPU-0000", "-1", "1x"}) {
    CAPTURE(which);
    const ProgramResult refused = prewarm(home.path(), kTune + " --device=" + which, gpu);
    CHECK(refused.exit_code == 2);
    CHECK(contains(refused.err, "--device " + which + ": there is no such GPU"));
    CHECK(contains(refused.err, "Fake B"));
  }
  CHECK_FALSE(exists(home / "x.db"));
  const ProgramResult doctor = prewarm(home.path(), "doctor --json", gpu);
  CHECK(Json::parse(doctor.out).at("gpus").size() == 2);
}

TEST_CASE("a killed tune goes on with no trial repeated, and a value more costs only its own configs") {
  if (!has_nvrtc()) return;
  TempDir home;
  write_kernel(home.path());
  // A launch takes its time, so that there is some to be killed in; no two configs are alike.
  const std::string gpu = fake_gpu(
      home.path(),
      R"({"match": "scale<", "time_us": 20000, "spread": 0, "noise": 0, "factors": [{"64": 2, "128": 1, "256": 1.5},
          {"1": 1.4, "2": 1, "4": 1.2}]})",
      "\"real_time\": true, ");
  const ProgramResult killed = run_program(
      "cd '" + home.path() + "' && { env -u JITUNE_DATABASE HOME='" + home.path() + "' " + gpu + " " +
      JITUNE_PREWARM_PATH + " " + kTune +
      " > /dev/null 2>&1 & } ; program=$!; for i in $(seq 1 1000); do "
      "n=$(sqlite3 x.db 'select count(*) from trials' 2>/dev/null); [ \"${n:-0}\" -ge 3 ] && break; sleep 0.02; done; "
      "kill -KILL $program; wait $program; echo $?");
  CHECK(contains(killed.out, "137"));
  const std::string before = query(home / "x.db", "select count(*) from trials");
  CHECK(std::stoi(before) >= 3);
  CHECK(std::stoi(before) < 8);
  const ProgramResult rest = prewarm(home.path(), kTune, gpu);
  INFO(rest.out);
  CHECK(rest.exit_code == 0);
  CHECK(contains(rest.out, "winner   BLOCK=128 ITEMS=2"));
  CHECK(query(home / "x.db", "select count(distinct config_id) from trials") == "8");
  // Twice: the reference that every study times, and who may still win.
  const std::string repeated =
      "select distinct c.params from trials t join configs c using (config_id) join trials e on e.config_id = "
      "t.config_id and e.study_id < t.study_id where c.params not in ('{\\\"BLOCK\\\":64,\\\"ITEMS\\\":1}', "
      "'{\\\"BLOCK\\\":128,\\\"ITEMS\\\":2}')";
  CHECK(query(home / "x.db", repeated) == "");

  CHECK(contains(prewarm(home.path(), kTune, gpu).out, "tuned already"));
  std::string toml = content(home / "scale.toml");
  toml.replace(toml.find("[64, 128, 256]"), 14, "[32, 64, 128, 256]");
  write_file(home / "scale.toml", toml);
  const ProgramResult more = prewarm(home.path(), kTune, gpu);
  INFO(more.out);
  CHECK(contains(more.out, "winner   BLOCK=128 ITEMS=2"));
  CHECK(query(home / "x.db", "select count(distinct config_id) from trials") == "11");
  CHECK(query(home / "x.db", repeated) == "");
  CHECK(contains(prewarm(home.path(), kTune, gpu).out, "tuned already"));
}

TEST_CASE("a kernel that does not compile shows the compiler's first error with its place") {
  if (!has_nvrtc()) return;
  TempDir home;
  write_kernel(home.path());
  write_file(home / "scale.cu",
             "template <int BLOCK, int ITEMS>\n__global__ void scale(float* y, const float* x, float a, int n) {\n"
             "  y[0] = missing_name;\n}\n");
  const ProgramResult text = prewarm(home.path(), kTune, fake_gpu(home.path(), kTimes));
  INFO(text.out);
  CHECK(text.exit_code == 6);
  CHECK(contains(text.out, "8 failed (compile_error): "));
  CHECK(contains(text.out, "scale.cu(3): error: identifier \"missing_name\" is undefined"));
  CHECK(contains(text.out, "for example BLOCK="));
  const ProgramResult json = prewarm(home.path(), kTune + " --json", fake_gpu(home.path(), kTimes));
  const Json failure = Json::parse(json.out).at("results").at(0).at("failures").at(0);
  CHECK(failure.at("status") == "compile_error");
  CHECK(contains(failure.at("message"), "scale.cu(3): error"));
}
