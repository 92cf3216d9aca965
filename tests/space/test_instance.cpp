// A model bound to a problem and a device: what a config leads to, and what can't be bound.
#include <bit>

#include "base/json.hpp"
#include "space/occupancy.hpp"
#include "space/support.hpp"

using namespace jitune;
using namespace jitune::space;

namespace {

using D = KernelDefinition;

/// Most of what a definition may say, in one.
D rich_definition() {
  D d;
  d.name = "rich";
  d.source_text = "#include <x>\n";
  d.entry = "ns::rich<{T}, {BLOCK}, {FAST}, {LAYOUT}>";
  d.options = {{"--std=c++17"}, {"--maxrregcount={REGS}", "REGS > 0"}, {"-DTYPE={T}"}};
  d.problem = {"T", "N", {"M", "pow2_ceil(M)"}, {"seed", "", true}};
  d.derived = {
      {"TILES", "ceil_div(M, TILE)"}, {"TILE", "BLOCK * VEC"}, {"BIAS", "-VEC"}, {"OUT", "T == half ? float : T"}};
  d.require = {"N % VEC == 0", "sizeof(T) * VEC <= 16"};
  d.params = {{"VEC", {1, 2, 4, 8}},   {"BLOCK", {64, 128, 256}},     {"REGS", {0, 32}},
              {"FAST", {false, true}}, {"LAYOUT", {"row", "column"}}, {"ACC", {"float", "half"}}};
  d.launch = {.grid = {"TILES", "min(N, 3)"}, .block = {"BLOCK / 32", "32"}, .shared_bytes = "BLOCK * sizeof(ACC)"};
  d.args = {out("y", "T", "M * N"),
            inout("acc", "float", "M", Fill::zeros(), Tolerance{}),
            zeroed("flags", "int", "N"),
            in("table", "int32", "N", Fill::indices("M")),
            scratch("work", "bytes", "TILE * kernel.max_blocks_per_sm"),
            scalar("m", "int", "M"),
            scalar("alpha", "T", "0.5"),
            symbol("weights", "double", "15")};
  d.defaults = {{.when = "N > 100",
                 .config = {{"VEC", "16 / sizeof(T)"},
                            {"BLOCK", "256"},
                            {"REGS", "0"},
                            {"FAST", "1"},
                            {"LAYOUT", "row"},
                            {"ACC", "float"}}},
                {.config = {{"VEC", "1"},
                            {"BLOCK", "64"},
                            {"REGS", "32"},
                            {"FAST", "false"},
                            {"LAYOUT", "'column'"},
                            {"ACC", "T == half ? half : float"}}}};
  return d;
}

ProblemValues rich_problem() {
  return {{"T", "half"}, {"N", 64}, {"M", 1000}, {"seed", 5}};
}

Config rich_config() {
  return {{"VEC", 4}, {"BLOCK", 128}, {"REGS", 32}, {"FAST", true}, {"LAYOUT", "row"}, {"ACC", "half"}};
}

std::string bind_error(const D& definition, const ProblemValues& problem, const char* arch = "sm_90") {
  const auto instance = Instance::bind(Model::make(definition), problem, *nominal_device(arch));
  return instance.ok() ? "" : instance.error();
}

}  // namespace

TEST_CASE("build: entry, macros, headers and options of a config") {
  const Instance instance = bind_or_fail(rich_definition(), rich_problem());
  const auto build = instance.build(rich_config());
  REQUIRE(build.ok());
  CHECK(build->entry == "ns::rich<__half, 128, true, row>");
  CHECK(build->is_template);
  // TILES depends on a value with a bucket: one build serves many M, so it is no macro. BIAS must survive `2 -BIAS`.
  const std::vector<std::pair<std::string, std::string>> defines{{"ACC", "__half"}, {"BIAS", "(-4)"}, {"OUT", "float"},
                                                                 {"REGS", "32"},    {"TILE", "512"},  {"VEC", "4"}};
  CHECK(build->defines == defines);
  CHECK_FALSE(build->defines_before_includes);
  CHECK(build->headers == std::vector<std::string>{"cuda_fp16.h"});
  CHECK(build->options == std::vector<std::string>{"--std=c++17", "--maxrregcount=32", "-DTYPE=__half"});
  CHECK(build->arch == "sm_90");
  CHECK(build->source_name == "rich.cu");
  CHECK(build->source_text == "#include <x>\n");

  Config config = rich_config();
  config["REGS"] = 0;
  config["ACC"] = "float";
  ProblemValues problem = rich_problem();
  problem["T"] = "bfloat16";
  const auto other = bind_or_fail(rich_definition(), problem).build(config);
  REQUIRE(other.ok());
  CHECK(other->options == std::vector<std::string>{"--std=c++17", "-DTYPE=__nv_bfloat16"});
  CHECK(other->headers == std::vector<std::string>{"cuda_bf16.h"});
}

TEST_CASE("a plain entry is an extern \"C\" name; a namespace makes a name expression") {
  D d = small_definition();
  d.entry = "k";
  CHECK_FALSE(bind_or_fail(d, {{"N", 1}}).build({{"BLOCK", 64}})->is_template);
  CHECK(bind_or_fail(d, {{"N", 1}}).build({{"BLOCK", 64}})->defines ==
        std::vector<std::pair<std::string, std::string>>{{"BLOCK", "64"}});
  d.entry = "a::k";
  CHECK(bind_or_fail(d, {{"N", 1}}).build({{"BLOCK", 64}})->is_template);
  d.entry = "k<P{{1, {BLOCK}}}>";
  CHECK(bind_or_fail(d, {{"N", 1}}).build({{"BLOCK", 64}})->entry == "k<P{1, 64}>");
}

TEST_CASE("build_pattern holds what does not depend on a config") {
  const Instance instance = bind_or_fail(rich_definition(), rich_problem());
  const Instance::BuildPattern pattern = instance.build_pattern();
  CHECK(pattern.entry == "ns::rich<__half, {BLOCK}, {FAST}, {LAYOUT}>");
  CHECK(pattern.options ==
        std::vector<std::string>{"--std=c++17", "--maxrregcount={REGS} when REGS > 0", "-DTYPE=__half"});
  CHECK(pattern.macros == std::vector<std::string>{"ACC", "BIAS = -VEC", "OUT = T == half ? float : T", "REGS",
                                                   "TILE = BLOCK * VEC", "VEC"});
  CHECK(pattern.headers == std::vector<std::string>{"cuda_fp16.h"});
  CHECK(pattern.arch == "sm_90");
  CHECK(pattern.source_text == "#include <x>\n");
  // Another M or seed is the same pattern; another T is not.
  ProblemValues problem = rich_problem();
  problem["M"] = 77;
  problem["seed"] = 6;
  CHECK(bind_or_fail(rich_definition(), problem).build_pattern().entry == pattern.entry);
  problem["T"] = "float";
  CHECK(bind_or_fail(rich_definition(), problem).build_pattern().entry != pattern.entry);
}

TEST_CASE("geometry is computed from the exact problem") {
  const Instance instance = bind_or_fail(rich_definition(), rich_problem());
  const auto geometry = instance.geometry(rich_config());
  REQUIRE(geometry.ok());
  CHECK(geometry->grid == std::array<uint32_t, 3>{2, 3, 1});  // ceil(1000 / 512)
  CHECK(geometry->block == std::array<uint32_t, 3>{4, 32, 1});
  CHECK(geometry->threads() == 128);
  CHECK(geometry->shared_bytes == 256);
  CHECK(geometry->cluster == std::array<uint32_t, 3>{0, 0, 0});
}

TEST_CASE("a persistent grid needs what is known after compiling") {
  D d = small_definition();
  d.launch.grid = {"min(N, kernel.max_blocks_per_sm * device.sm_count)"};
  const Instance instance = bind_or_fail(d, {{"N", 100000}});
  CHECK_FALSE(instance.reject({{"BLOCK", 64}}));
  const auto unknown = instance.geometry({{"BLOCK", 64}});
  REQUIRE_FALSE(unknown.ok());
  CHECK(unknown.error().find("not known yet") != std::string::npos);
  KernelFacts facts;
  facts.regs = 40;
  facts.max_blocks_per_sm = 4;
  CHECK(instance.geometry({{"BLOCK", 64}}, facts)->grid[0] == 4 * 132);
}

TEST_CASE("args: sizes, types, fills, tolerances and scalars") {
  const Instance instance = bind_or_fail(rich_definition(), rich_problem());
  KernelFacts facts;
  facts.max_blocks_per_sm = 3;
  const auto without = instance.args(rich_config());
  REQUIRE_FALSE(without.ok());
  CHECK(without.error().find("arg 'work'") != std::string::npos);
  const auto args = instance.args(rich_config(), facts);
  if (!args) FAIL(args.error());
  REQUIRE(args->size() == 8);
  const ArgSpec &y = (*args)[0], &acc = (*args)[1], &flags = (*args)[2], &table = (*args)[3], &work = (*args)[4],
                &m = (*args)[5], &alpha = (*args)[6], &weights = (*args)[7];
  CHECK(y.type == Type::half);
  CHECK(y.count == 64'000);
  CHECK(y.bytes() == 128'000);
  CHECK_FALSE(y.tolerance.exact);
  CHECK(y.tolerance.rtol == 1e-2);
  CHECK(y.tolerance.atol == 1e-3);
  CHECK(y.is_buffer());
  CHECK(acc.tolerance.exact);
  CHECK(acc.fill.kind == Fill::Kind::zeros);
  CHECK(flags.kind == ArgKind::zeroed);
  CHECK(flags.tolerance.exact);  // integers
  CHECK(table.index_bound == 1000);
  CHECK_FALSE(work.type.has_value());
  CHECK(work.bytes() == 512 * 3);
  CHECK(m.scalar == std::vector<uint8_t>{0xe8, 0x03, 0, 0});
  CHECK_FALSE(m.is_buffer());
  CHECK(alpha.scalar == std::vector<uint8_t>{0x00, 0x38});  // 0.5 as half
  CHECK(weights.bytes() == 120);
  CHECK_FALSE(weights.pass);
}

TEST_CASE("default_config: first rule that applies, words, bools, and failures that name the rule") {
  const Instance small = bind_or_fail(rich_definition(), rich_problem());
  CHECK(short_text(*small.default_config()) == "ACC=half BLOCK=64 FAST=false LAYOUT=column REGS=32 VEC=1");
  ProblemValues problem = rich_problem();
  problem["N"] = 1024;
  CHECK(short_text(*bind_or_fail(rich_definition(), problem).default_config()) ==
        "ACC=float BLOCK=256 FAST=true LAYOUT=row REGS=0 VEC=8");
  problem["T"] = "int8";  // 16 / 1 is not in VEC's list
  D integers = rich_definition();
  integers.args[6].value = "1";
  const auto outside = bind_or_fail(integers, problem).default_config();
  REQUIRE_FALSE(outside.ok());
  CHECK(outside.error().find("default rule 1 (when N > 100) gives VEC = 16") != std::string::npos);
  CHECK(outside.error().find("1, 2, 4, 8") != std::string::npos);
  problem["T"] = "half";
  problem["N"] = 1001;  // not divisible by 8
  const auto rejected = bind_or_fail(rich_definition(), problem).default_config();
  REQUIRE_FALSE(rejected.ok());
  CHECK(rejected.error().find("which is rejected: N % VEC == 0") != std::string::npos);
}

TEST_CASE("bind names what is missing, unknown or of a wrong kind, and lists what is known") {
  const D d = rich_definition();
  ProblemValues problem = rich_problem();
  problem.erase("M");
  CHECK(bind_error(d, problem).find("kernel 'rich': the problem value 'M' is missing; it knows T, N, M, seed") == 0);
  problem = rich_problem();
  problem["sed"] = 1;
  CHECK(bind_error(d, problem).find("no problem value 'sed' (did you mean 'seed'?)") != std::string::npos);
  problem = rich_problem();
  problem["T"] = 4;
  CHECK(bind_error(d, problem).find("'T' must be a type word") != std::string::npos);
  problem["T"] = "row";
  CHECK(bind_error(d, problem).find("not 'row'") != std::string::npos);
  problem = rich_problem();
  problem["N"] = "half";
  CHECK(bind_error(d, problem).find("'N' must be a number, not the word 'half'") != std::string::npos);
  problem = rich_problem();
  problem["M"] = -5;  // pow2_ceil of a negative number
  CHECK(bind_error(d, problem).find("the bucket of 'M': an operand out of range in `pow2_ceil(M)`") !=
        std::string::npos);
  problem = rich_problem();
  problem["N"] = -64;
  CHECK(bind_error(d, problem).find("arg 'y': count `M * N` is -64000") != std::string::npos);
  problem["N"] = int64_t{1} << 62;
  CHECK(bind_error(d, problem).find("overflow in `M * N`") != std::string::npos);
  problem["N"] = int64_t{1} << 53;  // elements fit 64 bits, their bytes do not
  problem["T"] = "double";
  CHECK(bind_error(d, problem).find("which no buffer can have") != std::string::npos);
  problem = rich_problem();
  problem["T"] = "fp8_e4m3";
  CHECK(bind_error(d, problem).find("arg 'alpha': scalars of fp8") != std::string::npos);
  problem["T"] = "int32";
  CHECK(bind_error(d, problem).find("arg 'alpha': ") != std::string::npos);
  CHECK(bind_error(d, rich_problem()).empty());
}

TEST_CASE("keys see buckets, not ignored values, and one name a type") {
  ProblemValues problem = rich_problem();
  problem["T"] = "float16";
  const Instance instance = bind_or_fail(rich_definition(), problem);
  CHECK(space::canonical(instance.bucketed_problem()) == R"({"M":1024,"N":64,"T":"half"})");
  CHECK(space::canonical(instance.problem()) == R"({"M":1000,"N":64,"T":"half","seed":5})");
  CHECK(instance.variant().empty());
  CHECK(instance.device().cc() == 90);
  CHECK(instance.model().name() == "rich");
}

TEST_CASE("reject says why") {
  const Instance instance = bind_or_fail(rich_definition(), rich_problem());
  CHECK_FALSE(instance.reject(rich_config()));
  Config config = rich_config();
  config.erase("VEC");
  CHECK(*instance.reject(config) == "the param 'VEC' is missing");
  CHECK(instance.build(config).error().find("no value for the param 'VEC'") != std::string::npos);
  config["VEC"] = 3;
  CHECK(*instance.reject(config) == "VEC = 3 is not among its values: 1, 2, 4, 8");
  CHECK_FALSE(instance.build(config).ok());
  config = rich_config();
  config["EXTRA"] = 1;
  CHECK(*instance.reject(config) == "'EXTRA' is no param");
  ProblemValues problem = rich_problem();
  problem["N"] = 65;
  CHECK(*bind_or_fail(rich_definition(), problem).reject(rich_config()) == "N % VEC == 0");
}

TEST_CASE("launch limits reject configs, in the space too") {
  struct Row {
    std::string what;
    std::function<void(D&)> change;
    const char* reason;
    const char* arch = "sm_90";
  };
  const Row rows[] = {
      {"threads", [](D& d) { d.launch.block = {"BLOCK * 32"}; }, "launch: block dimensions"},
      {"product of dimensions",
       [](D& d) {
         d.launch.block = {"BLOCK", "32"};
       },
       "launch: block size <= 1024"},
      {"z of a block",
       [](D& d) {
         d.launch.block = {"1", "1", "BLOCK + 1"};
       },
       "launch: block dimensions"},
      {"empty block", [](D& d) { d.launch.block = {"BLOCK - 64"}; }, "launch: block dimensions"},
      {"empty grid", [](D& d) { d.launch.grid = {"N - 1000"}; }, "launch: grid dimensions"},
      {"negative grid", [](D& d) { d.launch.grid = {"-1"}; }, "launch: grid dimensions"},
      {"y of a grid",
       [](D& d) {
         d.launch.grid = {"1", "BLOCK * 1024"};
       },
       "launch: grid dimensions"},
      {"x of a grid", [](D& d) { d.launch.grid = {"BLOCK << 31"}; }, "launch: grid dimensions"},
      {"shared bytes", [](D& d) { d.launch.shared_bytes = "BLOCK * 4096"; }, "launch: shared_bytes <= 232448"},
      {"negative shared bytes", [](D& d) { d.launch.shared_bytes = "63 - BLOCK"; }, "launch: shared_bytes"},
      {"cluster of 32", [](D& d) { d.launch.grid = {"64"}, d.launch.cluster = {"32"}; }, "launch: cluster size <= 16"},
      {"cluster does not divide", [](D& d) { d.launch.grid = {"9"}, d.launch.cluster = {"2"}; },
       "launch: grid divisible by cluster"},
      {"cluster in a dimension that the grid lacks",
       [](D& d) {
         d.launch.grid = {"8"}, d.launch.cluster = {"2", "2"};
       },
       "launch: grid divisible by cluster"},
      {"cluster on Ampere", [](D& d) { d.launch.grid = {"8"}, d.launch.cluster = {"2"}; },
       "launch: clusters need compute capability 9.0", "sm_80"},
      {"division by zero", [](D& d) { d.launch.grid = {"N / (BLOCK - 64)"}; }, "division by zero in N / (BLOCK - 64)"},
      {"a word", [](D& d) { d.launch.grid = {"BLOCK > 0 ? half : 3"}; }, "a word where a number is needed"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    D d = small_definition();
    d.params[0].values = {64};
    d.defaults[0].config[0].second = "64";
    row.change(d);
    const Instance instance = bind_or_fail(d, {{"N", 1000}}, row.arch);
    const auto reason = instance.reject({{"BLOCK", 64}});
    REQUIRE(reason.has_value());
    CHECK_MESSAGE(reason->rfind(row.reason, 0) == 0, *reason);
    CHECK_FALSE(instance.geometry({{"BLOCK", 64}}).ok());
    CHECK(instance.geometry({{"BLOCK", 64}}).error().find(row.reason) != std::string::npos);
    const SpaceCount count = instance.space().count();
    CHECK(count.valid == 0);
    Count rejected = 0;
    for (const Rejections& rejections : count.rejections) rejected += rejections.points;
    CHECK(rejected == 1);
  }
}

TEST_CASE("clusters and cooperative launches") {
  D d = small_definition();
  d.launch.grid = {"64"};
  d.launch.cluster = {"16"};
  CHECK(bind_or_fail(d, {{"N", 1}}).geometry({{"BLOCK", 64}})->cluster == std::array<uint32_t, 3>{16, 1, 1});
  d.launch.cluster.clear();
  d.launch.cooperative = true;
  const auto model = Model::make(d);
  DeviceInfo device = *nominal_device("sm_90");
  KernelFacts facts;
  facts.regs = 32;
  facts.max_blocks_per_sm = 1;
  auto instance = Instance::bind(model, {{"N", 1}}, device);
  CHECK(instance->geometry({{"BLOCK", 64}}, facts)->cooperative);
  device.sm_count = 63;  // one block too many
  instance = Instance::bind(model, {{"N", 1}}, device);
  CHECK(instance->geometry({{"BLOCK", 64}}, facts).error().find("only 63 fit") != std::string::npos);
  device.cooperative = false;
  instance = Instance::bind(model, {{"N", 1}}, device);
  CHECK(*instance->reject({{"BLOCK", 64}}) == "launch: the device has no cooperative launch");
}

TEST_CASE("variants: the first whose `when` holds replaces what it says, and the rest stays") {
  D d = small_definition();
  d.args = {out("y", "float", "N")};
  d.variants = {{.when = "device.cc == 90 && N > 10",
                 .name = "hopper",
                 .source_text = "hopper",
                 .entry = "h<{TILE}>",
                 .arch = "sm_90a",
                 .params = {{{"TILE", {8, 16}}}},
                 .launch = {{.grid = {"N"}, .block = {"TILE"}}},
                 .defaults = {{{.config = {{"TILE", "16"}}}}}},
                {.when = "device.cc >= 90", .options = {{{"-DNEW"}}}}};
  const auto model = Model::make(d);
  CHECK(model->forms().size() == 3);
  const auto bind = [&](int n, const char* arch) { return *Instance::bind(model, {{"N", n}}, *nominal_device(arch)); };
  const Instance hopper = bind(100, "sm_90"), small = bind(5, "sm_90"), ampere = bind(100, "sm_80"),
                 next = bind(100, "sm_100");
  CHECK(hopper.variant() == "hopper");
  CHECK(hopper.build(*hopper.default_config())->entry == "h<16>");
  CHECK(hopper.build(*hopper.default_config())->arch == "sm_90a");
  CHECK(hopper.build(*hopper.default_config())->source_text == "hopper");
  CHECK(hopper.geometry(*hopper.default_config())->grid[0] == 100);
  CHECK(hopper.args(*hopper.default_config())->front().name == "y");
  CHECK(hopper.space_definition() == R"({"params":{"TILE":[8,16]},"require":[]})");
  CHECK(small.variant() == "variant 2");
  CHECK(small.build(*small.default_config())->options == std::vector<std::string>{"-DNEW"});
  CHECK(small.build(*small.default_config())->entry == "k<128>");
  CHECK(next.variant() == "variant 2");
  CHECK(ampere.variant().empty());
  CHECK(ampere.build(*ampere.default_config())->options.empty());
}

TEST_CASE("a variant's `when` that can't be decided is a failure that names it") {
  D d = small_definition();
  d.variants = {{.when = "10 / N > 1", .name = "v"}};
  CHECK(bind_error(d, {{"N", 0}}).find("`when` of variant 'v': division by zero in `10 / N > 1`") != std::string::npos);
}

TEST_CASE("an arch that the device can't run is refused at bind") {
  D d = small_definition();
  d.arch = "sm_90a";
  CHECK(bind_error(d, {{"N", 1}}, "sm_90").empty());
  CHECK(bind_error(d, {{"N", 1}}, "sm_100").find("arch sm_90a does not run") != std::string::npos);
  d.arch = "sm_80";
  CHECK(bind_error(d, {{"N", 1}}, "sm_86").empty());
  CHECK_FALSE(bind_error(d, {{"N", 1}}, "sm_90").empty());
  CHECK_FALSE(bind_error(d, {{"N", 1}}, "sm_75").empty());
}

TEST_CASE("tensor maps: numbers, defaults, and what no driver would take") {
  D d = small_definition();
  Arg map{.kind = ArgKind::tensor_map, .name = "map", .type = ""};
  map.over = "x";
  map.dims = {"N", "8"};
  map.strides_bytes = {"N * sizeof(half)"};
  map.box = {"BLOCK", "2"};
  map.swizzle = 128;
  d.args = {in("x", "half", "N * 8"), map};
  d.args[0].pass = false;
  const Instance instance = bind_or_fail(d, {{"N", 512}});
  const auto args = instance.args({{"BLOCK", 64}});
  if (!args) FAIL(args.error());
  const ArgSpec& spec = (*args)[1];
  CHECK(spec.over == 0);
  CHECK(spec.type == Type::half);
  CHECK(spec.dims == std::vector<int64_t>{512, 8});
  CHECK(spec.strides_bytes == std::vector<int64_t>{1024});
  CHECK(spec.box == std::vector<int64_t>{64, 2});
  CHECK(spec.element_strides == std::vector<int64_t>{1, 1});
  CHECK(spec.swizzle == 128);
  CHECK(instance.args({{"BLOCK", 128}}).error().find("more than the swizzle's 128") != std::string::npos);

  const auto error = [&](const std::function<void(Arg&)>& change, int n = 512) {
    D changed = d;
    change(changed.args[1]);
    const auto result = bind_or_fail(changed, {{"N", n}}).args({{"BLOCK", 64}});
    return result.ok() ? std::string() : result.error();
  };
  CHECK(error([](Arg&) {}).empty());
  CHECK(error([](Arg& a) { a.dims[1] = "9"; }).find("reach 9216 bytes, but 'x' has 8192") != std::string::npos);
  CHECK(error([](Arg& a) { a.strides_bytes[0] = "1000"; }).find("multiple of 16") != std::string::npos);
  CHECK(error([](Arg& a) { a.box[1] = "257"; }).find("1 to 256") != std::string::npos);
  CHECK(error([](Arg& a) { a.box[0] = "4", a.swizzle = 0; }).find("multiple of 16") != std::string::npos);
  CHECK(error([](Arg& a) { a.dims[0] = "0"; }).find("dims[0]") != std::string::npos);
  CHECK(error([](Arg& a) { a.element_strides = {"1", "9"}; }).find("1 to 8") != std::string::npos);
}

TEST_CASE("patterns are canonical JSON of what the author wrote") {
  const Instance instance = bind_or_fail(small_definition(), {{"N", 7}});
  CHECK(instance.space_definition() == R"({"params":{"BLOCK":[64,128,256]},"require":[]})");
  CHECK(
      instance.launch_pattern() ==
      R"x({"args":[],"derived":{},"launch":{"block":["BLOCK"],"cluster":[],"cooperative":false,"grid":["ceil_div(N, BLOCK)"],"programmatic_dependent":false,"shared_bytes":"0"}})x");
  const Json rich = Json::parse(bind_or_fail(rich_definition(), rich_problem()).launch_pattern());
  CHECK(rich["args"].size() == 8);
  CHECK(rich["args"][3]["fill"]["indices"] == "M");
  CHECK(rich["derived"]["TILE"] == "BLOCK * VEC");
  // Order of params in the definition carries no meaning.
  D shuffled = rich_definition();
  std::swap(shuffled.params[0], shuffled.params[3]);
  CHECK(bind_or_fail(shuffled, rich_problem()).space_definition() ==
        bind_or_fail(rich_definition(), rich_problem()).space_definition());
}

TEST_CASE("a bucket's representatives are those of its own, the same for every launch of the key, and part of it") {
  KernelDefinition d = small_definition();
  d.problem = {"T", {"N", "pow2_ceil(N)"}, {"seed", "", true}};
  d.tune_at = {{.problem = {{"N", "N"}}},
               {.problem = {{"N", "N / 2 + 1"}}, .weight = 3},
               {.problem = {{"N", "100"}}},                            // in one bucket only
               {.problem = {{"N", "N"}, {"T", "half"}}, .weight = 2},  // of one type only
               {.problem = {{"N", "7 / (N - 64)"}}}};                  // has no value in one bucket, is in none
  const auto at = [&](int n, const char* type = "float") {
    return bind_or_fail(d, {{"T", type}, {"N", n}, {"seed", 5}});
  };
  const auto found = at(1000).representatives();
  REQUIRE(found.problems.size() == 2);
  CHECK(found.problems[0].set == ProblemValues{{"N", 513}});  // the heaviest is first
  CHECK(found.problems[0].weight == 3);
  CHECK(found.problems[0].instance.problem() == ProblemValues{{"T", "float"}, {"N", 513}, {"seed", 5}});
  CHECK(found.problems[1].set == ProblemValues{{"N", 1024}});
  CHECK(found.left_out.empty());
  CHECK(at(128).representatives().problems.size() == 3);
  REQUIRE(at(64).representatives().left_out.size() == 1);
  CHECK(at(64).representatives().left_out[0].find("division by zero") != std::string::npos);
  REQUIRE(at(1000, "half").representatives().problems.size() == 3);
  CHECK(at(1000, "half").representatives().problems[1].weight == 2);

  d.tune_at.resize(2);
  const std::string with = at(1000).launch_pattern();
  CHECK(at(100).launch_pattern() == with);  // of one kernel in all buckets: what won in one may serve in the next
  CHECK(Json::parse(with).at("tune_at").size() == 2);
  std::swap(d.tune_at[0], d.tune_at[1]);  // order carries no meaning
  CHECK(at(1000).launch_pattern() == with);
  d.tune_at[0].weight = 2;
  CHECK(at(1000).launch_pattern() != with);
  d.tune_at[0].weight = 3;
  d.tune_at.push_back({.problem = {{"N", "1024"}}, .weight = 4});  // the same problem again: weights add up
  CHECK(at(1000).representatives().problems[0].weight == 5);
  d.tune_at = {{.problem = {{"N", "4096"}}}};
  CHECK(at(1000).representatives().problems.empty());
  d.tune_at.clear();
  CHECK(at(1000).launch_pattern() == bind_or_fail(small_definition(), {{"N", 1000}}).launch_pattern());
}

TEST_CASE("what only the driver knows is asked for where the grid or a scratch size needs it") {
  CHECK_FALSE(bind_or_fail(small_definition(), {{"N", 7}}).needs_kernel_facts());
  D d = small_definition();
  d.launch.grid = {"min(N, device.sm_count * kernel.max_blocks_per_sm)"};
  CHECK(bind_or_fail(d, {{"N", 7}}).needs_kernel_facts());
  CHECK(bind_or_fail(rich_definition(), rich_problem()).needs_kernel_facts());
}

TEST_CASE("an instance outlives everything it was made from") {
  std::optional<Instance> instance;
  {
    auto model = Model::make(rich_definition());
    instance = *Instance::bind(std::move(model), rich_problem(), *nominal_device("sm_90"));
  }
  const Space space = instance->space();
  instance.reset();
  CHECK(space.count().valid > 0);
}

TEST_CASE("occupancy of a launch on an H100: by registers, shared memory, threads or blocks, whichever ends first") {
  const DeviceInfo device = *nominal_device("sm_90");
  const auto blocks = [&](uint32_t threads, int regs, uint32_t shared = 0, int64_t static_smem = 0) {
    Geometry geometry;
    geometry.block = {threads, 1, 1};
    geometry.shared_bytes = shared;
    return blocks_per_sm(device, geometry, {regs, static_smem, 0, 0});
  };
  // As NVIDIA's occupancy calculator has them.
  CHECK(blocks(256, 32) == 8);
  CHECK(blocks(256, 64) == 4);
  CHECK(blocks(256, 65) == 3);   // a warp takes 2,304 registers
  CHECK(blocks(384, 168) == 1);  // 12 of 12 warps
  CHECK(blocks(128, 168) == 3);
  CHECK(blocks(1024, 64) == 1);
  CHECK(blocks(1024, 65) == 0);
  CHECK(blocks(32, 16) == 32);  // blocks
  CHECK(blocks(48, 0) == 32);   // two warps
  CHECK(blocks(128, 32, 100 * 1024) == 2);
  CHECK(blocks(128, 32, 98 * 1024, 16 * 1024) == 1);
  CHECK(blocks(128, 32, 227 * 1024) == 1);
  Geometry hopper;
  hopper.block = {384, 1, 1};
  hopper.shared_bytes = 200 * 1024;
  CHECK(occupancy(device, hopper, {168, 0, 0, 0}) == .1875);
  CHECK(occupancy(device, hopper, {0, 0, 0, 0}) == .1875);
  CHECK(occupancy(DeviceInfo{}, hopper, {168, 0, 0, 0}) == 0);
}
