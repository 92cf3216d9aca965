#include <optional>

#include "key/key.hpp"
#include "runtime/fixture.hpp"
#include "space/definition_json.hpp"
#include "space/instance.hpp"
#include "store/store.hpp"

using namespace jitune;
using test::FakeGpu;
using test::quiet_options;

namespace {

constexpr int kCount = 4096;
constexpr const char* kSpec =
    R"({"kernels": [{"match": "increment<", "time_us": 100, "spread": 0, "noise": 0, "factors": [{"128": 0.5}]}]})";

using Increment = Kernel<void(float*, int)>;

KernelDefinition increment(const std::string& source_file) {
  return {.name = "increment",
          .source_file = source_file,
          .entry = "increment<{BLOCK}>",
          .problem = {"n"},
          .params = {{"BLOCK", {64, 128, 256}}},
          .launch = {.grid = {"ceil_div(n, BLOCK)"}, .block = {"BLOCK"}},
          .args = {inout("x", "float", "n"), scalar("n", "int", "n")},
          .defaults = {{.config = {{"BLOCK", "64"}}}}};
}

void write_source(const std::string& home) {
  test::write_file(home + "/add_one.cuh", "__device__ float add_one(float x) { return x + 1; }\n");
  test::write_file(home + "/increment.cu",
                   "#include \"add_one.cuh\"\n"
                   "template <int BLOCK> __global__ void increment(float* x, int n) "
                   "{ int i = blockIdx.x * BLOCK + threadIdx.x; if (i < n) x[i] = add_one(x[i]); }\n");
}

std::vector<store::MissRow> misses_in(const std::string& path) {
  auto store = store::Store::open({.path = path, .create = false, .read_only = true, .must_be_file = true});
  REQUIRE_MESSAGE(store.ok(), store.error());
  auto rows = (*store)->misses();
  REQUIRE(rows.ok());
  return *rows;
}

}  // namespace

TEST_CASE("misses are counted by problem and tuned by jit-prewarm from what the launches left") {
  if (!test::have_nvrtc()) return;
  const test::TempDir dir;
  FakeGpu gpu(kSpec);
  write_source(dir.path());
  float* x = gpu.buffer(kCount, 0);
  {
    Tuner tuner(quiet_options(Track::lookup, dir / "a.db"));
    Increment kernel(tuner, increment(dir / "increment.cu"));
    for (int i = 0; i < 5; ++i) kernel.launch(nullptr, kernel.problem({{"n", 1000}}), x, 1000);
    kernel.launch(nullptr, kernel.problem({{"n", kCount}}), x, kCount);
    kernel.prepare(kernel.problem({{"n", 7}}));
  }
  const auto rows = misses_in(dir / "a.db");
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].problem == R"({"n":1000})");
  CHECK(rows[0].count == 5);
  CHECK(rows[1].problem == R"({"n":4096})");
  CHECK(rows[1].count == 1);
  CHECK(rows[2].count == 0);  // prepared, never launched
  CHECK(rows[0].definition_sha256.size() == 64);

  // The application's own source file is not needed any more.
  REQUIRE(std::rename((dir / "increment.cu").c_str(), (dir / "elsewhere.cu").c_str()) == 0);
  const auto tuned = test::run_program(std::string(JITUNE_BINARY_DIR) + "/bin/jit-prewarm tune --from-misses --json " +
                                       "--compile-workers 2 --database " + (dir / "a.db"));
  INFO(tuned.out);
  INFO(tuned.err);
  CHECK(tuned.exit_code == 0);
  CHECK(misses_in(dir / "a.db").empty());
  REQUIRE(std::rename((dir / "elsewhere.cu").c_str(), (dir / "increment.cu").c_str()) == 0);

  Tuner tuner(quiet_options(Track::lookup, dir / "a.db"));
  Increment kernel(tuner, increment(dir / "increment.cu"));
  kernel.launch(nullptr, kernel.problem({{"n", 1000}}), x, 1000);
  CHECK(kernel.choice(kernel.problem({{"n", 1000}})).config == R"({"BLOCK":128})");
  CHECK(tuner.statistics().hits == 1);
  CHECK(tuner.statistics().compilations == 0);
  CHECK(tuner.statistics().stalls == 1);
  CHECK(tuner.statistics().stall_ms > 0);

  const auto again = test::run_program(std::string(JITUNE_BINARY_DIR) +
                                       "/bin/jit-prewarm tune --from-misses --database " + (dir / "a.db"));
  CHECK(again.exit_code == 0);
  CHECK(again.err.find("there are no misses of Fake H200") != std::string::npos);
}

TEST_CASE("a definition survives being written and read, and has the key that it had") {
  for (const std::string file : {"rmsnorm", "gemm", "fused_add_rmsnorm", "reduce_sum", "softmax", "transpose"}) {
    CAPTURE(file);
    const auto original = space::Model::make(load(std::string(JITUNE_SOURCE_DIR) + "/kernels_src/" + file + ".toml"));
    const std::string text = space::definition_text(space::self_contained(*original));
    auto read = space::parse_definition(text);
    REQUIRE_MESSAGE(read.ok(), read.error());
    CHECK(space::definition_text(*read) == text);
    const auto again = space::Model::make(std::move(*read));
    CHECK(again->forms().size() == original->forms().size());
    space::ProblemValues problem;
    for (const auto& value : original->problem())
      problem[value.name] = value.name == "T" || value.name == "TA" ? Value("half") : Value(256);
    const auto device = space::nominal_device("sm_90");
    auto key_of = [&](const std::shared_ptr<const space::Model>& model) -> std::string {
      auto instance = space::Instance::bind(model, problem, *device);
      if (!instance) return instance.error();
      const auto pattern = instance->build_pattern();
      auto source = key::hash_source(pattern.source_text, pattern.source_directory, pattern.include_dirs);
      if (!source) return source.error();
      return key::make_tuning_key(*instance, *source, "13.0.0", "policy").sha256;
    };
    CHECK(key_of(again) == key_of(original));
  }
  for (const std::string wrong : {"", "[]", "{\"name\": 7}", "{\"params\": [{\"values\": [[]]}]}"}) {
    CAPTURE(wrong);
    CHECK_FALSE(space::parse_definition(wrong).ok());
  }
}
