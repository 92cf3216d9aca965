// What is refused when a definition is made, and how it is said.
#include <functional>

#include "space/form_builder.hpp"
#include "space/support.hpp"

using namespace jitune;
using namespace jitune::space;

namespace {

struct Row {
  std::string what;
  std::function<void(KernelDefinition&)> change;
  const char* part;  ///< of the message
  const char* text = nullptr;
  int column = -1;
};

void check_rows(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    CAPTURE(row.what);
    KernelDefinition definition = small_definition();
    definition.args = {out("y", "float", "N"), in("x", "float", "N"), scalar("n", "int", "N")};
    CHECK_NOTHROW(Model::make(definition));
    row.change(definition);
    try {
      Model::make(definition);
      FAIL_CHECK("it was accepted");
    } catch (const Error& error) {
      CHECK((error.code() == ErrorCode::bad_definition || error.code() == ErrorCode::bad_expression));
      CHECK(error.kernel() == definition.name);
      CHECK_MESSAGE(error.message().find(row.part) != std::string::npos, std::string(error.what()));
      if (row.text != nullptr) CHECK_MESSAGE(error.text() == row.text, std::string(error.what()));
      if (row.column >= 0) CHECK_MESSAGE(error.column() == row.column, std::string(error.what()));
    }
  }
}

using D = KernelDefinition;

}  // namespace

TEST_CASE("names, source and entry") {
  check_rows({
      {"no name", [](D& d) { d.name = ""; }, "needs a name"},
      {"name with a space", [](D& d) { d.name = "a b"; }, "without spaces"},
      {"no source", [](D& d) { d.source_text = ""; }, "source is missing"},
      {"two sources", [](D& d) { d.source_file = "x.cu"; }, "keep one"},
      {"missing file", [](D& d) { d.source_text = "", d.source_file = "/none/x.cu"; }, "/none/x.cu"},
      {"missing include", [](D& d) { d.include = {"/none/dir"}; }, "no directory '/none/dir'"},
      {"no entry", [](D& d) { d.entry = ""; }, "entry is missing"},
      {"unknown brace", [](D& d) { d.entry = "k<{BLOK}>"; }, "did you mean 'BLOCK'", "k<{BLOK}>", 4},
      {"formula in braces", [](D& d) { d.entry = "k<{BLOCK * 2}>"; }, "one name", "k<{BLOCK * 2}>", 3},
      {"open brace", [](D& d) { d.entry = "k<{BLOCK>"; }, "closing brace", "k<{BLOCK>", 3},
      {"stray brace", [](D& d) { d.entry = "k<BLOCK}>"; }, "without an opening", "k<BLOCK}>", 8},
      {"device in braces", [](D& d) { d.entry = "k<{device.cc}>"; }, "derived value", "k<{device.cc}>", 4},
      {"kernel in braces", [](D& d) { d.entry = "k<{kernel.regs}>"; }, "after compiling"},
      {"entry is no name", [](D& d) { d.entry = "<{BLOCK}>"; }, "begin with the kernel's name"},
      {"plain entry with more", [](D& d) { d.entry = "k {BLOCK}"; }, "extern \"C\""},
      {"bucket in entry",
       [](D& d) {
         d.problem = {{"N", "pow2_ceil(N)"}}, d.entry = "k<{BLOCK}, {N}>";
       },
       "bucket", "k<{BLOCK}, {N}>", 13},
      {"ignored in entry",
       [](D& d) {
         d.problem = {{"N", "", true}}, d.entry = "k<{BLOCK}, {N}>";
       },
       "`ignore`"},
      {"derived from a bucket in entry",
       [](D& d) {
         d.problem = {{"N", "pow2_ceil(N)"}};
         d.derived = {{"TILES", "ceil_div(N, BLOCK)"}};
         d.entry = "k<{BLOCK}, {TILES}>";
       },
       "is derived from"},
      {"arch", [](D& d) { d.arch = "compute_90"; }, "sm_90", "compute_90"},
      {"arch suffix", [](D& d) { d.arch = "sm_90x"; }, "sm_90"},
  });
}

TEST_CASE("params, derived and problem values") {
  check_rows({
      {"no values", [](D& d) { d.params[0].values.clear(); }, "'BLOCK' has no values"},
      {"double value", [](D& d) { d.params[0].values.emplace_back(64); }, "64 twice"},
      {"second name of the same type",
       [](D& d) {
         d.params.push_back({"ACC", {"int", "int32"}});
       },
       "int32 twice"},
      {"mixed kinds", [](D& d) { d.params[0].values.emplace_back("auto"); }, "mixes kinds"},
      {"bool and int",
       [](D& d) {
         d.params.push_back({"F", {true, 1}});
       },
       "mixes kinds"},
      {"number as a word",
       [](D& d) {
         d.params.push_back({"F", {"12"}});
       },
       "without quotes"},
      {"true as a word",
       [](D& d) {
         d.params.push_back({"F", {"true"}});
       },
       "without quotes"},
      {"line end in a word",
       [](D& d) {
         d.params.push_back({"F", {"a\nb"}});
       },
       "line ends"},
      {"double name",
       [](D& d) {
         d.params.push_back({"BLOCK", {1}});
       },
       "'BLOCK', which a param has already"},
      {"name of a problem value",
       [](D& d) {
         d.params.push_back({"N", {1}});
       },
       "which a problem value has"},
      {"bad name",
       [](D& d) {
         d.params.push_back({"a-b", {1}});
       },
       "letters, digits"},
      {"name begins with a digit",
       [](D& d) {
         d.params.push_back({"1a", {1}});
       },
       "letters, digits"},
      {"keyword",
       [](D& d) {
         d.params.push_back({"while", {1}});
       },
       "C++ keyword"},
      {"type word",
       [](D& d) {
         d.params.push_back({"half", {1}});
       },
       "type word"},
      {"function",
       [](D& d) {
         d.params.push_back({"ceil_div", {1}});
       },
       "expressions use this word"},
      {"device", [](D& d) { d.problem.emplace_back("device"); }, "expressions use this word"},
      {"double problem value", [](D& d) { d.problem.emplace_back("N"); }, "given twice"},
      {"bucket and ignore",
       [](D& d) {
         d.problem = {{"N", "N", true}};
       },
       "meaningless"},
      {"bucket over a param",
       [](D& d) {
         d.problem = {{"N", "N / BLOCK"}};
       },
       "is a param", "N / BLOCK", 5},
      {"bucket over the device",
       [](D& d) {
         d.problem = {{"N", "N / device.cc"}};
       },
       "only problem values"},
      {"too many params",
       [](D& d) {
         for (int i = 0; i < 64; ++i) d.params.push_back({"P" + std::to_string(i), {1}});
       },
       "at most 64"},
      {"too many points",
       [](D& d) {
         for (int i = 0; i < 60; ++i) d.params.push_back({"P" + std::to_string(i), {1, 2, 3, 4, 5}});
       },
       "2^128"},
      {"derived cycle",
       [](D& d) {
         d.derived = {{"A1", "B1 + 1"}, {"B1", "A1 + 1"}};
       },
       "computed from itself"},
      {"derived of itself",
       [](D& d) {
         d.derived = {{"A1", "A1"}};
       },
       "computed from itself"},
      {"derived twice",
       [](D& d) {
         d.derived = {{"A1", "1"}, {"A1", "2"}};
       },
       "a derived value has already"},
      {"derived over kernel.*",
       [](D& d) {
         d.derived = {{"A1", "kernel.regs"}};
       },
       "after compiling", "kernel.regs", 1},
      {"unknown in derived",
       [](D& d) {
         d.derived = {{"A1", "BLOC"}};
       },
       "did you mean 'BLOCK'", "BLOC", 1},
      {"words in arithmetic",
       [](D& d) {
         d.params.push_back({"L", {"row", "col"}}), d.require = {"L * 2 > 1"};
       },
       "'L' holds words", "L * 2 > 1", 1},
      {"sizeof of numbers", [](D& d) { d.require = {"sizeof(BLOCK) > 1"}; }, "'BLOCK' does not hold"},
      {"number and type",
       [](D& d) {
         d.require = {"N > 1", "sizeof(N) > 1"};
       },
       "a number in N > 1"},
      {"params and configs",
       [](D& d) {
         d.configs = {{{"BLOCK", 64}}};
       },
       "both given"},
      {"incomplete config",
       [](D& d) {
         d.params.clear(), d.configs = {{{"BLOCK", 128}, {"V", 1}}, {{"BLOCK", 64}}};
       },
       "no value for 'V'"},
      {"config twice",
       [](D& d) {
         d.params.clear(), d.configs = {{{"BLOCK", 128}}, {{"BLOCK", 128}}};
       },
       "in the list twice"},
  });
}

TEST_CASE("macros") {
  check_rows({
      {"double underscore",
       [](D& d) {
         d.params.push_back({"A__B", {1}}), d.defaults[0].config.emplace_back("A__B", "1");
       },
       "belong to the compiler"},
      {"underscore and capital",
       [](D& d) {
         d.derived = {{"_Tile", "1"}};
       },
       "belong to the compiler"},
      {"one letter before includes",
       [](D& d) {
         d.derived = {{"B", "1"}}, d.macros = Macros::before_includes;
       },
       "one letter"},
      {"underscore before includes",
       [](D& d) {
         d.derived = {{"_b", "1"}}, d.macros = Macros::before_includes;
       },
       "leading underscore"},
  });
  KernelDefinition definition = small_definition();
  definition.derived = {{"B", "1"}, {"_b", "2"}};
  CHECK_NOTHROW(Model::make(definition));  // after the includes they do no harm
  definition.macros = Macros::before_includes;
  definition.entry = "k<{BLOCK}, {B}, {_b}>";
  CHECK_NOTHROW(Model::make(definition));  // nor as template arguments
}

TEST_CASE("require, launch and defaults") {
  check_rows({
      {"unknown in require",
       [](D& d) {
         d.require = {"BLOCK > 1", "1 + M > 2"};
       },
       "'M' is not known", "1 + M > 2", 5},
      {"kernel in require", [](D& d) { d.require = {"kernel.regs < 64"}; }, "after compiling", "kernel.regs < 64", 1},
      {"unknown device name", [](D& d) { d.require = {"device.sms > 1"}; }, "device.sm_count", "device.sms > 1", 1},
      {"chained", [](D& d) { d.require = {"64 <= BLOCK <= 256"}; }, "chained", "64 <= BLOCK <= 256", 13},
      {"no grid", [](D& d) { d.launch.grid.clear(); }, "grid and block"},
      {"no block", [](D& d) { d.launch.block.clear(); }, "grid and block"},
      {"four dimensions",
       [](D& d) {
         d.launch.grid = {"1", "1", "1", "1"};
       },
       "three dimensions"},
      {"kernel in block", [](D& d) { d.launch.block = {"kernel.regs"}; }, "only the grid"},
      {"kernel in shared bytes", [](D& d) { d.launch.shared_bytes = "kernel.regs"; }, "after compiling"},
      {"no defaults", [](D& d) { d.defaults.clear(); }, "obligatory"},
      {"last rule with when", [](D& d) { d.defaults[0].when = "N > 1"; }, "must have no `when`", "N > 1"},
      {"a rule that hides others", [](D& d) { d.defaults.push_back(d.defaults[0]); }, "never apply"},
      {"unknown param in a rule", [](D& d) { d.defaults[0].config.emplace_back("BLOK", "1"); }, "did you mean 'BLOCK'"},
      {"param left out", [](D& d) { d.defaults[0].config.clear(); }, "leaves out 'BLOCK'"},
      {"param twice", [](D& d) { d.defaults[0].config.emplace_back("BLOCK", "64"); }, "'BLOCK' twice"},
      {"value not in the list",
       [](D& d) {
         d.defaults[0].config = {{"BLOCK", "96"}};
       },
       "64, 128, 256", "96"},
      {"value over a param",
       [](D& d) {
         d.defaults[0].config = {{"BLOCK", "BLOCK"}};
       },
       "is a param"},
      {"value over kernel.*",
       [](D& d) {
         d.defaults[0].config = {{"BLOCK", "kernel.regs"}};
       },
       "after compiling"},
      {"constant default that a constraint rejects", [](D& d) { d.require = {"BLOCK != 128"}; }, "a constraint rejects",
       "BLOCK != 128"},
      {"the same through a derived value",
       [](D& d) {
         d.derived = {{"T2", "BLOCK * 2"}}, d.require = {"T2 > 256"};
       },
       "a constraint rejects", "T2 > 256"},
      {"default not in the list of configs",
       [](D& d) {
         d.params.clear();
         d.configs = {{{"BLOCK", 64}, {"V", 1}}, {{"BLOCK", 128}, {"V", 2}}};
         d.defaults = {{.config = {{"BLOCK", "128"}, {"V", "1"}}}};
       },
       "not in the list of configs"},
  });
}

TEST_CASE("args") {
  const auto tensor_map = [](const char* over) {
    Arg arg{.kind = ArgKind::tensor_map, .name = "map", .type = "float"};
    arg.over = over;
    arg.dims = {"N", "1"};
    arg.strides_bytes = {"N * 4"};
    arg.box = {"64", "1"};
    return arg;
  };
  check_rows({
      {"double name", [](D& d) { d.args.push_back(in("x", "float", "N")); }, "two args are called 'x'"},
      {"bad name", [](D& d) { d.args[0].name = "a b"; }, "letters, digits"},
      {"no type", [](D& d) { d.args[0].type = ""; }, "type is missing"},
      {"unknown type", [](D& d) { d.args[0].type = "Params"; }, "Structs can't be arguments", "Params"},
      {"near type", [](D& d) { d.args[0].type = "flaot"; }, "did you mean 'float'"},
      {"pointer type", [](D& d) { d.args[0].type = "float*"; }, "without *"},
      {"no count", [](D& d) { d.args[0].count = ""; }, "count is missing"},
      {"unknown in count", [](D& d) { d.args[0].count = "2 * M"; }, "'M' is not known", "2 * M", 5},
      {"output sized by the config", [](D& d) { d.args[0].count = "N * BLOCK"; }, "depends on the config", "N * BLOCK",
       5},
      {"kernel.* in count of an input", [](D& d) { d.args[1].count = "kernel.regs"; }, "after compiling"},
      {"a number as a type", [](D& d) { d.args[0].type = "N"; }, "needs a type word"},
      {"scalar without a value", [](D& d) { d.args[2].value = ""; }, "needs a value"},
      {"scalar with a count", [](D& d) { d.args[2].count = "1"; }, "no count"},
      {"decimal for an integer", [](D& d) { d.args[2].value = "0.5"; }, "no integer"},
      {"fp8 scalar", [](D& d) { d.args[2].type = "fp8_e4m3"; }, "fp8"},
      {"bytes scalar", [](D& d) { d.args[2].type = "bytes"; }, "bytes"},
      {"value of a buffer", [](D& d) { d.args[0].value = "1"; }, "only a scalar"},
      {"fill of an output", [](D& d) { d.args[0].fill = Fill::zeros(); }, "poisoned or zeroed"},
      {"normal deviation", [](D& d) { d.args[1].fill = Fill::normal(0, -1); }, "negative"},
      {"uniform bounds", [](D& d) { d.args[1].fill = Fill::uniform(2, 1); }, "above the upper"},
      {"integers", [](D& d) { d.args[1].fill = Fill::integers(0.5, 1); }, "must be integers"},
      {"indices of floats", [](D& d) { d.args[1].fill = Fill::indices("N"); }, "integer type"},
      {"indices without a bound", [](D& d) { d.args[1].type = "int", d.args[1].fill = Fill::indices(""); }, "empty"},
      {"tolerance of an input", [](D& d) { d.args[1].tolerance = Tolerance{}; }, "for outputs"},
      {"negative tolerance", [](D& d) { d.args[0].tolerance = Tolerance::within(-1, 0); }, "0 or more"},
      {"mismatch", [](D& d) { d.args[0].tolerance = Tolerance::within(0, 0, 2); }, "from 0 to 1"},
      {"bytes with a tolerance", [](D& d) { d.args[0].type = "bytes", d.args[0].tolerance = Tolerance::within(1, 1); },
       "compared exactly"},
      {"pass of a scalar", [](D& d) { d.args[2].pass = false; }, "pass = false"},
      {"unseen buffer", [](D& d) { d.args[1].pass = false; }, "can't see it"},
      {"map over nothing", [&](D& d) { d.args.push_back(tensor_map("z")); }, "no arg is called 'z'"},
      {"map over a scalar", [&](D& d) { d.args.push_back(tensor_map("n")); }, "is no buffer"},
      {"map without over", [&](D& d) { d.args.push_back(tensor_map("")); }, "needs `over`"},
      {"box of another rank", [&](D& d) { d.args.push_back(tensor_map("x")), d.args[3].box = {"1"}; }, "box must have"},
      {"strides of another rank", [&](D& d) { d.args.push_back(tensor_map("x")), d.args[3].strides_bytes.clear(); },
       "strides_bytes"},
      {"six dimensions", [&](D& d) { d.args.push_back(tensor_map("x")), d.args[3].dims.assign(6, "1"); },
       "one to five"},
      {"swizzle", [&](D& d) { d.args.push_back(tensor_map("x")), d.args[3].swizzle = 16; }, "swizzle must be"},
      {"dims of a buffer", [](D& d) { d.args[1].dims = {"N"}; }, "belong to a tensor_map"},
  });
}

TEST_CASE("variants") {
  check_rows({
      {"without when", [](D& d) { d.variants = {{.when = ""}}; }, "`when` is missing"},
      {"when over a param", [](D& d) { d.variants = {{.when = "BLOCK > 1"}}; },
       "variant 'variant 1': when: 'BLOCK' is a param"},
      {"two of one name",
       [](D& d) {
         d.variants = {{.when = "1", .name = "v"}, {.when = "1", .name = "v"}};
       },
       "two variants"},
      {"params without defaults",
       [](D& d) {
         d.variants = {{.when = "1", .params = {{{"TILE", {1}}}}}};
       },
       "variant 'variant 1'"},
      {"names of the kernel are gone",
       [](D& d) {
         d.variants = {{.when = "1",
                        .entry = "k<{TILE}>",
                        .params = {{{"TILE", {1}}}},
                        .defaults = {{{.config = {{"TILE", "1"}}}}}}};
       },
       "'BLOCK' is not known"},
  });
}

TEST_CASE("options that only change what NVRTC says are told from those that may change the code") {
  for (const char* silent :
       {"-w", "--disable-warnings", "--diag-suppress=177,20283", "-diag-warn=1", "--ptxas-options=-v", "-Xptxas=-v",
        "--brief-diagnostics=true", "--no-display-error-number"}) {
    CAPTURE(silent);
    CHECK_FALSE(changes_code(silent));
    CHECK(why_refused(silent).empty());
  }
  // An error made of a warning decides whether there is code at all; a list in the next option may hold anything.
  for (const char* other : {"--diag-error=177", "--diag-suppress", "-lineinfo", "-G", "-wd", "--ptxas-options=-O1",
                            "--ptxas-options=-v,-O1", "--use_fast_math", "-DX=-w", "w", ""}) {
    CAPTURE(other);
    CHECK(changes_code(other));
  }
}

TEST_CASE("options that jitune sets, that write files or need a link step are refused with the reason") {
  const std::pair<const char*, const char*> refused[] = {{"--gpu-architecture=sm_90", "`arch`"},
                                                         {"-arch=sm_90", "`arch`"},
                                                         {"--no-cache", "itself"},
                                                         {"--device-as-default-execution-space", "itself"},
                                                         {"-default-device", "itself"},
                                                         {"--pch", "files"},
                                                         {"--create-pch=x", "files"},
                                                         {"-time=x", "files"},
                                                         {"--time=x", "files"},
                                                         {"-o=x", "files"},
                                                         {"--fdevice-time-trace=x", "files"},
                                                         {"-rdc=true", "link step"},
                                                         {"--relocatable-device-code=true", "link step"},
                                                         {"-dc", "link step"},
                                                         {"-dlto", "link step"},
                                                         {"--ptx", "link step"},
                                                         {"-c", "link step"},
                                                         {"-I/usr/include", "`include`"},
                                                         {"--include-path=/x", "`include`"},
                                                         {"--pre-include=x.h", "`include`"},
                                                         {"", "empty"},
                                                         {"-DX\n", "line end"},
                                                         {"@file", "files of options"},
                                                         {" -DX", "space"}};
  for (const auto& [option, part] : refused) {
    CAPTURE(option);
    const std::string why = why_refused(option);
    CHECK_MESSAGE(why.find(part) != std::string::npos, why);
  }
  for (const char* option :
       {"--std=c++20", "-std=c++17", "--use_fast_math", "--maxrregcount=32", "-DX=1", "-lineinfo", "-G",
        "--extra-device-vectorization", "-rdc=false", "--define-macro=Y", "--fmad=false", "-w"}) {
    CAPTURE(option);
    CHECK(why_refused(option).empty());
  }
  check_rows({
      {"in a definition", [](D& d) { d.options = {{"--gpu-architecture=sm_90"}}; }, "`arch`",
       "--gpu-architecture=sm_90", 1},
      {"unknown in an option", [](D& d) { d.options = {{"-DX={FOO}"}}; }, "'FOO'", "-DX={FOO}", 6},
      {"bucket in an option",
       [](D& d) {
         d.problem = {{"N", "pow2_ceil(N)"}}, d.options = {{"-DX={N}"}};
       },
       "bucket"},
      {"bucket in when",
       [](D& d) {
         d.problem = {{"N", "pow2_ceil(N)"}}, d.options = {{"-DX", "N > 4"}};
       },
       "bucket", "N > 4", 1},
      {"kernel.* in when",
       [](D& d) {
         d.options = {{"-DX", "kernel.regs > 4"}};
       },
       "after compiling"},
  });
}

TEST_CASE("the model keeps the definition, with second type names replaced") {
  KernelDefinition definition = small_definition();
  definition.params.push_back({"ACC", {"float32", "double"}});
  definition.defaults[0].config.emplace_back("ACC", "float32");
  const auto model = Model::make(definition);
  CHECK(model->definition().params[1].values[0] == Value("float"));
  CHECK(model->name() == "k");
  CHECK(model->problem().size() == 1);
  CHECK(model->forms().size() == 1);
  CHECK(model->buckets().size() == 1);
  CHECK(model->buckets()[0].empty());
}
