#include <algorithm>

#include "compile/source.hpp"
#include "support/support.hpp"

using namespace jitune;
using compile::specialise;

namespace {

std::string with_defines(const std::string& source) {
  space::BuildSpec spec;
  spec.source_text = source;
  spec.source_name = "k.cu";
  spec.defines = {{"B", "64"}};
  return specialise(spec);
}

const std::string kDefine = "#undef B\n#define B 64\n";

}  // namespace

TEST_CASE("defines come after the leading includes, and lines keep their numbers") {
  CHECK(with_defines("// a kernel\n#include <a.h>\n\n#include \"b.h\"\n__global__ void k() {}\n") ==
        "#line 1 \"k.cu\"\n// a kernel\n#include <a.h>\n\n#include \"b.h\"\n" + kDefine +
            "#line 5 \"k.cu\"\n__global__ void k() {}\n");
}

TEST_CASE("without an include they come first") {
  CHECK(with_defines("__global__ void k() {}\n") == kDefine + "#line 1 \"k.cu\"\n__global__ void k() {}\n");
  CHECK(with_defines("") == kDefine + "#line 1 \"k.cu\"\n");
  // An include further down is the author's business: the code before it must see the defines.
  CHECK(with_defines("int x;\n#include <a.h>\n") == kDefine + "#line 1 \"k.cu\"\nint x;\n#include <a.h>\n");
}

TEST_CASE("headers of type words come before all") {
  space::BuildSpec spec;
  spec.source_text = "#include <a.h>\nint x;\n";
  spec.source_name = "k.cu";
  spec.defines = {{"B", "64"}};
  spec.headers = {"cuda_bf16.h", "cuda_fp16.h"};
  CHECK(specialise(spec) == "#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n#line 1 \"k.cu\"\n#include <a.h>\n" +
                                kDefine + "#line 2 \"k.cu\"\nint x;\n");
  spec.defines_before_includes = true;
  CHECK(specialise(spec) ==
        "#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n" + kDefine + "#line 1 \"k.cu\"\n#include <a.h>\nint x;\n");
}

TEST_CASE("what the leading block is made of") {
  struct Case {
    const char* name;
    std::string head, tail;  ///< the defines belong between them
  };
  const Case cases[] = {
      {"block comments, pragmas", "/* a\n * b */\n#pragma once\n#include <a.h> /* c\n d */\n", "int x;\n"},
      {"macros before an include", "#define HOST 1\n#undef Y\n#include <a.h>\n", "#define LATER 2\nint x;\n"},
      {"a default of the author's own comes after", "#include <a.h>\n", "#ifndef B\n#define B 16\n#endif\nint x;\n"},
      {"a conditional with includes is kept whole",
       "#include <a.h>\n#if X\n#include <b.h>\n#else\n#include <c.h>\n#endif\n", "#ifdef Y\nint x;\n#endif\n"},
      {"nested ones too", "#ifdef A\n# ifdef B2\n#  include <a.h>\n# endif\n#endif\n", "int x;\n"},
      {"an include guard is seen through", "#ifndef K_CU\n#define K_CU\n#include <a.h>\n", "int x;\n#endif\n"},
      {"code within a conditional ends the block before it", "#include <a.h>\n",
       "#ifdef FAST\n#include <b.h>\nint fast;\n#endif\nint x;\n"},
      {"joined lines", "#include \\\n  <a.h>\n", "int x;\n"},
      {"spaces in directives", "  #  include <a.h>\n", "int x;\n"},
      {"CRLF", "// c\r\n#include <a.h>\r\n", "int x;\r\n"},
      {"only includes", "#include <a.h>\n", ""},
      {"a comment that looks like an include", "", "// #include <a.h>\n/* #include <b.h> */\nint x;\n"},
      {"an include in a string is code", "", "const char* s = \"\\n#include <a.h>\";\n"},
      {"an unclosed comment", "#include <a.h>\n", "/* never ends\n#include <b.h>\n"},
      {"a stray endif", "#include <a.h>\n", "#endif\nint x;\n"},
  };
  for (const Case& one : cases) {
    INFO(one.name);
    const auto lines = std::count(one.head.begin(), one.head.end(), '\n') + 1;
    const std::string first = one.head.empty() ? "" : "#line 1 \"k.cu\"\n" + one.head;
    CHECK(with_defines(one.head + one.tail) ==
          first + kDefine + "#line " + std::to_string(lines) + " \"k.cu\"\n" + one.tail);
  }
}

TEST_CASE("an include on the last line without a newline") {
  CHECK(with_defines("#include <a.h>") == "#line 1 \"k.cu\"\n#include <a.h>\n" + kDefine + "#line 1 \"k.cu\"\n");
}

TEST_CASE("a byte order mark is dropped, and names are quoted") {
  space::BuildSpec spec;
  spec.source_text = "\xEF\xBB\xBFint x;\n";
  spec.source_name = "a \"b\"\\c.cu";
  CHECK(specialise(spec) == "#line 1 \"a \\\"b\\\"\\\\c.cu\"\nint x;\n");
}
