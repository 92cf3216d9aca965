// The bundled definitions: on every problem that the kernels are checked on, and every kind of card, the author's
// config is valid; and spaces hold what nested loops, written here by hand, find.
#include <algorithm>
#include <filesystem>
#include <set>

#include "gpu/kernel_problems.hpp"
#include "jitune/definition.hpp"
#include "space/instance.hpp"
#include "support/support.hpp"

using namespace jitune;
using namespace jitune::space;

namespace {

const std::string kKernels = std::string(JITUNE_SOURCE_DIR) + "/kernels_src";

Instance bind_problem(const std::string& kernel, const std::string& problem, const char* arch) {
  const auto model = Model::make(load(kKernels + "/" + kernel + ".toml"));
  const auto instance = Instance::bind(model, test::parse_problem(problem), *nominal_device(arch));
  if (!instance) FAIL(instance.error());
  return *instance;
}

using Texts = std::set<std::string>;

Texts configs(const Instance& instance) {
  Texts texts;
  instance.space().visit([&](const Config& config) { return texts.insert(canonical(config)).second; });
  return texts;
}

Texts gemm_by_hand(int64_t smem_kib) {
  Texts texts;
  for (const int bm : {64, 128, 256})
    for (const int bn : {64, 128, 256})
      for (const int bk : {32, 64})
        for (const int stages : {2, 3, 4, 5})
          for (const int wm : {32, 64})
            for (const int wn : {32, 64}) {
              const int warps = bm / wm * (bn / wn);
              if (warps < 2 || warps > 16 || warps * (wm * wn + 2048) > 65536) continue;
              if (int64_t{stages} * (bm + bn) * bk * 2 > smem_kib * 1024) continue;
              texts.insert(canonical({{"BM", bm}, {"BN", bn}, {"BK", bk}, {"STAGES", stages}, {"WM", wm}, {"WN", wn}}));
            }
  return texts;
}

Texts gemm_hopper_by_hand(int64_t smem_kib) {
  Texts texts;
  for (const int bm : {64, 128, 256})
    for (const int bn : {64, 128, 256})
      for (const int stages : {3, 4, 5, 6})
        for (const int consumers : {1, 2})
          for (const int cluster : {1, 2}) {
            if (bm < 64 * consumers || bm * bn > 16384 * consumers) continue;
            if (int64_t{stages} * ((bm + bn) * 128 + 16) + 1024 > smem_kib * 1024) continue;
            texts.insert(canonical(
                {{"BM", bm}, {"BN", bn}, {"STAGES", stages}, {"CONSUMERS", consumers}, {"CLUSTER", cluster}}));
          }
  return texts;
}

Texts softmax_by_hand(int element_bytes, int cols) {
  Texts texts;
  for (const int lanes : {32, 128, 256, 512, 1024})
    for (const int rows : {1, 2, 4, 8})
      for (const int vec : {1, 2, 4, 8})
        for (const int keep : {0, 2, 4, 8}) {
          if (lanes * rows < 128 || lanes * rows > 1024 || cols % vec != 0 || element_bytes * vec > 16) continue;
          if (keep > 2 && keep / 2 * lanes * vec >= cols) continue;
          if (lanes > 32 && lanes * vec > 2 * cols) continue;
          texts.insert(canonical({{"LANES", lanes}, {"ROWS", rows}, {"VEC", vec}, {"KEEP", keep}}));
        }
  return texts;
}

}  // namespace

TEST_CASE("every bundled kernel has problems, and its default config is valid for them on every card") {
  Texts seen;
  for (const auto& entry : std::filesystem::directory_iterator(kKernels)) {
    if (entry.path().extension() != ".toml") continue;
    CAPTURE(entry.path().string());
    for (const KernelDefinition& definition : load_all(entry.path().string())) {
      seen.insert(definition.name);
      const auto model = Model::make(definition);
      const auto problems = test::problems_of(definition.name);
      CHECK_MESSAGE(!problems.empty(), definition.name, " is missing in kernel_problems.cpp");
      for (const std::string& problem : problems) {
        for (const char* arch : {"sm_80", "sm_90", "sm_100", "sm_120"}) {
          CAPTURE(problem);
          CAPTURE(arch);
          const auto instance = Instance::bind(model, test::parse_problem(problem), *nominal_device(arch));
          REQUIRE_MESSAGE(instance.ok(), (instance.ok() ? "" : instance.error()));
          const auto config = instance->default_config();
          REQUIRE_MESSAGE(config.ok(), (config.ok() ? "" : config.error()));
          CHECK(instance->reject(*config).value_or("") == "");
          CHECK(instance->geometry(*config).ok());
          CHECK(instance->args(*config).ok());
        }
      }
    }
  }
  Texts expected;
  for (const auto& entry : test::kernel_problems()) expected.insert(entry.kernel);
  CHECK(seen == expected);
}

TEST_CASE("Hopper gets gemm's form of its own, everything else the general one") {
  const std::string problem = "T=half M=4096 N=4096 K=4096";
  CHECK(bind_problem("gemm", problem, "sm_90").variant() == "hopper");
  for (const char* arch : {"sm_80", "sm_86", "sm_89", "sm_100", "sm_120"})
    CHECK(bind_problem("gemm", problem, arch).variant().empty());
  const Instance hopper = bind_problem("gemm", problem, "sm_90");
  CHECK(hopper.build(*hopper.default_config())->arch == "sm_90a");
}

TEST_CASE("gemm's spaces hold what nested loops find") {
  const std::string problem = "T=half M=4096 N=4096 K=4096";
  const Instance hopper = bind_problem("gemm", problem, "sm_90");
  const size_t count = configs(hopper).size();
  CHECK(count >= 60);
  CHECK(count <= 400);
  CHECK(configs(hopper) == gemm_hopper_by_hand(227));
  struct Card {
    const char* arch;
    int64_t smem_kib;
  };
  for (const Card& card : {Card{"sm_80", 163}, {"sm_100", 227}, {"sm_120", 99}}) {
    CAPTURE(card.arch);
    CHECK(configs(bind_problem("gemm", problem, card.arch)) == gemm_by_hand(card.smem_kib));
  }
}

TEST_CASE("softmax's spaces hold what nested loops find") {
  for (const int cols : {1, 17, 1000, 4096, 4100, 131072}) {
    CAPTURE(cols);
    const std::string sizes = " rows=16 cols=" + std::to_string(cols);
    CHECK(configs(bind_problem("softmax", "T=half" + sizes, "sm_90")) == softmax_by_hand(2, cols));
    CHECK(configs(bind_problem("softmax", "T=float" + sizes, "sm_80")) == softmax_by_hand(4, cols));
  }
}

TEST_CASE("problems that gemm can't do are refused by name") {
  for (const char* problem : {"T=float M=64 N=64 K=64", "T=half M=64 N=60 K=64", "T=half M=64 N=64 K=4"}) {
    CAPTURE(problem);
    for (const char* arch : {"sm_80", "sm_90"}) {
      const Instance instance = bind_problem("gemm", problem, arch);
      CHECK(configs(instance).empty());
      const auto config = instance.default_config();
      REQUIRE_FALSE(config.ok());
      CHECK(config.error().find(std::string(problem).find("float") != std::string::npos ? "T == half" : "% 8 == 0") !=
            std::string::npos);
    }
  }
}
