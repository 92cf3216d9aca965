#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "space/config.hpp"

namespace jitune::prewarm {

/// A problem as a person gave it.
struct ProblemSpec {
  space::ProblemValues values;
  std::string text;   ///< `T=half,rows=4096`, as given
  std::string place;  ///< `--problem T=half,rows=4096` or `shapes.csv:7`: for messages
};

/// Reads `T=half,rows=4096,hidden=8192`. The failure names the part that is wrong.
Result<ProblemSpec> parse_problem(std::string_view text);

/// Reads a table: the first row holds the names of problem values, every other row is a problem. Fields may be quoted;
/// empty lines and lines that start with # are passed over. `path` is for messages, `PATH:LINE: ...`.
Result<std::vector<ProblemSpec>> parse_problem_table(std::string_view csv, const std::string& path);

}  // namespace jitune::prewarm
