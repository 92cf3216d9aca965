#pragma once

#include <string>
#include <vector>

#include "space/config.hpp"

namespace jitune::test {

/// The problems that a bundled kernel is checked on: typical ones, odd sizes, one row, sizes that no tile divides, and
/// big ones.
struct KernelProblems {
  std::string kernel;
  std::vector<std::string> problems;  ///< `T=half rows=5 hidden=17`
};

/// One entry for each kernel in kernels_src.
const std::vector<KernelProblems>& kernel_problems();

/// The problems of `kernel`; empty when the table does not know it.
std::vector<std::string> problems_of(const std::string& kernel);

/// Reads `NAME=VALUE NAME=VALUE`.
space::ProblemValues parse_problem(const std::string& text);

}  // namespace jitune::test
