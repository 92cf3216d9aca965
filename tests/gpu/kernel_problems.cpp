#include "kernel_problems.hpp"

#include <sstream>

namespace jitune::test {

const std::vector<KernelProblems>& kernel_problems() {
  static const std::vector<std::string> norms{
      "T=float rows=1 hidden=1",        "T=half rows=5 hidden=17",          "T=float rows=3 hidden=4100",
      "T=bfloat16 rows=7 hidden=24576", "T=half rows=33 hidden=1000",       "T=half rows=16 hidden=4096",
      "T=half rows=4096 hidden=4096",   "T=bfloat16 rows=4096 hidden=8192", "T=float rows=16384 hidden=1024"};
  static const std::vector<KernelProblems> table{
      {"rmsnorm", norms},
      {"fused_add_rmsnorm", norms},
      {"softmax",
       {"T=float rows=1 cols=1", "T=half rows=5 cols=17", "T=float rows=3 cols=4100", "T=bfloat16 rows=7 cols=24576",
        "T=half rows=33 cols=1000", "T=half rows=4096 cols=4096", "T=bfloat16 rows=65536 cols=256",
        "T=float rows=1024 cols=32768", "T=half rows=16 cols=131072"}},
      {"transpose",
       {"T=float rows=1 cols=1", "T=half rows=5 cols=17", "T=float rows=100 cols=36", "T=bfloat16 rows=1000 cols=136",
        "T=half rows=1 cols=1000", "T=half rows=8192 cols=8192", "T=float rows=4096 cols=8192",
        "T=half rows=1000 cols=50000"}},
      {"reduce_sum",
       {"T=float rows=1 cols=1", "T=half rows=5 cols=17", "T=float rows=3 cols=4100", "T=bfloat16 rows=7 cols=1000000",
        "T=half rows=1 cols=67108864", "T=float rows=64 cols=262144", "T=half rows=4096 cols=4096"}},
      {"gemm",
       {"T=half M=8 N=8 K=8", "T=bfloat16 M=1 N=72 K=200", "T=half M=130 N=264 K=72", "T=half M=256 N=512 K=256",
        "T=bfloat16 M=256 N=256 K=512", "T=half M=777 N=1000 K=1032", "T=half M=16 N=4096 K=4096",
        "T=half M=1024 N=1024 K=1024", "T=half M=4096 N=4096 K=4096", "T=bfloat16 M=4096 N=4096 K=4096",
        "T=bfloat16 M=8192 N=8192 K=8192"}}};
  return table;
}

std::vector<std::string> problems_of(const std::string& kernel) {
  for (const KernelProblems& entry : kernel_problems())
    if (entry.kernel == kernel) return entry.problems;
  return {};
}

space::ProblemValues parse_problem(const std::string& text) {
  space::ProblemValues problem;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    problem[word.substr(0, equals)] = Value::parse(equals == std::string::npos ? "" : word.substr(equals + 1));
  }
  return problem;
}

}  // namespace jitune::test
