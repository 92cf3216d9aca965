// The definitions that come with jitune load, and lead from problem and config to builds, arguments and geometry.
#include <filesystem>

#include "jitune/definition.hpp"
#include "space/instance.hpp"
#include "support/support.hpp"

using namespace jitune;
using namespace jitune::space;

TEST_CASE("every definition in kernels_src loads and has a default config") {
  const std::string directory = std::string(JITUNE_SOURCE_DIR) + "/kernels_src";
  int loaded = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() != ".toml") continue;
    CAPTURE(entry.path().string());
    for (const KernelDefinition& definition : load_all(entry.path().string())) {
      CAPTURE(definition.name);
      const auto model = Model::make(definition);
      CHECK(model->name() == definition.name);
      ProblemValues problem;
      for (const ProblemValue& value : model->problem())
        problem[value.name] = value.name == "T" ? Value("half") : Value(4096);
      for (const char* arch : {"sm_80", "sm_90"}) {
        const auto instance = Instance::bind(model, problem, *nominal_device(arch));
        REQUIRE_MESSAGE(instance.ok(), (instance.ok() ? "" : instance.error()));
        const auto config = instance->default_config();
        REQUIRE_MESSAGE(config.ok(), (config.ok() ? "" : config.error()));
        const auto geometry = instance->geometry(*config);
        REQUIRE_MESSAGE(geometry.ok(), (geometry.ok() ? "" : geometry.error()));
        const auto build = instance->build(*config);
        REQUIRE_MESSAGE(build.ok(), (build.ok() ? "" : build.error()));
        const auto args = instance->args(*config);
        REQUIRE_MESSAGE(args.ok(), (args.ok() ? "" : args.error()));
        CHECK(instance->space().count().valid >= 1);
      }
    }
    ++loaded;
  }
  if (loaded == 0) test::skip("definitions", "kernels_src holds no .toml file");
}
