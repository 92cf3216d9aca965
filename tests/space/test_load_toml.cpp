// TOML definitions: what they become, and how mistakes name file, line and remedy.
#include <cmath>
#include <cstring>

#include "space/definition_json.hpp"
#include "space/support.hpp"

using namespace jitune;
using namespace jitune::space;

namespace {

const char* const kGood = R"toml(format = 1
name   = "k"
source = "k.cu"
entry  = "k<{T}, {BLOCK}>"
options = ["--std=c++17", { option = "--maxrregcount={REGS}", when = "REGS > 0" }]
problem = ["T", "N", { bucket = "M", by = "pow2_ceil(M)" }, { name = "seed", ignore = true }]
derived = { SECOND = "FIRST * 2", FIRST = "BLOCK * 2" }
require = ["N % 2 == 0"]

[params]
BLOCK = [128, 256]
REGS = [0, 32]
FAST = [true, false]
LAYOUT = ["row", "column"]

[launch]
grid = ["M", 2]
block = "BLOCK"
shared_bytes = 1024
cooperative = false

[[args]]
out = "y"
type = "T"
count = "M * N"
tolerance = { rtol = 1e-2, atol = 1e-3, mismatch = 0.25, nan_equal = false }
[[args]]
inout = "acc"
type = "float"
count = "N"
fill = "zeros"
tolerance = "exact"
[[args]]
zeroed = "flags"
type = "int"
count = 4
[[args]]
in = "x"
type = "bytes"
count = "N"
pass = false
fill = { constant = 3 }
[[args]]
in = "table"
type = "int"
count = "N"
fill = { indices = "M" }
[[args]]
in = "file"
type = "float"
count = "N"
fill = { file = "x.bin" }
[[args]]
scratch = "work"
type = "float"
count = "BLOCK * kernel.regs"
[[args]]
scalar = "eps"
type = "float"
value = 1e-6
[[args]]
scalar = "n"
type = "int"
value = "N"
[[args]]
tensor_map = "map"
over = "x"
type = "uint8"
dims = ["N", 1]
strides_bytes = ["N"]
box = [64, 1]
swizzle = 64
l2_promotion = 128
oob_fill = "nan"
[[args]]
symbol = "c"
type = "double"
count = 15
fill = { uniform = [0.5, 1.5] }

[[variants]]
when = "device.cc == 90"
name = "hopper"
arch = "sm_90a"
[variants.params]
BLOCK = [512]
REGS = [0]
FAST = [true]
LAYOUT = ["row"]
[[variants.defaults]]
config = { BLOCK = 512, REGS = 0, FAST = true, LAYOUT = "row" }

[[defaults]]
when = "N > 64"
config = { BLOCK = "128 * 2", REGS = 0, FAST = true, LAYOUT = "row" }
[[defaults]]
config = { BLOCK = 128, REGS = 32, FAST = false, LAYOUT = "column" }
)toml";

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const size_t at = text.find(what);
  REQUIRE_MESSAGE(at != std::string::npos, what);
  return text.replace(at, what.size(), by);
}

struct Folder {
  test::TempDir dir;
  Folder() { test::write_file(dir / "k.cu", "template <class T, int BLOCK> __global__ void k();\n"); }
  std::string write(const std::string& text) {
    test::write_file(dir / "k.toml", text);
    return dir / "k.toml";
  }
};

}  // namespace

TEST_CASE("a definition with everything becomes the same thing as its C++ spelling") {
  Folder folder;
  const KernelDefinition d = load(folder.write(kGood));
  CHECK(d.name == "k");
  CHECK(d.source_file == "k.cu");
  CHECK(d.base_directory == folder.dir.path());
  CHECK(d.entry == "k<{T}, {BLOCK}>");
  REQUIRE(d.options.size() == 2);
  CHECK(d.options[0].option == "--std=c++17");
  CHECK(d.options[1].when == "REGS > 0");
  REQUIRE(d.problem.size() == 4);
  CHECK(d.problem[2].bucket == "pow2_ceil(M)");
  CHECK(d.problem[3].ignore);
  CHECK(d.derived.size() == 2);
  CHECK(d.require == std::vector<std::string>{"N % 2 == 0"});
  REQUIRE(d.params.size() == 4);
  for (const Param& param : d.params) {
    if (param.name == "FAST") CHECK(param.values == std::vector<Value>{true, false});
    if (param.name == "LAYOUT") CHECK(param.values == std::vector<Value>{"row", "column"});
    if (param.name == "BLOCK") CHECK(param.values == std::vector<Value>{128, 256});
  }
  CHECK(d.launch.grid == std::vector<std::string>{"M", "2"});
  CHECK(d.launch.block == std::vector<std::string>{"BLOCK"});
  CHECK(d.launch.shared_bytes == "1024");
  REQUIRE(d.args.size() == 11);
  CHECK(d.args[0].kind == ArgKind::out);
  CHECK_FALSE(d.args[0].tolerance->exact);
  CHECK(d.args[0].tolerance->rtol == 1e-2);
  CHECK(d.args[0].tolerance->mismatch == 0.25);
  CHECK_FALSE(d.args[0].tolerance->nan_equal);
  CHECK(d.args[1].kind == ArgKind::inout);
  CHECK(d.args[1].fill.kind == Fill::Kind::zeros);
  CHECK(d.args[1].tolerance->exact);
  CHECK(d.args[2].kind == ArgKind::zeroed);
  CHECK(d.args[2].count == "4");
  CHECK_FALSE(d.args[3].pass);
  CHECK(d.args[3].fill.kind == Fill::Kind::constant);
  CHECK(d.args[3].fill.low == 3);
  CHECK(d.args[4].fill.bound == "M");
  CHECK(d.args[5].fill.path == "x.bin");
  CHECK(d.args[6].kind == ArgKind::scratch);
  CHECK(d.args[7].kind == ArgKind::scalar);
  CHECK(d.args[8].value == "N");
  CHECK(d.args[9].over == "x");
  CHECK(d.args[9].dims == std::vector<std::string>{"N", "1"});
  CHECK(d.args[9].oob_nan);
  CHECK(d.args[9].swizzle == 64);
  CHECK(d.args[9].l2_promotion == 128);
  CHECK(d.args[10].kind == ArgKind::symbol);
  CHECK(d.args[10].fill.high == 1.5);
  REQUIRE(d.variants.size() == 1);
  CHECK(d.variants[0].name == "hopper");
  CHECK(d.variants[0].arch == "sm_90a");
  CHECK(d.variants[0].params->size() == 4);
  CHECK_FALSE(d.variants[0].launch.has_value());
  REQUIRE(d.defaults.size() == 2);
  CHECK(d.defaults[0].when == "N > 64");

  const ProblemValues problem{{"T", "half"}, {"N", 128}, {"M", 3}, {"seed", 1}};
  const Instance instance = bind_or_fail(d, problem, "sm_80");
  CHECK(short_text(*instance.default_config()) == "BLOCK=256 FAST=true LAYOUT=row REGS=0");
  KernelFacts facts;
  facts.regs = 10;
  const auto args = instance.args(*instance.default_config(), facts);
  if (!args) FAIL(args.error());
  CHECK((*args)[5].fill.path == folder.dir / "x.bin");
  const float eps = 1e-6f;
  CHECK(std::memcmp((*args)[7].scalar.data(), &eps, 4) == 0);
  CHECK(instance.build(*instance.default_config())->include_dirs == std::vector<std::string>{folder.dir.path()});
  CHECK(bind_or_fail(d, problem, "sm_90").variant() == "hopper");
}

TEST_CASE("decimal scalars keep every digit") {
  Folder folder;
  for (const auto& [written, expected] : {std::pair{"0.1", 0.1},
                                          {"1e-300", 1e-300},
                                          {"-2.5", -2.5},
                                          {"0.30000000000000004", 0.1 + 0.2},
                                          {"inf", HUGE_VAL}}) {
    std::string text = replaced(kGood, "value = 1e-6", std::string("value = ") + written);
    text = replaced(text, "scalar = \"eps\"\ntype = \"float\"", "scalar = \"eps\"\ntype = \"double\"");
    const Instance instance =
        bind_or_fail(load(folder.write(text)), {{"T", "half"}, {"N", 128}, {"M", 3}, {"seed", 1}}, "sm_80");
    KernelFacts facts;
    facts.regs = 10;
    const auto args = instance.args(*instance.default_config(), facts);
    REQUIRE(args.ok());
    double value = 0;
    std::memcpy(&value, (*args)[7].scalar.data(), 8);
    CHECK(value == expected);
  }
}

TEST_CASE("several kernels of one file share its source") {
  Folder folder;
  const std::string text = R"(format = 1
source = "k.cu"
options = ["-DSHARED"]
[[kernel]]
name = "a"
entry = "a<{BLOCK}>"
params = { BLOCK = [32] }
launch = { grid = 1, block = "BLOCK" }
defaults = [{ config = { BLOCK = 32 } }]
[[kernel]]
name = "b"
entry = "b"
source_text = "own"
options = []
configs = [{ BLOCK = 32, V = 1 }, { BLOCK = 64, V = 2 }]
launch = { grid = 1, block = "BLOCK" }
defaults = [{ config = { BLOCK = 64, V = 2 } }]
)";
  const std::string path = folder.write(text);
  const auto all = load_all(path);
  REQUIRE(all.size() == 2);
  CHECK(all[0].source_file == "k.cu");
  CHECK(all[0].options.size() == 1);
  CHECK(all[1].source_text == "own");
  CHECK(all[1].source_file.empty());
  CHECK(all[1].options.empty());
  CHECK(all[1].configs.size() == 2);
  CHECK(load(path, "b").name == "b");
  CHECK_THROWS_WITH_AS(load(path), doctest::Contains("say which one: a, b"), Error);
  CHECK_THROWS_WITH_AS(load(path, "c"), doctest::Contains("no kernel is called 'c'"), Error);
  CHECK_THROWS_WITH_AS(load_all(folder.write(replaced(text, "name = \"b\"", "name = \"a\""))),
                       doctest::Contains("two kernels are called 'a'"), Error);
  CHECK_THROWS_WITH_AS(load_all(folder.write(replaced(text, "options = [\"-DSHARED\"]", "require = [\"1\"]"))),
                       doctest::Contains("k.toml:3: the top level of a file with several kernels has no key `require`"),
                       Error);
}

TEST_CASE("headers can be given as text, for all kernels of a file or for one") {
  Folder folder;
  const std::string text = R"(format = 1
source = "k.cu"
headers = { "tile.h" = "int tile;", "deep/value.h" = """
int value;
""" }
[[kernel]]
name = "a"
entry = "a"
params = { BLOCK = [32] }
launch = { grid = 1, block = "BLOCK" }
defaults = [{ config = { BLOCK = 32 } }]
[[kernel]]
name = "b"
entry = "b"
headers = { "own.h" = "" }
params = { BLOCK = [32] }
launch = { grid = 1, block = "BLOCK" }
defaults = [{ config = { BLOCK = 32 } }]
)";
  const auto all = load_all(folder.write(text));
  REQUIRE(all.size() == 2);
  REQUIRE(all[0].headers.size() == 2);
  CHECK(all[0].headers[0].name == "deep/value.h");
  CHECK(all[0].headers[0].text == "int value;\n");
  CHECK(all[0].headers[1].name == "tile.h");
  REQUIRE(all[1].headers.size() == 1);
  CHECK(all[1].headers[0].name == "own.h");
  CHECK_THROWS_WITH_AS(load_all(folder.write(replaced(text, "\"own.h\" = \"\"", "\"own.h\" = 3"))),
                       doctest::Contains("own.h"), Error);
  KernelDefinition twice = all[1];
  twice.headers.push_back(twice.headers[0]);
  CHECK_THROWS_WITH_AS(space::Model::make(twice), doctest::Contains("two texts have the same name"), Error);
  twice.headers = {{"a\nb", ""}};
  CHECK_THROWS_WITH_AS(space::Model::make(twice), doctest::Contains("can't stand in an #include"), Error);
  twice.headers = {{"a.h", std::string("x\0y", 3)}};
  CHECK_THROWS_WITH_AS(space::Model::make(twice), doctest::Contains("zero byte"), Error);
}

TEST_CASE("mistakes name the file, the line and what to change") {
  struct Row {
    const char *what, *by;
    int line;
    const char* part;
  };
  const Row rows[] = {
      {"format = 1", "", 1, "`format = 1` is missing"},
      {"format = 1", "format = 2", 1, "reads format = 1"},
      {"format = 1", "format = \"1\"", 1, "reads format = 1"},
      {"name   =", "nmae =", 2, "no key `nmae` (did you mean 'name'?)"},
      {"name   = \"k\"", "name = 3", 2, "name must be a string, not integer"},
      {"[params]", "[params", 10, "not TOML"},
      {"[params]", "[parms]", 10, "did you mean 'params'"},
      {"shared_bytes = 1024", "shared = 1024", 19, "no key `shared`"},
      {"shared_bytes = 1024", "shared_bytes = 1.5", 19, "an expression in quotes or an integer"},
      {"cooperative = false", "cooperative = 1", 20, "must be true or false"},
      {"entry  =", "[[steps]]\n[top]\nentry =", 4, "several steps are to come"},
      {"require = [", "prune = \"f\"\nrequire = [", 8, "to come; say it as `require`"},
      {"require = [", "checker = \"f\"\nrequire = [", 8, "function of the host"},
      {"require = [", "tune_at = [1]\nrequire = [", 8, "an entry of tune_at must be a table"},
      {"require = [", "tune_at = [{ weight = 1 }]\nrequire = [", 8, "needs a problem"},
      {"require = [", "tune_at = [{ problem = { M = 8 }, weigth = 1 }]\nrequire = [", 8, "did you mean 'weight'"},
      {"require = [", "tune_at = [{ problem = { M = 8 }, weight = 0 }]\nrequire = [", 8, "must be more than 0"},
      {"require = [", "tune_at = [{ problem = { MM = 8 } }]\nrequire = [", 8,
       "no problem value 'MM' (did you mean 'M'?)"},
      {"require = [", "tune_at = [{ problem = { M = \"K + 1\" } }]\nrequire = [", 8, "'K' is not known"},
      {"require = [", "tune_at = [{ problem = { M = \"BLOCK + 1\" } }]\nrequire = [", 8, "BLOCK"},
      {"require = [", "tune_at = [{ problem = { M = \"seed + 1\" } }]\nrequire = [", 8, "which keys ignore"},
      {"require = [", "tune_at = [{ problem = { N = 8 } }]\nrequire = [", 6, "no problem value with a bucket"},
      {"require = [\"N % 2", "require = [\"NN % 2", 8, "did you mean 'N'"},
      {"N % 2 == 0", "0 < N < 5", 8, "chained"},
      {"\"FIRST * 2\"", "\"FIRTS * 2\"", 7, "did you mean 'FIRST'"},
      {"\"FIRST * 2\"", "1.5", 7, "an expression in quotes"},
      {"BLOCK = [128, 256]", "BLOCK = []", 11, "'BLOCK' has no values"},
      {"BLOCK = [128, 256]", "BLOCK = 128", 11, "must be an array"},
      {"BLOCK = [128, 256]", "BLOCK = [128, 1.5]", 11, "a value of BLOCK must be"},
      {"BLOCK = [128, 256]", "while = [128, 256]", 11, "C++ keyword"},
      {"out = \"y\"", "output = \"y\"", 22, "one of in, out, inout"},
      {"out = \"y\"", "out = \"y\"\nin = \"z\"", 22, "not both"},
      {"count = \"M * N\"", "count = \"M * K\"", 25, "'K' is not known"},
      {"count = \"M * N\"", "cuont = \"M * N\"", 25, "did you mean 'count'"},
      {"type = \"T\"", "type = \"U\"", 24, "no type word"},
      {"tolerance = \"exact\"", "tolerance = \"exactly\"", 32, "must be \"exact\""},
      {"rtol = 1e-2", "rtoll = 1e-2", 26, "did you mean 'rtol'"},
      {"fill = \"zeros\"", "fill = \"zeroes\"", 31, "did you mean 'zeros'"},
      {"fill = \"zeros\"", "fill = { zeros = 1 }", 31, "write fill = \"zeros\""},
      {"fill = \"zeros\"", "fill = { normal = [1.0] }", 31, "needs two numbers"},
      {"fill = \"zeros\"", "fill = { normal = [0.0, 1.0], ones = 1 }", 31, "must have one of"},
      {"fill = { constant = 3 }", "value = 3", 42, "no key `value`"},
      {"oob_fill = \"nan\"", "oob_fill = \"inf\"", 74, "must be \"zeros\" or \"nan\""},
      {"swizzle = 64", "swizzle = 48", -1, "swizzle must be"},
      {"when = \"device.cc == 90\"\n", "", -1, "`when` is missing"},
      {"by = \"pow2_ceil(M)\"", "bye = \"pow2_ceil(M)\"", 6, "did you mean 'by'"},
      {", by = \"pow2_ceil(M)\"", "", 6, "needs `by`"},
      {"{ name = \"seed\", ignore = true }", "{ ignore = true }", 6, "a problem value is"},
      {"when = \"REGS > 0\"", "whenn = \"REGS > 0\"", 5, "did you mean 'when'"},
      {"\"--std=c++17\"", "\"--gpu-architecture=sm_90\"", 5, "`arch`"},
      {"k.cu", "none.cu", 3, "none.cu"},
      {"config = { BLOCK = \"128 * 2\"", "config = { BLOK = \"128 * 2\"", -1, "did you mean 'BLOCK'"},
      {"BLOCK = \"128 * 2\"", "BLOCK = \"128 * 3\"", 95, "128, 256"},
  };
  for (const Row& row : rows) {
    const std::string what = row.what, by = row.by;
    CAPTURE(what);
    CAPTURE(by);
    Folder folder;
    const std::string path = folder.write(replaced(kGood, what, by));
    try {
      load(path);
      FAIL_CHECK("it was accepted");
    } catch (const Error& error) {
      const std::string message = error.message();
      CHECK((error.code() == ErrorCode::bad_definition || error.code() == ErrorCode::bad_expression));
      CHECK_MESSAGE(message.find(row.part) != std::string::npos, message);
      CHECK_MESSAGE(message.find(path + ":" + (row.line > 0 ? std::to_string(row.line) + ":" : "")) == 0, message);
    }
  }
}

TEST_CASE("representatives of buckets are read, and come through the stored form of a definition") {
  Folder folder;
  const auto read = load(folder.write(replaced(kGood, "require = [",
                                               "tune_at = [{ problem = { M = \"M / 2 + 1\" }, weight = 2.5 }, { "
                                               "problem = { M = \"M\", T = \"half\" } }]\nrequire = [")));
  REQUIRE(read.tune_at.size() == 2);
  CHECK(read.tune_at[0].problem == std::vector<std::pair<std::string, std::string>>{{"M", "M / 2 + 1"}});
  CHECK(read.tune_at[0].weight == 2.5);
  CHECK(read.tune_at[1].problem.size() == 2);
  CHECK(read.tune_at[1].weight == 1);
  const auto again = space::parse_definition(space::definition_text(read));
  REQUIRE(again.ok());
  REQUIRE(again->tune_at.size() == 2);
  CHECK(again->tune_at[0].problem == read.tune_at[0].problem);
  CHECK(again->tune_at[0].weight == 2.5);
}

TEST_CASE("a missing file is named, and errors of expressions keep their column") {
  CHECK_THROWS_WITH_AS(load("/none/k.toml"), doctest::Contains("/none/k.toml: there is no such file"), Error);
  Folder folder;
  try {
    load(folder.write(replaced(kGood, "N % 2 == 0", "N % QQQ == 0")));
    FAIL("it was accepted");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::bad_expression);
    CHECK(error.kernel() == "k");
    CHECK(error.text() == "N % QQQ == 0");
    CHECK(error.column() == 5);
  }
}

TEST_CASE("the line of a mistake is that of the part it is in, where the same text stands elsewhere too") {
  const std::string text = R"(format = 1
source = "k.cu"
[[kernel]]
name = "a"
entry = "k<int, {BLOCK}>"
problem = ["n"]
require = ["n % BLOCK == 0"]
params = { BLOCK = [1, 2] }
launch = { grid = ["n"], block = ["BLOCK"] }
args = [{ in = "x", type = "int", count = "n" }]
defaults = [{ config = { BLOCK = 1 } }]
[[kernel]]
name = "b"
entry = "k<int, {BLOCK}>"
problem = ["n"]
require = ["n % BLOCK == 0"]
[kernel.params]
BLOCK = [1, 2]
ITEMS = [1, 2]
[kernel.launch]
grid = ["n"]
block = ["BLOCK"]
[[kernel.args]]
in = "x"
type = "int"
count = "n"
[[kernel.args]]
scalar = "n"
type = "int"
value = "n"
[[kernel.defaults]]
when = "n > 1"
config = { BLOCK = 1, ITEMS = 1 }
[[kernel.defaults]]
config = { BLOCK = 2, ITEMS = 1 }
)";
  const std::string second = text.substr(text.find("name = \"b\""));
  struct Row {
    const char *what, *by;
    int line;
    const char* part;
  };
  const Row rows[] = {
      {"BLOCK = [1, 2]", "BLOK = [1, 2]", 16, "did you mean 'BLOK'"},
      {"scalar = \"n\"\ntype = \"int\"", "scalar = \"n\"", 28, "arg 'n': the type is missing"},
      {"scalar = \"n\"", "scalar = \"\"", 28, "an arg's name"},
      {"value = \"n\"", "value = \"\"", 28, "a scalar needs a value"},
      {"count = \"n\"", "count = \"n +\"", 26, "the expression ends"},
      {"ITEMS = [1, 2]", "n = [1, 2]", 19, "a param has the name 'n'"},
      {"BLOCK = 1, ITEMS = 1", "BLOCK = 1", 31, "leaves out 'ITEMS'"},
      {"BLOCK = 2, ITEMS = 1", "BLOCK = 2, ITEMS = 3", 35, "not in its list"},
      {"BLOCK = 2, ITEMS = 1", "BLOCK = 2, X = 1", 35, "names 'X'"},
      {"grid = [\"n\"]", "grid = [\"\"]", 20, "an expression is empty"},
      {"require = [\"n % BLOCK == 0\"]", "require = [\"\"]", 16, "an expression is empty"},
      {"problem = [\"n\"]", "problem = [\"\", \"n\"]", 15, "a problem value's name"},
  };
  for (const Row& row : rows) {
    const std::string what = row.what, by = row.by;
    CAPTURE(what);
    CAPTURE(by);
    Folder folder;
    const std::string path = folder.write(text.substr(0, text.size() - second.size()) + replaced(second, what, by));
    try {
      load_all(path);
      FAIL_CHECK("it was accepted");
    } catch (const Error& error) {
      const std::string message = error.message();
      CHECK_MESSAGE(message.find(row.part) != std::string::npos, message);
      CHECK_MESSAGE(message.find(path + ":" + std::to_string(row.line) + ":") == 0, message);
    }
  }
  // A text that is too long to be shown whole is found all the same.
  Folder folder;
  std::string sum = "1";
  while (sum.size() < 5000) sum += " + 1";
  const std::string path = folder.write(replaced(text, "[\"n % BLOCK == 0\"]", "[\n  \"" + sum + "\"]"));
  CHECK_THROWS_WITH_AS(load_all(path), doctest::Contains((path + ":8: require: longer than").c_str()), Error);
}
