#pragma once

#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "jitune/definition.hpp"
#include "space/instance.hpp"
#include "support/support.hpp"

namespace jitune::space {

/// A definition that is valid and as small as can be; tests change one thing of it.
inline KernelDefinition small_definition() {
  KernelDefinition definition;
  definition.name = "k";
  definition.source_text = "template <int BLOCK> __global__ void k() {}";
  definition.entry = "k<{BLOCK}>";
  definition.problem = {"N"};
  definition.params = {{"BLOCK", {64, 128, 256}}};
  definition.launch = {.grid = {"ceil_div(N, BLOCK)"}, .block = {"BLOCK"}};
  definition.defaults = {{.config = {{"BLOCK", "128"}}}};
  return definition;
}

/// A definition that is only a space: one block of one thread, whatever the config.
inline KernelDefinition space_definition(std::vector<Param> params, std::vector<std::string> require = {},
                                         std::vector<Derived> derived = {}) {
  KernelDefinition definition;
  definition.name = "k";
  definition.source_text = "extern \"C\" __global__ void k() {}";
  definition.entry = "k";
  definition.params = std::move(params);
  definition.require = std::move(require);
  definition.derived = std::move(derived);
  definition.launch = {.grid = {"1"}, .block = {"1"}};
  // A rule that applies nowhere on our devices but is looked at: tests of spaces need no valid default.
  DefaultRule rule;
  for (const Param& param : definition.params) rule.config.emplace_back(param.name, "device.cc_major * 0 + 1");
  definition.defaults = {rule};
  return definition;
}

inline Instance bind_or_fail(const KernelDefinition& definition, const ProblemValues& problem = {},
                             const char* arch = "sm_90") {
  const auto instance = Instance::bind(Model::make(definition), problem, *nominal_device(arch));
  if (!instance) FAIL(instance.error());
  return *instance;
}

/// Milliseconds of this process's own time: other programs on the machine don't count, sanitizers are allowed for.
class CpuTimer {
 public:
  double ms() const {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    constexpr double kSlower = 20;
#else
    constexpr double kSlower = 1;
#endif
    return 1000.0 * static_cast<double>(std::clock() - start_) / CLOCKS_PER_SEC / kSlower;
  }

 private:
  std::clock_t start_ = std::clock();
};

}  // namespace jitune::space
