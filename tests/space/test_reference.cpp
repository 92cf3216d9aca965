// References of a definition: what is refused, how they are built and launched, what files say.
#include <cmath>
#include <functional>
#include <limits>

#include "jitune/reference_data.hpp"
#include "space/definition_json.hpp"
#include "space/instance.hpp"
#include "support/support.hpp"

using namespace jitune;
using namespace jitune::space;

namespace {

KernelDefinition definition() {
  return {.name = "k",
          .source_text = "// source of k",
          .entry = "k<{T}, {BLOCK}>",
          .problem = {"T", {"N", "pow2_ceil(N)"}},
          .derived = {{"HALF", "N / 2"}, {"TILE", "BLOCK * 2"}},
          .params = {{"BLOCK", {32, 64}}, {"DEPTH", {1, 2}}},
          .launch = {.grid = {"ceil_div(N, BLOCK)"}, .block = {"BLOCK"}},
          .args = {out("y", "T", "N"), in("x", "T", "N"), scratch("s", "T", "N * BLOCK"), scalar("n", "int", "N"),
                   scalar("tile", "int", "TILE")},
          .defaults = {{.config = {{"BLOCK", "64"}, {"DEPTH", "2"}}}},
          .reference = Reference{
              .entry = "plain<{T}>", .grid = {"ceil_div(HALF, 128)"}, .block = {"128"}, .args = {"n", "x", "y"}}};
}

Instance bind(const KernelDefinition& given) {
  auto bound = Instance::bind(Model::make(given), {{"T", Value("half")}, {"N", Value(1000)}}, *nominal_device("sm_90"));
  REQUIRE_MESSAGE(bound.ok(), bound.error());
  return *bound;
}

std::string refusal(const std::function<void(KernelDefinition&)>& change) {
  KernelDefinition changed = definition();
  change(changed);
  try {
    (void)Model::make(changed);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a reference in the kernel's source is built with a config's macros and launched by its own geometry") {
  const Instance instance = bind(definition());
  REQUIRE(instance.has_reference());
  const auto config = instance.default_config();
  REQUIRE(config.ok());
  const auto spec = instance.reference(*config);
  REQUIRE_MESSAGE(spec.ok(), spec.error());
  CHECK(spec->build.entry == "plain<__half>");
  CHECK(spec->build.is_template);
  CHECK(spec->build.source_text == "// source of k");
  CHECK(spec->build.headers == std::vector<std::string>{"cuda_fp16.h"});
  CHECK(spec->build.defines == std::vector<std::pair<std::string, std::string>>{{"DEPTH", "2"}, {"TILE", "128"}});
  CHECK(spec->geometry.grid[0] == 4);
  CHECK(spec->geometry.block[0] == 128);
  CHECK(spec->args == std::vector<int>{3, 1, 0});

  auto apart = definition();
  apart.reference->source_text = "// source of plain";
  apart.reference->options = {{"-DWIDE", "N > 100"}, {"-DNARROW", "N < 100"}};
  CHECK_FALSE(bind(definition()).reference_pattern().pattern == "");
  const auto own = bind([&] {
    apart.problem = {"T", "N"};  // exact: an option may depend on it
    return apart;
  }());
  const auto built = own.reference(*own.default_config());
  REQUIRE_MESSAGE(built.ok(), built.error());
  CHECK(built->build.source_text == "// source of plain");
  CHECK(built->build.defines.empty());
  CHECK(built->build.options == std::vector<std::string>{"-DWIDE"});
}

TEST_CASE("without a list a reference takes all buffers and scalars") {
  auto given = definition();
  given.args.pop_back();
  given.reference->args.clear();
  const Instance instance = bind(given);
  CHECK(instance.reference(*instance.default_config())->args == std::vector<int>{0, 1, 3});
}

TEST_CASE("a variant with another source keeps the reference of the kernel's source") {
  auto given = definition();
  given.variants = {{.when = "device.cc == 90", .source_text = "// source of the variant"}};
  const Instance instance = bind(given);
  CHECK(instance.variant() == "variant 1");
  const auto spec = instance.reference(*instance.default_config());
  REQUIRE(spec.ok());
  CHECK(spec->build.source_text == "// source of k");
  CHECK(spec->build.defines.empty());
}

TEST_CASE("what a reference can't be is refused at define, with the reason") {
  const std::pair<std::function<void(KernelDefinition&)>, const char*> rows[] = {
      {[](auto& d) { d.reference->entry = ""; }, "reference: the entry is missing"},
      {[](auto& d) { d.reference->entry = "plain<{BLOCK}>"; }, "reference: entry: 'BLOCK' depends on the config"},
      {[](auto& d) { d.reference->entry = "plain<{N}>"; }, "'N' has a bucket"},
      {[](auto& d) { d.reference->grid = {"BLOCK"}; }, "reference: launch.grid: 'BLOCK' depends on the config"},
      {[](auto& d) { d.reference->grid = {"TILE"}; }, "'TILE' depends on the config"},
      {[](auto& d) { d.reference->grid = {"kernel.regs"}; }, "after compiling"},
      {[](auto& d) { d.reference->block.clear(); }, "reference: launch needs grid and block"},
      {[](auto& d) {
         d.reference->args = {"y", "xx"};
       },
       "reference: args: no arg of the kernel is called 'xx'"},
      {[](auto& d) {
         d.reference->args = {"y", "s"};
       },
       "'s' is scratch, a tensor map or a symbol"},
      {[](auto& d) {
         d.reference->args = {"y", "tile"};
       },
       "'tile' depends on the config"},
      {[](auto& d) { d.reference->args.clear(); }, "'tile' depends on the config"},
      {[](auto& d) {
         d.reference->args = {"x", "n"};
       },
       "the output 'y' is missing"},
      {[](auto& d) { d.reference->options = {{"-c"}}; }, "reference: options: "},
      {[](auto& d) { d.reference->source_text = "a", d.reference->source_file = "b"; }, "keep one"},
      {[](auto& d) { d.reference->source_file = "/no/such.cu"; }, "reference: the source can't be read"},
      {[](auto& d) {
         d.host_reference = HostReference{"1", {}};
       },
       "keep one"},
      {[](auto& d) { d.reference.reset(), d.host_reference = HostReference{}; }, "needs a version"},
      {[](auto& d) {
         d.reference.reset(), d.host_reference = HostReference{"a b", {}};
       },
       "needs a version"},
  };
  for (const auto& [change, part] : rows) {
    CAPTURE(part);
    const std::string message = refusal(change);
    CHECK_MESSAGE(message.find(part) != std::string::npos, message);
  }
}

TEST_CASE("a file names a reference, and a host's function is refused in one") {
  const jitune::test::TempDir dir;
  const std::string head = R"(format = 1
name = "k"
source_text = "// source"
entry = "k<{BLOCK}>"
problem = ["N"]
params = { BLOCK = [32, 64] }
launch = { grid = ["N"], block = ["BLOCK"] }
defaults = [{ config = { BLOCK = 32 } }]
args = [{ out = "y", type = "float", count = "N" }, { in = "x", type = "float", count = "N" }]
)";
  jitune::test::write_file(dir / "k.toml", head + R"([reference]
entry = "plain"
source_text = "// plain"
options = ["--fmad=false"]
grid = ["N", 2]
block = 128
shared_bytes = "N * 4"
args = ["y", "x"]
)");
  const KernelDefinition loaded = load(dir / "k.toml");
  REQUIRE(loaded.reference.has_value());
  CHECK(loaded.reference->entry == "plain");
  CHECK(loaded.reference->source_text == "// plain");
  REQUIRE(loaded.reference->options.size() == 1);
  CHECK(loaded.reference->options[0].option == "--fmad=false");
  CHECK(loaded.reference->grid == std::vector<std::string>{"N", "2"});
  CHECK(loaded.reference->block == std::vector<std::string>{"128"});
  CHECK(loaded.reference->shared_bytes == "N * 4");
  CHECK(loaded.reference->args == std::vector<std::string>{"y", "x"});

  const auto message_of = [&](const std::string& text) -> std::string {
    jitune::test::write_file(dir / "bad.toml", head + text);
    try {
      (void)load(dir / "bad.toml");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  CHECK(message_of("[reference]\nentry = \"plain\"\ngird = [\"N\"]\n").find("did you mean 'grid'") !=
        std::string::npos);
  CHECK(message_of("[reference]\nentry = \"plain\"\ngrid = [\"BLOCK\"]\nblock = [32]\n")
            .find("reference: launch.grid: 'BLOCK' depends on the config") != std::string::npos);
  CHECK(message_of("host_reference = \"f\"\n").find("function of the host") != std::string::npos);
}

TEST_CASE("an author's perf_model: an expression in a file, or a function; mistakes are named") {
  jitune::test::TempDir dir;
  const auto with = [&](const std::string& line) {
    jitune::test::write_file(dir / "k.toml",
                             "format = 1\nname = \"k\"\nsource_text = \"extern \\\"C\\\" __global__ void k() {}\"\n"
                             "entry = \"k\"\nproblem = [\"N\"]\nderived = { WORK = \"ceil_div(N, BLOCK)\" }\n" +
                                 line +
                                 "\n[params]\nBLOCK = [32, 64]\n[launch]\ngrid = [\"WORK\"]\nblock = [\"BLOCK\"]\n"
                                 "[[defaults]]\nconfig = { BLOCK = 32 }\n");
    return load(dir / "k.toml");
  };
  const auto message_of = [&](const std::string& line) -> std::string {
    try {
      (void)with(line);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const auto bind = [](const KernelDefinition& definition) {
    auto bound = Instance::bind(Model::make(definition), {{"N", 320}}, *nominal_device("sm_90"));
    REQUIRE(bound.ok());
    return *bound;
  };
  KernelDefinition definition = with("perf_model = { expression = \"WORK * device.sm_count\", top_k = 7 }");
  CHECK(definition.perf_model->top_k == 7);
  CHECK(bind(definition).has_perf_model());
  CHECK(bind(definition).perf_model({{"BLOCK", 64}}) == 5 * nominal_device("sm_90")->sm_count);
  CHECK(bind(with("perf_model = \"1000 / (WORK - 5)\"")).perf_model({{"BLOCK", 64}}) ==
        std::numeric_limits<double>::infinity());
  CHECK_FALSE(bind(with("")).has_perf_model());
  CHECK(parse_definition(definition_text(definition))->perf_model->expression == "WORK * device.sm_count");
  CHECK(message_of("perf_model = \"WORK * BLOK\"").find("did you mean 'BLOCK'") != std::string::npos);
  CHECK(message_of("perf_model = \"kernel.regs\"").find("known only after compiling") != std::string::npos);
  CHECK(message_of("perf_model = { expression = \"1\", topk = 3 }").find("did you mean 'top_k'") != std::string::npos);
  CHECK(message_of("perf_model = { top_k = 3 }").find("needs an expression or a function") != std::string::npos);
  CHECK(message_of("perf_model = { expression = \"1\", top_k = 0 }").find("1 or more") != std::string::npos);
  definition.perf_model->function = [](const std::map<std::string, Value>& values) {
    return static_cast<double>(values.at("N").as_int() + values.at("WORK").as_int() + values.at("BLOCK").as_int()) / 2;
  };
  CHECK_THROWS_AS(Model::make(definition), Error);  // both
  definition.perf_model->expression.clear();
  CHECK(bind(definition).perf_model({{"BLOCK", 64}}) == (320 + 5 + 64) / 2.0);
  CHECK_FALSE(self_contained(*Model::make(definition)).perf_model.has_value());
}

TEST_CASE("a variant has a perf_model and features of its own, the kernel's, or none") {
  jitune::test::TempDir dir;
  const auto with = [&](const std::string& kernel, const std::string& variant) {
    jitune::test::write_file(dir / "k.toml",
                             "format = 1\nname = \"k\"\nsource_text = \"extern \\\"C\\\" __global__ void k() {}\"\n"
                             "entry = \"k\"\nproblem = [\"N\"]\n" +
                                 kernel +
                                 "\n[params]\nBLOCK = [32, 64]\n[launch]\ngrid = [1]\nblock = [\"BLOCK\"]\n"
                                 "[[defaults]]\nconfig = { BLOCK = 32 }\n"
                                 "[[variants]]\nwhen = \"N > 100\"\nname = \"large\"\n" +
                                 variant + "\n");
    return load(dir / "k.toml");
  };
  const auto message_of = [&](const std::string& kernel, const std::string& variant) -> std::string {
    try {
      (void)with(kernel, variant);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const auto bind = [](const KernelDefinition& definition, int n) {
    auto bound = Instance::bind(Model::make(definition), {{"N", n}}, *nominal_device("sm_90"));
    REQUIRE(bound.ok());
    return *bound;
  };
  const Config config{{"BLOCK", 64}};
  const std::string kernel = "perf_model = \"BLOCK + N\"\nfeatures = { intensity = \"N / BLOCK\", blocks = \"N % 3\" }";
  using Names = std::vector<std::string>;
  using Numbers = std::vector<double>;
  CHECK(bind(with(kernel, ""), 320).perf_model(config) == 384);
  CHECK(bind(with(kernel, ""), 320).feature_names() == Names{"blocks", "intensity"});
  CHECK(bind(with(kernel, ""), 320).features(config) == Numbers{2, 5});

  const std::string own =
      "perf_model = { expression = \"2 * BLOCK\", top_k = 9 }\nfeatures = { one = \"100 / (N - 320)\" }";
  KernelDefinition definition = with(kernel, own);
  CHECK(bind(definition, 320).perf_model(config) == 128);
  CHECK(bind(definition, 320).perf_model_top_k() == 9);
  CHECK(bind(definition, 320).feature_names() == Names{"one"});
  CHECK(std::isnan(bind(definition, 320).features(config).at(0)));
  CHECK(bind(definition, 50).perf_model(config) == 114);
  CHECK(bind(definition, 50).features(config) == Numbers{2, 0});
  const auto stored = parse_definition(definition_text(definition));
  REQUIRE(stored.ok());
  CHECK(bind(*stored, 321).features(config) == Numbers{100});
  CHECK(bind(*stored, 321).perf_model_top_k() == 9);

  CHECK_FALSE(bind(with(kernel, "perf_model = 0\nfeatures = {}"), 320).has_perf_model());
  CHECK(bind(with(kernel, "perf_model = 0\nfeatures = {}"), 320).feature_names().empty());
  CHECK(bind(with("", own), 320).has_perf_model());
  CHECK_FALSE(bind(with("", own), 50).has_perf_model());

  CHECK(message_of("", "perf_model = \"2 * BLOK\"").find("variant 'large': perf_model: ") != std::string::npos);
  CHECK(message_of("", "features = { f = \"2 * BLOK\" }").find("k.toml:") != std::string::npos);
  CHECK(message_of("", "features = { f = \"2 * BLOK\" }").find("did you mean 'BLOCK'") != std::string::npos);
  CHECK(message_of("features = { f = \"kernel.regs\" }", "").find("feature f: ") != std::string::npos);
  CHECK(message_of("features = { \"a b\" = 1 }", "").find("letters, digits and underscores") != std::string::npos);
  CHECK(message_of("features = \"N\"", "").find("features") != std::string::npos);
  CHECK(message_of(kernel, "params = { TILE = [1] }").find("variant 'large': ") != std::string::npos);

  // A function stays in its program; the variant that had it does not get the kernel's model instead.
  definition.variants[0].perf_model = PerfModel{
      .function = [](const std::map<std::string, Value>& values) { return double(values.at("BLOCK").as_int()) / 8; }};
  CHECK(bind(definition, 320).perf_model(config) == 8);
  CHECK_FALSE(bind(self_contained(*Model::make(definition)), 320).has_perf_model());
  CHECK(bind(self_contained(*Model::make(definition)), 50).perf_model(config) == 114);
  definition.variants[0].perf_model->expression = "BLOCK";
  CHECK_THROWS_AS(Model::make(definition), Error);  // both
}

TEST_CASE("stored definitions keep header texts and references; a host's function stays in its program") {
  auto given = definition();
  given.headers = {{"a.h", "// a"}};
  auto back = parse_definition(definition_text(given));
  REQUIRE(back.ok());
  REQUIRE(back->headers.size() == 1);
  CHECK(back->headers[0].text == "// a");
  REQUIRE(back->reference.has_value());
  CHECK(back->reference->args == given.reference->args);
  CHECK(definition_text(*back) == definition_text(given));
  given.reference.reset();
  given.host_reference = HostReference{"3", [](const ReferenceData&) {}};
  back = parse_definition(definition_text(given));
  REQUIRE(back.ok());
  CHECK(back->host_reference->version == "3");
  CHECK_FALSE(back->host_reference->function);
}

TEST_CASE("a reference function gets what it asks for by name and size, or an error that names it") {
  std::vector<float> x{1, 2}, y{0, 0};
  int n = 2;
  const ReferenceData data({{"y", ArgKind::out, Type::float32, 2, 4, y.data()},
                            {"x", ArgKind::in, Type::float32, 2, 4, x.data()},
                            {"n", ArgKind::scalar, Type::int32, 1, 4, &n}},
                           {{"N", Value(2)}});
  CHECK(data.in<float>("x")[1] == 2.0f);
  data.out<float>("y")[0] = 7;
  CHECK(y[0] == 7.0f);
  CHECK(data.scalar<int>("n") == 2);
  CHECK(data.problem("N").as_int() == 2);
  const auto message_of = [&](const std::function<void()>& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  CHECK(message_of([&] { (void)data.in<double>("x"); }).find("'x' has 4 bytes, the type asked for 8") !=
        std::string::npos);
  CHECK(message_of([&] { (void)data.in<float>("z"); }).find("'z', which is no arg") != std::string::npos);
  CHECK(message_of([&] { (void)data.in<float>("y"); }).find("use out()") != std::string::npos);
  CHECK(message_of([&] { (void)data.out<float>("x"); }).find("is no output") != std::string::npos);
  CHECK(message_of([&] { (void)data.problem("M"); }).find("'M'") != std::string::npos);
}
