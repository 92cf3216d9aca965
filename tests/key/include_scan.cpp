#include "key/include_scan.hpp"

#include <doctest/doctest.h>

#include "support/support.hpp"

using jitune::key::Include;
using jitune::key::scan_includes;
using Form = jitune::key::Include::Form;

namespace {

/// `"a.h" <b.h> MACRO next<c.h>`, for short comparisons.
std::string scan(std::string_view text) {
  std::string out;
  for (const Include& include : scan_includes(text)) {
    if (!out.empty()) out += ' ';
    if (include.next) out += "next";
    out += include.form == Form::quoted   ? '"' + include.name + '"'
           : include.form == Form::angled ? '<' + include.name + '>'
                                          : include.name;
  }
  return out;
}

}  // namespace

TEST_CASE("includes are found in every spelling that a preprocessor takes") {
  CHECK(scan("") == "");
  CHECK(scan("#include \"a.h\"\n#include <b/c.h>\n") == "\"a.h\" <b/c.h>");
  CHECK(scan("#include<a>") == "<a>");
  CHECK(scan("  \t # \t include \t \"a.h\" // why\n") == "\"a.h\"");
  CHECK(scan("/* here */ # /* and */ include /* there */ <a.h>") == "<a.h>");
  CHECK(scan("/* over\n lines */#include <a.h>") == "<a.h>");
  CHECK(scan("%:include <a.h>\n") == "<a.h>");
  CHECK(scan("#include_next <a.h>\n#import \"b.h\"\n") == "next<a.h> \"b.h\"");
  CHECK(scan("#include HEADER\n#include NAME(x) // end\n#include CAT(a, /* b */\n") == "HEADER NAME(x) CAT(a,");
  CHECK(scan("#include \"odd \\ name'.h\"\n") == "\"odd \\ name'.h\"");
}

TEST_CASE("lines may be joined anywhere, and end in any way") {
  CHECK(scan("#inc\\\nlude <a\\\n.h>\n#include <b.h>") == "<a.h> <b.h>");
  CHECK(scan("#\\\r\ninclude \"a.h\"\r\n#include \"b.h\"\r\n") == "\"a.h\" \"b.h\"");
  CHECK(scan("\xEF\xBB\xBF#include <a.h>\r\n") == "<a.h>");
  CHECK(scan("// joined \\\n#include <no.h>\n#include <yes.h>") == "<yes.h>");
  CHECK(scan("/\\\n* no *\\\n/ #include <yes.h>") == "<yes.h>");
  CHECK(scan("#include <a.h>\\") == "<a.h>");
}

TEST_CASE("what stands in comments and literals is no include") {
  CHECK(scan("// #include <no.h>\n") == "");
  CHECK(scan("/*\n#include <no.h>\n*/") == "");
  CHECK(scan("/* unterminated\n#include <no.h>\n") == "");
  CHECK(scan("const char* s = \"/*\";\n#include <yes.h>\n// */") == "<yes.h>");
  CHECK(scan("const char* s = \"\\\"//\"; /* \" */\n#include <yes.h>") == "<yes.h>");
  CHECK(scan("char c = '\"';\n#include <yes.h>\nchar d = '\\'';\n#include <too.h>") == "<yes.h> <too.h>");
  CHECK(scan("const char* s = R\"(\n#include <no.h>\n)\";\n#include <yes.h>\n") == "<yes.h>");
  CHECK(scan("auto s = u8R\"x(\n)\"\n#include <no.h>\n)x\";\n#include <yes.h>\n") == "<yes.h>");
  CHECK(scan("auto s = LR\"(\\\n#include <no.h>)\";\n#include <yes.h>\n") == "<yes.h>");
  CHECK(scan("auto s = R\"(unterminated\n#include <no.h>\n") == "");
  CHECK(scan("auto s = FOOR\"(\";\n#include <yes.h>\n") == "<yes.h>");  // an identifier that ends in R
  CHECK(scan("int n = 1'000'000;\n#include <yes.h>\nint m = 0x1'F;\n") == "<yes.h>");
  CHECK(scan("#error don't\n#include <yes.h>\n") == "<yes.h>");
  CHECK(scan("const char* s = \"unterminated\n#include <yes.h>\n") == "<yes.h>");
}

TEST_CASE("conditionals are not evaluated, and other directives are passed over") {
  CHECK(scan("#if 0\n#include <a.h>\n#else\n#include <b.h>\n#endif\n") == "<a.h> <b.h>");
  CHECK(scan("#if __has_include(<no.h>) && __has_include(\"no.h\")\n#include <a.h>\n#endif") == "<a.h>");
  CHECK(scan("#define INCLUDE #include <no.h>\n") == "");
  CHECK(scan("x #include <no.h>\n") == "");
  CHECK(scan("#includes <no.h>\n#pragma include <no.h>\n#\n#include\n#include \"\"\n#include <no\n#include \"no\n") ==
        "");
  CHECK(scan("# define A \"\\\n\"\n#include <a.h>") == "<a.h>");
}

TEST_CASE("any bytes are scanned to their end") {
  std::string noise;
  unsigned state = 1;
  static constexpr char kAlphabet[] = "#include<>\"'\\/*R()\n\r \tx0%:\0\xff";
  for (int round = 0; round < 3000; ++round) {
    noise.clear();
    for (int i = 0; i < 60; ++i) {
      state = state * 1664525 + 1013904223;
      noise += kAlphabet[(state >> 16) % (sizeof kAlphabet - 1)];
    }
    for (const Include& include : scan_includes(noise)) CHECK_FALSE(include.name.empty());
  }
  CHECK(scan(std::string("\0#include <no.h>\n#include <yes.h>", 33)) == "<yes.h>");
}
