#include <map>
#include <vector>

#include "base/json.hpp"
#include "run_prewarm.hpp"

using namespace jitune;
using namespace jitune::test;

namespace {

/// What one constraint may be charged with: a point that several reject is counted with one of them.
struct Bounds {
  int alone = 0;   ///< points that nothing else rejects
  int at_all = 0;  ///< points that it rejects
};

/// The scale kernel's space, walked by hand.
struct Walked {
  int product = 0, valid = 0;
  std::map<std::string, Bounds> rejected;
};

Walked walk(long n, int element_bytes) {
  Walked walked;
  for (const int block : {64, 128, 256, 512})
    for (const int vec : {1, 2, 3, 4, 8})
      for (int unroll = 1; unroll <= 2; ++unroll) {
        std::vector<std::string> by;
        if (n % vec != 0) by.emplace_back("n % VEC == 0");
        if (block * vec > 1024) by.emplace_back("TILE <= 1024");
        if (element_bytes * vec > 16) by.emplace_back("sizeof(T) * VEC <= 16");
        ++walked.product;
        if (by.empty()) ++walked.valid;
        for (const std::string& constraint : by) {
          ++walked.rejected[constraint].at_all;
          if (by.size() == 1) ++walked.rejected[constraint].alone;
        }
      }
  return walked;
}

}  // namespace

TEST_CASE("space counts what an independent walk counts") {
  TempDir home;
  write_scale_kernel(home.path());
  struct Case {
    const char* type;
    long n;
    int element_bytes;
  };
  for (const Case& item : {Case{"half", 4096, 2}, Case{"float", 3000, 4}, Case{"double", 7, 8}}) {
    CAPTURE(item.type);
    const ProgramResult result =
        prewarm(home.path(), "space scale.toml --arch sm_90 --json --problem T=" + std::string(item.type) +
                                 ",n=" + std::to_string(item.n));
    INFO(result.err);
    REQUIRE(result.exit_code == 0);
    const Json space = Json::parse(result.out).at("spaces").at(0);
    Walked walked = walk(item.n, item.element_bytes);
    CHECK(space.at("product") == walked.product);
    CHECK(space.at("valid") == walked.valid);
    CHECK(space.at("complete") == true);
    int rejected = 0;
    for (const Json& rejection : space.at("rejections")) {
      rejected += rejection.at("points").get<int>();
      CAPTURE(rejection.at("constraint"));
      const Bounds bounds = walked.rejected[rejection.at("constraint")];
      CHECK(rejection.at("points") >= bounds.alone);
      CHECK(rejection.at("points") <= bounds.at_all);
    }
    CHECK(rejected == walked.product - walked.valid);
  }
}

TEST_CASE("space shows the default config with its derived values and launch") {
  TempDir home;
  write_scale_kernel(home.path());
  const ProgramResult json = prewarm(home.path(), "space scale.toml --arch sm_90 --json --problem T=half,n=4100");
  INFO(json.err);
  REQUIRE(json.exit_code == 0);
  const Json fallback = Json::parse(json.out).at("spaces").at(0).at("default");
  CHECK(fallback.at("config") == Json{{"BLOCK", 128}, {"VEC", 4}, {"UNROLL", 1}});
  CHECK(fallback.at("derived") == Json{{"TILE", 512}});
  CHECK(fallback.at("launch").at("grid") == Json{9, 1, 1});
  CHECK(fallback.at("launch").at("block") == Json{128, 1, 1});
  CHECK(fallback.at("entry") == "scale<__half, 128, 4>");

  const ProgramResult text = prewarm(home.path(), "space scale.toml --arch sm_90 --samples 2 --problem T=half,n=4100");
  CHECK(text.exit_code == 0);
  CHECK(contains(text.out, "40 points"));
  CHECK(contains(text.out, "default config  BLOCK=128 UNROLL=1 VEC=4"));
  CHECK(contains(text.out, "TILE = 512"));
  CHECK(contains(text.out, "grid 9 x 1 x 1, block 128 x 1 x 1"));
  CHECK(contains(text.out, "#define UNROLL 1"));
}

TEST_CASE("space samples valid configs, the same ones for the same seed") {
  TempDir home;
  write_scale_kernel(home.path());
  const auto samples = [&](const std::string& seed) {
    const ProgramResult result = prewarm(
        home.path(), "space scale.toml --arch sm_90 --json --samples 6 --seed " + seed + " --problem T=half,n=4096");
    REQUIRE(result.exit_code == 0);
    return Json::parse(result.out).at("spaces").at(0).at("samples");
  };
  const Json first = samples("1");
  REQUIRE(first.size() == 6);
  for (const Json& config : first) {
    CHECK(4096 % config.at("VEC").get<int>() == 0);
    CHECK(config.at("VEC").get<int>() * config.at("BLOCK").get<int>() <= 1024);
  }
  CHECK(samples("1") == first);
  CHECK(samples("2") != first);
}

TEST_CASE("an empty space ends with the constraints that reject everything") {
  TempDir home;
  write_scale_kernel(home.path());
  std::string toml = content(home / "scale.toml");
  toml.replace(toml.find("TILE <= 1024"), 12,
               "TILE <= n / 1000");  // the default config is refused only once n is known
  write_file(home / "scale.toml", toml);
  for (const std::string command : {"space", "compile"}) {
    CAPTURE(command);
    const ProgramResult result = prewarm(home.path(), command + " scale.toml --arch sm_90 --problem T=half,n=4096");
    CHECK(result.exit_code == 6);
    CHECK(contains(result.err,
                   "scale T=half n=4096: no config is valid: of 40 points, 8 fail `n % VEC == 0`, 32 fail "
                   "`TILE <= n / 1000`"));
  }
  CHECK_FALSE(exists(home / "cache/jitune/jitune.db"));
}

TEST_CASE("a vast space costs nothing until asked, and is not compiled by accident") {
  TempDir home;
  write_scale_kernel(home.path());
  std::string toml = content(home / "scale.toml");
  std::string values = "1";
  for (int i = 2; i <= 100; ++i) values += ", " + std::to_string(i);
  for (const char* name : {"A", "B", "C", "D", "E"}) {
    toml.replace(toml.find("[launch]"), 8, std::string(name) + " = [" + values + "]\n[launch]");
    for (size_t at = toml.find("UNROLL = 1 }"); at != std::string::npos; at = toml.find("UNROLL = 1 }", at + 10))
      toml.replace(at, 12, std::string(name) + " = 1, UNROLL = 1 }");
  }
  write_file(home / "scale.toml", toml);
  const ProgramResult compiled =
      prewarm(home.path(), "compile scale.toml --arch sm_90 --problem T=half,n=4096", "", 30);
  CHECK(compiled.exit_code == 2);
  CHECK(contains(compiled.err, "--limit N or --defaults-only"));
  CHECK_FALSE(exists(home / "cache/jitune/jitune.db"));
}
