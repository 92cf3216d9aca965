#include <doctest/doctest.h>

#include <functional>
#include <initializer_list>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "base/files.hpp"
#include "base/hash.hpp"
#include "jitune/definition.hpp"
#include "key/key.hpp"
#include "space/instance.hpp"
#include "support/support.hpp"

using namespace jitune;

namespace {

key::SourceHash sample_source() {
  return {sha256_hex("source"), {}, {}};
}

space::BuildSpec sample_spec() {
  space::BuildSpec spec;
  spec.source_text = "text";
  spec.source_name = "k.cu";
  spec.include_dirs = {"/here"};
  spec.entry = "k<__half, 128>";
  spec.is_template = true;
  spec.defines = {{"BLOCK", "128"}, {"VEC", "4"}};
  spec.headers = {"cuda_fp16.h"};
  spec.options = {"--use_fast_math", "-DX=1"};
  spec.arch = "sm_90a";
  return spec;
}

const space::Config kConfig{{"VEC", 4}, {"BLOCK", 128}};

std::string build_sha256(const std::function<void(space::BuildSpec&)>& change) {
  space::BuildSpec spec = sample_spec();
  change(spec);
  return key::make_build_key(sample_source(), spec, kConfig, "13.0.88").sha256;
}

key::TuningKey sample_key() {
  key::TuningKey key;
  key.kernel = "rmsnorm";
  key.variant = "hopper";
  key.source_sha256 = sha256_hex("source");
  key.entry = "rmsnorm<{T}, {BLOCK}>";
  key.options = R"({"options":["--use_fast_math"]})";
  key.launch_sha256 = sha256_hex("launch");
  key.problem = R"({"T":"half","hidden":8192})";
  key.arch = "sm_90a";
  key.cc = 90;
  key.sm_count = 132;
  key.memory_gib = 140;
  key.l2_bytes = 62914560;
  key.max_clock_mhz = 1980;
  key.max_memory_clock_mhz = 3201;
  key.nvrtc = "13.0.88";
  key.policy = "cold,median";
  key.environment = R"({"A":"1"})";
  key.callables = R"({"check":"2"})";
  key::seal(key);
  return key;
}

KernelDefinition sample_definition() {
  KernelDefinition d;
  d.name = "scale";
  d.source_text = "template <class T, int BLOCK> __global__ void scale(T* y, const T* x, int n) { int i = VEC; }\n";
  d.entry = "scale<{T}, {BLOCK}>";
  d.options = {{"--use_fast_math"}, {"--maxrregcount={REGS}", "REGS > 0"}};
  d.problem = {"T", {"n", "pow2_ceil(n)"}, {"seed", "", true}};
  d.derived = {{"TILE", "BLOCK * VEC"}};
  d.require = {"BLOCK * VEC <= 1024"};
  d.params = {{"BLOCK", {64, 128}}, {"VEC", {1, 2}}, {"REGS", {0, 32}}};
  d.launch = {.grid = {"ceil_div(n, TILE)"}, .block = {"BLOCK"}};
  d.args = {out("y", "T", "n"), in("x", "T", "n"), scalar("n", "int", "n")};
  d.defaults = {{.config = {{"BLOCK", "64"}, {"VEC", "1"}, {"REGS", "0"}}}};
  return d;
}

struct Case {
  KernelDefinition definition = sample_definition();
  space::DeviceInfo device = *space::nominal_device("sm_90");
  space::ProblemValues problem{{"T", "half"}, {"n", 1000}, {"seed", 1}};
  std::string nvrtc = "13.0.88", policy = "cold", environment = "{}";

  key::TuningKey key() const {
    const auto model = space::Model::make(definition);
    Result<space::Instance> instance = space::Instance::bind(model, problem, device);
    REQUIRE_MESSAGE(instance.ok(), (instance.ok() ? "" : instance.error()));
    const auto pattern = instance->build_pattern();
    const auto source =
        key::hash_source(pattern.source_text, pattern.source_directory, pattern.include_dirs, pattern.header_texts);
    REQUIRE(source.ok());
    key::SourceHash reference;
    if (instance->has_reference()) {
      const auto own = instance->reference_pattern();
      reference = *key::hash_source(own.source_text, "", own.include_dirs, pattern.header_texts);
    }
    return key::make_tuning_key(*instance, *source, nvrtc, policy, environment,
                                key::reference_callables(*instance, reference));
  }
};

std::string sha256_with(const std::function<void(Case&)>& change) {
  Case c;
  change(c);
  return c.key().sha256;
}

}  // namespace

// Computed once with Python's hashlib and struct, from the definition alone: SHA-256 over, for each field in order, the
// label's length as a little-endian uint64, the label, the value's length likewise, and the value.
TEST_CASE("golden keys") {
  CHECK(sample_key().sha256 == "03e8efea877e5d688b2a3a6990ff1cba9524850f715c681dda7bca6cc8936121");
  const key::BuildKey build = key::make_build_key(sample_source(), sample_spec(), kConfig, "13.0.88");
  CHECK(build.sha256 == "d116bc6e9f663a361ac82266e5c4791dff11619243520108a9752b8d4b16998c");
  CHECK(build.config == R"({"BLOCK":128,"VEC":4})");
  CHECK(build.defines == R"([["BLOCK","128"],["VEC","4"]])");
  CHECK(build.options == R"(["--use_fast_math","-DX=1"])");
  CHECK(build.headers == R"(["cuda_fp16.h"])");
  test::TempDir dir;
  test::write_file(dir / "inc/a.h", "int a;\n");
  const auto source =
      key::hash_source("#include <a.h>\n#include <cuda_fp16.h>\n#include \"a.h\"\n", dir.path(), {dir / "inc"});
  REQUIRE(source.ok());
  CHECK(source->sha256 == "f419d32a767ebc607d0a25aedc2c28ac43b69db9ab7f0879b5e65767f99890c6");
}

TEST_CASE("every field of a build flips its key") {
  std::set<std::string> seen;
  const auto is_new = [&](const std::string& sha256) { return seen.insert(sha256).second; };
  using Spec = space::BuildSpec;
  CHECK(is_new(build_sha256([](Spec&) {})));
  CHECK(is_new(build_sha256([](Spec& s) { s.entry = "k<__half, 64>"; })));
  CHECK(is_new(build_sha256([](Spec& s) { s.is_template = false; })));
  CHECK(is_new(build_sha256([](Spec& s) { s.defines[0].second = "64"; })));
  CHECK(is_new(build_sha256([](Spec& s) { s.defines[0].first = "BLOCKS"; })));
  CHECK(is_new(build_sha256([](Spec& s) { s.defines.pop_back(); })));
  CHECK(is_new(build_sha256([](Spec& s) { s.defines_before_includes = true; })));
  CHECK(is_new(build_sha256([](Spec& s) { s.headers.clear(); })));
  CHECK(is_new(build_sha256([](Spec& s) { std::swap(s.options[0], s.options[1]); })));
  CHECK(is_new(build_sha256([](Spec& s) { s.options = {"--use_fast_math -DX=1"}; })));
  CHECK(is_new(build_sha256([](Spec& s) { s.options = {"--use_fast_math\",\"-DX=1"}; })));
  CHECK(is_new(build_sha256([](Spec& s) { s.options[1] = "-DX=\xff"; })));
  CHECK(is_new(build_sha256([](Spec& s) { s.options[1] = "-DX=\xfe"; })));
  CHECK(is_new(build_sha256([](Spec& s) { s.options[1] = "-DX=\xEF\xBF\xBD"; })));
  CHECK(is_new(build_sha256([](Spec& s) { s.arch = "sm_90"; })));
  CHECK(is_new(key::make_build_key(sample_source(), sample_spec(), kConfig, "13.0.89").sha256));
  CHECK(is_new(key::make_build_key(sample_source(), sample_spec(), {{"BLOCK", 128}, {"VEC", true}}, "13.0.88").sha256));
  CHECK(is_new(key::make_build_key({sha256_hex("other"), {}, {}}, sample_spec(), kConfig, "13.0.88").sha256));
  // Where things lie is no part of it; what the text is comes with the source's hash.
  CHECK_FALSE(is_new(build_sha256([](Spec& s) { s.include_dirs = {"/there", "/too"}; })));
  CHECK_FALSE(is_new(build_sha256([](Spec& s) { s.source_name = "elsewhere.cu"; })));
}

TEST_CASE("every field of a tuning key flips it, and differences names the field") {
  using Key = key::TuningKey;
  const std::vector<std::pair<std::string, std::function<void(Key&)>>> changes{
      {"schema: 1 / 2", [](Key& k) { k.schema = 2; }},
      {"kernel: rmsnorm / other", [](Key& k) { k.kernel = "other"; }},
      {"variant: hopper / (none)", [](Key& k) { k.variant = ""; }},
      {"source_sha256: ", [](Key& k) { k.source_sha256 = sha256_hex("x"); }},
      {"entry: ", [](Key& k) { k.entry += " "; }},
      {"options: ", [](Key& k) { k.options = "{}"; }},
      {"launch_sha256: ", [](Key& k) { k.launch_sha256 = sha256_hex("x"); }},
      {"problem: ", [](Key& k) { k.problem = R"({"T":"half","hidden":8193})"; }},
      {"arch: sm_90a / sm_90", [](Key& k) { k.arch = "sm_90"; }},
      {"cc: 90 / 91", [](Key& k) { k.cc = 91; }},
      {"sm_count: 132 / 114", [](Key& k) { k.sm_count = 114; }},
      {"memory_gib: 140 / 80", [](Key& k) { k.memory_gib = 80; }},
      {"l2_bytes: ", [](Key& k) { k.l2_bytes = 1; }},
      {"max_clock_mhz: 1980 / 1", [](Key& k) { k.max_clock_mhz = 1; }},
      {"max_memory_clock_mhz: 3201 / 1", [](Key& k) { k.max_memory_clock_mhz = 1; }},
      {"nvrtc: 13.0.88 / 12.9.86", [](Key& k) { k.nvrtc = "12.9.86"; }},
      {"policy: cold,median / warm", [](Key& k) { k.policy = "warm"; }},
      {"environment: ", [](Key& k) { k.environment = "{}"; }},
      {"callables: ", [](Key& k) { k.callables = "{}"; }},
  };
  const Key before = sample_key();
  std::set<std::string> seen{before.sha256};
  for (const auto& [line, change] : changes) {
    Key after = before;
    change(after);
    key::seal(after);
    CAPTURE(line);
    CHECK(seen.insert(after.sha256).second);
    const auto lines = key::differences(before, after);
    REQUIRE(lines.size() == 1);
    CHECK(lines[0].starts_with(line));
    CHECK(after.hashed_text != before.hashed_text);
  }
  CHECK(key::differences(before, before).empty());
  // Text does not wander between fields.
  Key shifted = before;
  shifted.kernel = "rmsnormh";
  shifted.variant = "opper";
  key::seal(shifted);
  CHECK(seen.insert(shifted.sha256).second);
  CHECK(before.hashed_text.find("sm_count = 132\n") != std::string::npos);
}

TEST_CASE("what a tuning key takes from a definition, a device and a problem") {
  const key::TuningKey key = Case().key();
  CHECK(key.kernel == "scale");
  CHECK(key.variant.empty());
  CHECK(key.problem == R"({"T":"half","n":1024})");
  CHECK(key.arch == "sm_90");
  CHECK(key.cc == 90);
  CHECK(key.sm_count == 132);
  CHECK(key.nvrtc == "13.0.88");
  CHECK(key.policy == "cold");
  CHECK(key.environment == "{}");
  CHECK(key.callables == "{}");
  CHECK(key.schema == key::kKeySchema);
  CHECK(key.sha256 == Case().key().sha256);
  key::TuningKey again = key;
  key::seal(again);
  CHECK(again.sha256 == key.sha256);
}

TEST_CASE("what an answer depends on flips the key") {
  std::set<std::string> seen;
  const auto is_new = [&](const std::function<void(Case&)>& change) { return seen.insert(sha256_with(change)).second; };
  CHECK(is_new([](Case&) {}));
  CHECK(is_new([](Case& c) { c.definition.name = "scale2"; }));
  CHECK(is_new([](Case& c) { c.definition.source_text += "\n"; }));
  CHECK(is_new([](Case& c) { c.definition.entry = "scale<{T}, 64>"; }));
  CHECK(is_new([](Case& c) { c.definition.options[0].option = "--fmad=false"; }));
  CHECK(is_new([](Case& c) { std::swap(c.definition.options[0], c.definition.options[1]); }));
  CHECK(is_new([](Case& c) { c.definition.options[1].when = "REGS > 8"; }));
  CHECK(is_new([](Case& c) { c.definition.derived[0].expression = "BLOCK * VEC * 2"; }));
  CHECK(is_new([](Case& c) { c.definition.launch.grid = {"ceil_div(n, TILE) + 1"}; }));
  CHECK(is_new([](Case& c) { c.definition.launch.shared_bytes = "1024"; }));
  CHECK(is_new([](Case& c) { c.definition.args[1].fill = Fill::zeros(); }));
  CHECK(is_new([](Case& c) { c.definition.args[1].count = "n + 1"; }));
  CHECK(is_new([](Case& c) { c.definition.args[0].tolerance = Tolerance::within(1e-2, 1e-2); }));
  CHECK(is_new([](Case& c) { c.definition.macros = Macros::before_includes; }));
  CHECK(is_new([](Case& c) { c.definition.arch = "sm_90a"; }));
  CHECK(is_new([](Case& c) { c.problem["T"] = "float"; }));
  CHECK(is_new([](Case& c) { c.problem["n"] = 1025; }));
  CHECK(is_new([](Case& c) { c.device.sm_count = 114; }));
  CHECK(is_new([](Case& c) { c.device.memory_bytes /= 2; }));
  CHECK(is_new([](Case& c) { c.device.l2_bytes /= 2; }));
  CHECK(is_new([](Case& c) { c.device.max_clock_mhz -= 1; }));
  CHECK(is_new([](Case& c) { c.device.max_memory_clock_mhz -= 1; }));
  CHECK(is_new([](Case& c) { c.nvrtc = ""; }));
  CHECK(is_new([](Case& c) { c.policy = "warm"; }));
  CHECK(is_new([](Case& c) { c.environment = R"({"CUDA_X":"1"})"; }));
  // How it is launched.
  CHECK(is_new([](Case& c) { c.definition.launch.block = {"BLOCK", "1"}; }));
  CHECK(is_new([](Case& c) { c.definition.launch.cluster = {"2"}; }));
  CHECK(is_new([](Case& c) { c.definition.launch.cooperative = true; }));
  CHECK(is_new([](Case& c) { c.definition.launch.programmatic_dependent = true; }));
  CHECK(is_new([](Case& c) { c.definition.args[0] = inout("y", "T", "n"); }));
  CHECK(is_new([](Case& c) { c.definition.args[0] = zeroed("y", "T", "n"); }));
  CHECK(is_new([](Case& c) { c.definition.args[0].name = "z"; }));
  CHECK(is_new([](Case& c) { c.definition.args[1].type = "float"; }));
  CHECK(is_new([](Case& c) { c.definition.args[2].value = "n - 1"; }));
  CHECK(is_new([](Case& c) { std::swap(c.definition.args[0], c.definition.args[1]); }));
  CHECK(is_new([](Case& c) { c.definition.args.push_back(scratch("s", "float", "TILE")); }));
  CHECK(is_new([](Case& c) { c.definition.args.push_back(symbol("coefficients", "float", "4")); }));
  // What it is compiled from, and as what.
  CHECK(is_new([](Case& c) {
    c.definition.headers = {{"a.h", "1"}}, c.definition.source_text += "#include \"a.h\"\n";
  }));
  CHECK(is_new([](Case& c) {
    c.definition.headers = {{"a.h", "2"}}, c.definition.source_text += "#include \"a.h\"\n";
  }));
  CHECK(is_new([](Case& c) { c.definition.problem[1].bucket = ""; }));
  CHECK(is_new([](Case& c) { c.definition.variants = {{.when = "device.cc >= 90", .name = "hopper"}}; }));
  CHECK(is_new([](Case& c) { c.definition.variants = {{.when = "device.cc >= 90", .name = "h"}}; }));
  // What its results are compared with.
  const auto naive = [](const char* entry, const char* source) {
    return Reference{.entry = entry, .source_text = source, .grid = {"1"}, .block = {"32"}};
  };
  CHECK(is_new([&](Case& c) { c.definition.reference = naive("naive", "extern \"C\" __global__ void naive() {}\n"); }));
  CHECK(
      is_new([&](Case& c) { c.definition.reference = naive("naive", "extern \"C\" __global__ void naive() {;}\n"); }));
  CHECK(is_new([&](Case& c) {
    c.definition.reference = naive("naive", "extern \"C\" __global__ void naive() {}\n");
    c.definition.reference->grid = {"2"};
  }));
  CHECK(is_new([](Case& c) { c.definition.host_reference = {"1", [](const ReferenceData&) {}}; }));
  CHECK(is_new([](Case& c) { c.definition.host_reference = {"2", [](const ReferenceData&) {}}; }));
}

TEST_CASE("what an answer does not depend on leaves the key alone") {
  const std::string before = sha256_with([](Case&) {});
  const auto same = [&](const std::function<void(Case&)>& change) { return sha256_with(change) == before; };
  CHECK(same([](Case& c) { c.definition.params[0].values.push_back(256); }));  // the space grows
  CHECK(same([](Case& c) { std::swap(c.definition.params[0], c.definition.params[1]); }));
  CHECK(same([](Case& c) { c.definition.require.clear(); }));
  CHECK(same([](Case& c) { c.definition.defaults[0].config[0].second = "128"; }));
  CHECK(same([](Case& c) { c.problem["n"] = 513; }));   // the same bucket
  CHECK(same([](Case& c) { c.problem["seed"] = 2; }));  // ignored
  CHECK(same([](Case& c) { c.device.name = "another name"; }));
  CHECK(same([](Case& c) { c.device.uuid = "GPU-2"; }));
  CHECK(same([](Case& c) { c.device.driver = "12.2"; }));
  CHECK(same([](Case& c) { c.device.memory_bytes += 100 << 20; }));  // what a driver keeps for itself
  CHECK(same([](Case& c) { c.definition.base_directory = "/tmp"; }));
  CHECK(same([](Case& c) { c.definition.headers = {{"nobody_includes_it.h", "1"}}; }));
  CHECK(same([](Case& c) { c.definition.variants = {{.when = "device.cc >= 100", .name = "blackwell"}}; }));
  CHECK(same([](Case& c) {
    c.definition.defaults.insert(c.definition.defaults.begin(),
                                 {"n > 5", {{"BLOCK", "128"}, {"VEC", "2"}, {"REGS", "0"}}});
  }));
  CHECK(same([](Case& c) {  // the same text in a file
    test::TempDir dir;
    test::write_file(dir / "scale.cu", std::exchange(c.definition.source_text, ""));
    c.definition.source_file = dir / "scale.cu";
    const std::string text = c.key().sha256;
    c = Case();
    CHECK(text == c.key().sha256);
  }));
}

TEST_CASE("keys are equal where all their fields are, and only there") {
  std::mt19937 random(7);
  const auto pick = [&](std::initializer_list<const char*> words) {
    return *(words.begin() + random() % words.size());
  };
  std::map<std::string, std::vector<std::string>> seen;  // fields by hash
  std::set<std::vector<std::string>> different;
  for (int i = 0; i < 5000; ++i) {
    key::TuningKey key = sample_key();
    // Texts that would be mistaken for one another where fields were only strung together.
    for (std::string* field : {&key.kernel, &key.variant, &key.entry, &key.options, &key.problem})
      *field = pick({"", "a", "aa", "a\n", "variant", "variant = a", "\0"}) + std::string(pick({"", "a", "\n"}));
    key.cc = static_cast<int>(random() % 3);
    key.sm_count = static_cast<int>(random() % 3);
    key::seal(key);
    const std::vector<std::string> fields{key.kernel,
                                          key.variant,
                                          key.entry,
                                          key.options,
                                          key.problem,
                                          std::to_string(key.cc),
                                          std::to_string(key.sm_count)};
    different.insert(fields);
    const auto [at, fresh] = seen.try_emplace(key.sha256, fields);
    REQUIRE((fresh || at->second == fields));
  }
  CHECK(seen.size() == different.size());
  CHECK(seen.size() > 4000);
}

// Keys of definitions, that of the day when they were frozen: a change here makes every user tune again.
TEST_CASE("golden keys of definitions") {
  CHECK(Case().key().sha256 == "663d7765dc35ffab11f31a128eedfec5ed2e931ac03e313bd79c7e45a9d45b8b");
  Case other;
  other.definition.variants = {{.when = "device.cc >= 90", .name = "hopper", .arch = "sm_90a"}};
  other.definition.headers = {{"a.h", "int a;"}};
  other.definition.source_text += "#include \"a.h\"\n";
  other.problem["T"] = "bfloat16";
  other.nvrtc = "12.9.86";
  CHECK(other.key().sha256 == "f4c6402b510a9082cc8c26289c765e0e0a10ddb4116448b9aa474dbefad0d05b");
}
