#include <cstdlib>

#include "base/json.hpp"
#include "run_prewarm.hpp"

using namespace jitune;
using namespace jitune::test;

// Winners that leave a database and come back, and the gate that holds them against today's kernels.
namespace {

void write_kernel(const std::string& home, const std::string& body = "y[i] = a * x[i];") {
  write_file(home + "/scale.cu",
             "template <int BLOCK, int ITEMS> __global__ void scale(float* y, const float* x, float a, int n) {\n"
             "  for (int k = 0; k < ITEMS; ++k) {\n"
             "    int i = (blockIdx.x * ITEMS + k) * BLOCK + threadIdx.x;\n"
             "    if (i < n) " +
                 body + "\n  }\n}\n");
}

std::string kernel_toml(const std::string& rules = {}) {
  return R"toml(format = 1
name = "scale"
source = "scale.cu"
entry = "scale<{BLOCK}, {ITEMS}>"
problem = [{ bucket = "n", by = "pow2_ceil(n)" }]
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
)toml" + rules +
         "[[defaults]]\nconfig = { BLOCK = 64, ITEMS = 1 }\n";
}

/// The stand-in of a GPU, on which the config <128, 2> takes 50 us and all others 100.
std::string fake_gpu(const std::string& home, int best_us = 50) {
  write_file(home + "/gpu.json", R"({"kernels": [{"match": "scale<128, 2>", "time_us": )" + std::to_string(best_us) +
                                     R"(, "spread": 0, "noise": 0},)"
                                     R"({"match": "scale<", "time_us": 100, "spread": 0, "noise": 0}]})");
  return "LD_LIBRARY_PATH=" JITUNE_BINARY_DIR "/tests/fake_cuda:$LD_LIBRARY_PATH JITUNE_FAKE_CUDA=@" + home +
         "/gpu.json";
}

ProgramResult run(const TempDir& home, const std::string& arguments, int exit_code, const std::string& gpu = kNoGpu) {
  ProgramResult result = prewarm(home.path(), arguments, gpu);
  INFO(arguments);
  INFO(result.out);
  INFO(result.err);
  CHECK(result.exit_code == exit_code);
  return result;
}

/// x.db with the winners of two problems.
void tune(const TempDir& home) {
  write_kernel(home.path());
  write_file(home / "scale.toml", kernel_toml());
  const std::string gpu = fake_gpu(home.path());
  run(home, "tune scale.toml --problem n=4096 --problem n=8192 --database x.db --compile-workers 2", 0, gpu);
}

/// What a database answers, by key.
Json answers(const TempDir& home, const std::string& database) {
  Json found = Json::object();
  const Json list = Json::parse(run(home, "list --json --database " + database, 0).out);
  for (const Json& key : list.at("keys")) {
    const Json& winner = key.at("winner");
    found[key.at("key").get<std::string>()] = {winner.at("config"), winner.at("median_us"),  winner.at("default_us"),
                                               winner.at("pinned"), winner.at("decided_at"), key.at("device")};
  }
  return found;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE_MESSAGE(at != std::string::npos, from);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("what export writes gives equal answers after import: database, JSON, a folder of it, CSV") {
  if (!has_nvrtc()) return;
  TempDir home;
  tune(home);
  const Json expected = answers(home, "x.db");
  CHECK(expected.size() == 2);
  for (const std::string file : {"b.db", "w.json", "tree/", "w.csv"}) {
    CAPTURE(file);
    run(home, "export --database x.db --output " + file, 0);
    const std::string database = "y" + std::to_string(file.size()) + file.substr(0, 1) + ".db";
    const ProgramResult in = run(home, "import " + file + " --definition scale.toml --database " + database, 0);
    CHECK(contains(in.out, "2 new"));
    CHECK(answers(home, database) == expected);
    CHECK(contains(run(home, "import " + file + " --database " + database, 0).out, "0 new"));
  }
  CHECK(query(home / "b.db", "pragma journal_mode") == "delete");
  CHECK(query(home / "b.db", "select count(*) from cubins") == "1");
  CHECK(exists(home / "tree/nvrtc-13.0.88/scale") == exists(home / "tree/nvrtc-13.0.88"));
}

TEST_CASE("import counts what it refuses, by reason") {
  if (!has_nvrtc()) return;
  TempDir home;
  tune(home);
  run(home, "export --database x.db --output w.csv", 0);
  const std::string table = content(home / "w.csv");
  write_file(home / "config.csv", replaced(table, ",4096,128,2,", ",4096,256,4,"));
  CHECK(contains(run(home, "import config.csv --definition scale.toml --database y.db", 1).out,
                 "1 refused: the config is not in today's space: BLOCK * ITEMS <= 512 (config.csv:2)"));
  write_file(home / "hash.csv", replaced(table, ",4096,128,2,", ",2048,128,2,"));
  CHECK(contains(run(home, "import hash.csv --database z.db", 1).out,
                 "1 refused: the fields of its key do not give its hash (hash.csv:2)"));
  write_kernel(home.path(), "y[i] = x[i] * a;");
  CHECK(contains(run(home, "import w.csv --definition scale.toml --database u.db", 1).out,
                 "2 refused: the key is not that of today's kernel: source_sha256 changed (w.csv:2, ...)"));
}

TEST_CASE("a merge is the same file in whatever order, and import of other systems' work is merged too") {
  if (!has_nvrtc()) return;
  TempDir home;
  tune(home);
  run(home, "export --database x.db --output a.db", 0);
  run(home, "export --database x.db --output w.csv", 0);
  write_file(home / "w.csv", replaced(content(home / "w.csv"), ",4096,128,2,50.", ",4096,64,2,40."));
  run(home, "merge a.db w.csv --output 1.db", 0);
  run(home, "merge w.csv a.db --output 2.db", 0);
  CHECK(content(home / "1.db") == content(home / "2.db"));
  CHECK(query(home / "1.db", "select config from best order by problem") ==
        "{\"BLOCK\":64,\"ITEMS\":2}\n"
        "{\"BLOCK\":128,\"ITEMS\":2}");
  CHECK(contains(run(home, "merge a.db --output 1.db", 2).err, "--force"));
}

TEST_CASE("check: a regression, a stale key, a duplicate and an invalid winner each have their exit code and line") {
  if (!has_nvrtc()) return;
  TempDir home;
  tune(home);
  run(home, "export --database x.db --output w.csv", 0);
  const std::string table = content(home / "w.csv"), gpu = fake_gpu(home.path());
  const std::string check = "check scale.toml --baseline w.csv";
  CHECK(contains(run(home, check, 0, gpu).out, "2 winners checked, 2 measured again; 0 findings"));
  CHECK(contains(run(home, check, 0).out, "0 measured again (no GPU here); 0 findings"));

  // Neither another problem's default rule nor a variant for others stands in the way.
  write_file(home / "scale.toml", kernel_toml() + R"(
[[variants]]
when = "n > 1000000"
name = "large"
params = { BLOCK = [256], ITEMS = [1] }
[[variants.defaults]]
config = { BLOCK = 256, ITEMS = 1 }
)");
  write_file(home / "scale.toml", replaced(content(home / "scale.toml"), "[[defaults]]", R"([[defaults]]
when = "n > 500000"
config = { BLOCK = 256, ITEMS = 1 }
[[defaults]])"));
  CHECK(contains(run(home, check, 0, gpu).out, "2 winners checked, 2 measured again; 0 findings"));
  write_file(home / "scale.toml", kernel_toml());

  const ProgramResult slow = run(home, check, 7, fake_gpu(home.path(), 60));
  CHECK(contains(slow.out, "REGRESSION"));
  CHECK(contains(slow.out, "regression: w.csv:2: scale n=4096: 20.0 % slower than the baseline (50.00 us)"));
  run(home, check + " --tolerance 25", 0, fake_gpu(home.path(), 60));
  const ProgramResult slower = run(home, check + " --tolerance 5 --json", 7, fake_gpu(home.path(), 120));
  CHECK(Json::parse(slower.out).at("findings").size() == 2);

  const size_t first = table.find('\n') + 1;
  write_file(home / "w.csv", table + table.substr(first, table.find('\n', first) + 1 - first));
  CHECK(contains(run(home, check + " --lint-only", 9).out,
                 "duplicate: w.csv:4: scale n=4096: its key is at w.csv:2 too"));
  write_file(home / "w.csv", replaced(table, ",4096,128,2,", ",4096,256,4,"));
  CHECK(contains(run(home, check + " --lint-only", 10).out,
                 "invalid winner: w.csv:2: scale n=4096: BLOCK * ITEMS <= 512"));
  write_file(home / "w.csv", table);
  write_kernel(home.path(), "y[i] = x[i] * a;");
  CHECK(contains(run(home, check, 8, gpu).out, "stale: w.csv:2: scale n=4096: source_sha256 changed"));
  write_kernel(home.path());
  write_file(home / "scale.toml", replaced(kernel_toml(), "config = { BLOCK = 64", "config = { BLOCK = \"n / 8\""));
  CHECK(contains(run(home, check, 10).out, "invalid default: w.csv:2"));
}

TEST_CASE("why names the field that differs from the nearest stored key") {
  if (!has_nvrtc()) return;
  TempDir home;
  tune(home);
  const std::string why = "why scale.toml --database x.db --problem n=", gpu = fake_gpu(home.path());
  CHECK(contains(run(home, why + "4096", 0, gpu).out, "it would not be tuned again: its winner is stored, BLOCK=128"));
  CHECK(contains(run(home, why + "4000", 0, gpu).out, "it would not be tuned again"));  // of the same bucket
  CHECK(contains(run(home, why + "9000", 0, gpu).out, "it would be tuned again: problem of the nearest stored key"));
  CHECK(contains(run(home, why + "9000", 0, gpu).out, "problem: {\"n\":4096} / {\"n\":16384}"));
  write_kernel(home.path(), "y[i] = x[i] * a;");
  const Json answer = Json::parse(run(home, why + "4096 --json", 0, gpu).out).at("answers").at(0);
  CHECK(answer.at("state") == "near");
  CHECK(answer.at("differences").size() == 1);
  CHECK(contains(answer.at("differences").at(0), "source_sha256: "));
  CHECK(contains(run(home, why + "4096", 0, gpu + " JITUNE_MEASURE=hot").out, "policy"));
  const std::string told = run(home, "tune scale.toml --problem n=64 --database x.db", 0, gpu + " JITUNE_LOG=key").err;
  CHECK(contains(told, "jitune key scale\nschema = 1\nkernel = scale\nvariant = \nsource_sha256 = "));
  CHECK(contains(told, "gives key_sha256 = " + query(home / "x.db", "select key from best where problem like '%64%'")));
  CHECK(contains(told, "\nentry = scale<128, 2>\nis_template = 1\nconfig = {\"BLOCK\":128,\"ITEMS\":2}\n"));
  CHECK(contains(told, "gives build_sha256 = "));
}

TEST_CASE("a pinned winner stays, and winners become default rules") {
  if (!has_nvrtc()) return;
  TempDir home;
  tune(home);
  const std::string key = query(home / "x.db", "select key from best where problem like '%4096%'");
  CHECK(contains(run(home, "pin " + key + " --database x.db", 0).out, "is pinned"));
  CHECK(query(home / "x.db", "select count(*) from winners where pinned") == "1");
  run(home, "export --database x.db --output w.csv --key " + key, 0);
  write_file(home / "w.csv", replaced(content(home / "w.csv"), ",pinned,20", ",,20"));
  write_file(home / "w.csv", replaced(content(home / "w.csv"), ",4096,128,2,50.", ",4096,64,2,1."));
  CHECK(contains(run(home, "import w.csv --database x.db", 0).out, "1 of a pinned key"));
  CHECK(contains(run(home, "unpin " + key + " --database x.db", 0).out, "not pinned any more"));
  CHECK(contains(run(home, "import w.csv --database x.db", 0).out, "1 replaced"));
  CHECK(contains(run(home, "pin 0 --database x.db", 2).err, "no key"));

  tune(home);
  run(home, "export --database x.db --format defaults --definition scale.toml --output rules.toml", 0);
  write_file(home / "scale.toml", kernel_toml(content(home / "rules.toml")));
  const auto shown = [&](const std::string& n) {
    return run(home, "space scale.toml --problem n=" + n, 0, fake_gpu(home.path())).out;
  };
  CHECK(contains(shown("8000"), "BLOCK=128 ITEMS=2"));
  CHECK(contains(shown("100"), "BLOCK=64 ITEMS=1"));
}

TEST_CASE("gc drops keys that are not pinned until the cubins fit") {
  if (!has_nvrtc()) return;
  TempDir home;
  tune(home);
  const std::string key = query(home / "x.db", "select key from best where problem like '%4096%'");
  run(home, "pin " + key + " --database x.db", 0);
  CHECK(contains(run(home, "gc --database x.db", 0).out, "dropped 0 cubins, 0 keys"));
  const Json done = Json::parse(run(home, "gc --json --max-size 0 --database x.db", 0).out);
  CHECK(done.at("keys") == 1);
  CHECK(query(home / "x.db", "select key from best") == key);
  CHECK(contains(run(home, "gc --max-size 1kiB --database x.db", 0).out, "0 keys"));
}

namespace {

/// A kernel with these params and problem values; what it computes does not matter.
void write_other(const TempDir& home, const std::string& problem, const std::string& params, const std::string& first,
                 const std::string& defaults) {
  write_file(home / "other.cu", "extern \"C\" __global__ void other(float* y) { y[0] = 1; }\n");
  write_file(home / "other.toml",
             "format = 1\nname = \"other\"\nsource = \"other.cu\"\nentry = \"other\"\nproblem = [" + problem +
                 "]\n[params]\n" + params + "[launch]\ngrid = [\"1\"]\nblock = [\"" + first +
                 "\"]\n[[args]]\nout = \"y\"\ntype = \"float\"\ncount = \"1\"\n[[defaults]]\nconfig = { " + defaults +
                 " }\n");
}

}  // namespace

TEST_CASE("files of other systems import to the right winners") {
  const char* formats = std::getenv("JITUNE_FORMATS_DIR");
  if (formats == nullptr) {
    skip("formats", "JITUNE_FORMATS_DIR is not set");
    return;
  }
  TempDir home;
  const auto import = [&](const std::string& file, const std::string& more, int exit_code = 0) {
    return run(home,
               "import '" + std::string(formats) + "/" + file +
                   "' --definition other.toml --arch sm_90 --database y.db " + more,
               exit_code)
        .out;
  };
  const auto winner = [&](const std::string& name, const std::string& value) {
    return query(home / "y.db",
                 "select config, device from best where json_extract(problem, '\\$." + name + "') = " + value);
  };
  SUBCASE("SGLang") {
    write_other(home, R"("E", "N", "M")",
                "BM = [16, 32, 64]\nBLOCK_SIZE_N = [64, 128, 256]\nBLOCK_SIZE_K = [64, 128, 256]\n"
                "GROUP_SIZE_M = [1, 16, 64]\nnum_warps = [4, 8]\nnum_stages = [2, 3, 4, 5]\n",
                "num_warps * 32",
                "BM = 16, BLOCK_SIZE_N = 64, BLOCK_SIZE_K = 64, GROUP_SIZE_M = 1, num_warps = 4, num_stages = 2");
    CHECK(contains(import("E=128,N=1024,device_name=NVIDIA_H200.json", "--map BLOCK_SIZE_M=BM"), "18 new"));
    CHECK(
        winner("M", "64").find(
            R"({"BLOCK_SIZE_K":128,"BLOCK_SIZE_N":128,"BM":16,"GROUP_SIZE_M":1,"num_stages":3,"num_warps":8}|NVIDIA_H200)") ==
        0);
    CHECK(
        contains(winner("M", "4096"), R"("BLOCK_SIZE_N":128,"BM":64,"GROUP_SIZE_M":1,"num_stages":3,"num_warps":4})"));
    CHECK(contains(import("E=128,N=1024,device_name=NVIDIA_H200.json", "", 1),
                   "18 refused: it does not say the param 'BM' (--map)"));
  }
  SUBCASE("aiter's tables") {
    write_other(home, R"("b", "sq", "num_k_heads", "num_v_heads", "dtype")",
                "NUM_BLOCKS_PER_V_DIM = [1, 2, 4, 8]\nNUM_WARPS = [1, 2, 4]\nLANES = [4, 8, 16]\n", "NUM_WARPS * 32",
                "NUM_BLOCKS_PER_V_DIM = 1, NUM_WARPS = 1, LANES = 4");
    const std::string done = import("gdr_decode_tuned.csv", "--map WARP_THREADS_K=LANES");
    CHECK(contains(done, "4 new"));
    CHECK(contains(done, "passed over, since the kernel has no such name: head_k_dim, head_v_dim"));
    CHECK(winner("b", "10") == R"({"LANES":16,"NUM_BLOCKS_PER_V_DIM":8,"NUM_WARPS":2}|gfx950)");
    CHECK(winner("b", "128") == R"({"LANES":4,"NUM_BLOCKS_PER_V_DIM":2,"NUM_WARPS":1}|gfx950)");
    CHECK(query(home / "y.db", "select distinct json_extract(problem, '\\$.dtype') from best") == "bfloat16");
    CHECK(contains(import("a8w8_untuned_gemm.csv", "", 1), "8 refused: it does not say the problem value"));
  }
  SUBCASE("Kernel Tuner's caches") {
    write_other(home, "", "BLOCK = [128, 256, 512, 768, 1024]\n", "BLOCK", "BLOCK = 128");
    CHECK(contains(import("test_test_cache_file.json", "--map block_size_x=BLOCK", 0), "1 new"));
    CHECK(query(home / "y.db", "select config, device from best") == R"({"BLOCK":768}|NVIDIA RTX A4000)");
    // What has no answers is an error, not an empty success.
    for (const char* file :
         {"test_test_cache_file_T1_input.json", "kernel_tuner_schema_T1_1.0.0_input-schema.json",
          "kernel_tuner_schema_T4_1.0.0_metadata-schema.json", "kernel_tuner_schema_T4_1.0.0_results-schema.json"})
      import(file, "", 2);
    // A param with values of several kinds, which the kernel does not have.
    write_other(home, R"("n")", "BLOCK = [128, 256, 512, 768, 1024]\ntest_bool = [true, false]\n", "BLOCK",
                "BLOCK = 128, test_bool = true");
    CHECK(contains(import("test_strategies_test_cache_file.json", "--problem n=7 --map block_size_x=BLOCK"),
                   "passed over, since the kernel has no such name: test_mixed"));
    CHECK(winner("n", "7") == R"({"BLOCK":768,"test_bool":true}|NVIDIA RTX A4000)");
    write_other(home, R"("n")", "block_size_x = [512, 1024]\nnr_outer = [64]\nCLOCK = [1710, 1905, 2100]\n",
                "block_size_x", "block_size_x = 512, nr_outer = 64, CLOCK = 2100");
    CHECK(contains(import("test_synthetic_fp32_cache_NVIDIA_RTX_A4000.json", "--problem n=8 --map nvml_gr_clock=CLOCK"),
                   "1 new"));
    CHECK(winner("n", "8") == R"({"CLOCK":1905,"block_size_x":1024,"nr_outer":64}|NVIDIA RTX A4000)");
    CHECK(query(home / "y.db", "select median_us from best where problem like '%8%'") == "76957.06");
  }
  SUBCASE("T4 results") {
    write_other(home, R"("filter_height", "filter_width")",
                "block_size_x = [16, 32, 64]\nblock_size_y = [1, 2, 4]\ntile_size_x = [1, 2]\ntile_size_y = [1, 2, 3]\n"
                "read_only = [0, 1]\nuse_padding = [0, 1]\nuse_shmem = [0, 1]\nuse_cmem = [1]\n",
                "block_size_x * block_size_y",
                "block_size_x = 16, block_size_y = 1, tile_size_x = 1, tile_size_y = 1, read_only = 0, "
                "use_padding = 0, use_shmem = 0, use_cmem = 1");
    CHECK(contains(import("convolution_milo_A100_T4.json.gz", ""), "1 new"));
    CHECK(winner("filter_width", "15")
              .find(R"({"block_size_x":32,"block_size_y":4,"read_only":1,"tile_size_x":1,"tile_size_y":3,)"
                    R"("use_cmem":1,"use_padding":0,"use_shmem":1}|)") == 0);
    CHECK(query(home / "y.db", "select median_us from best") == "553.6");
  }
  SUBCASE("KTT's results") {
    write_other(home, R"("VERTICES")",
                "BLOCK_SIZE_X = [32, 64, 128, 256, 512]\nTILE_SIZE = [1, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20]\n"
                "BETWEEN_METHOD = [0, 1, 2, 3]\nUSE_METHOD = [0, 1, 2]\n",
                "BLOCK_SIZE_X", "BLOCK_SIZE_X = 32, TILE_SIZE = 1, BETWEEN_METHOD = 0, USE_METHOD = 0");
    CHECK(contains(import("KTT_KTPnpolyOutput_3090.json.gz", ""), "1 new"));
    CHECK(winner("VERTICES", "600") ==
          R"({"BETWEEN_METHOD":0,"BLOCK_SIZE_X":256,"TILE_SIZE":20,"USE_METHOD":2}|NVIDIA GeForce RTX 3090)");
  }
}
