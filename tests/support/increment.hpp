#pragma once

#include <string>
#include <utility>
#include <vector>

#include "jitune/kernel.hpp"

namespace jitune::test {

/// x += 1 over n floats, as the stand-in runs it too: one param BLOCK, the default config is BLOCK 64. Launching it
/// counts launches in x. Tests change what they are about.
inline KernelDefinition increment(std::vector<Value> blocks = {64, 128, 256}) {
  return {.name = "increment",
          .source_text =
              "template <int BLOCK> __global__ void increment(float* x, int n) "
              "{ int i = blockIdx.x * BLOCK + threadIdx.x; if (i < n) x[i] += 1; }",
          .entry = "increment<{BLOCK}>",
          .problem = {"n"},
          .params = {{"BLOCK", std::move(blocks)}},
          .launch = {.grid = {"ceil_div(n, BLOCK)"}, .block = {"BLOCK"}},
          .args = {inout("x", "float", "n"), scalar("n", "int", "n")},
          .defaults = {{.config = {{"BLOCK", "64"}}}}};
}

using Increment = Kernel<void(float*, int)>;

}  // namespace jitune::test
