// A program of another project: uses jitune through its public headers only, on a machine that may have no GPU.
#include <cstdio>
#include <jitune/definition.hpp>
#include <string>

namespace {

jitune::KernelDefinition scale() {
  return {
      .name = "scale",
      .source_text = "template <typename T, int BLOCK> __global__ void scale(T* y, const T* x, int n) {}",
      .entry = "scale<{T}, {BLOCK}>",
      .problem = {"T", "n"},
      .params = {{"BLOCK", {64, 128, 256}}},
      .launch = {.grid = {"ceil_div(n, BLOCK)"}, .block = {"BLOCK"}},
      .args = {jitune::out("y", "T", "n"), jitune::in("x", "T", "n"), jitune::scalar("n", "int32", "n")},
      .defaults = {{.config = {{"BLOCK", "128"}}}},
  };
}

// An exception of the library is caught by its type, across a shared library's border too.
bool refuses_a_missing_file() {
  try {
    (void)jitune::load("no/such/file.toml");
  } catch (const jitune::Error& error) {
    return error.code() == jitune::ErrorCode::bad_definition &&
           error.message().find("no/such/file.toml") != std::string::npos;
  }
  return false;
}

}  // namespace

int main() {
  const jitune::KernelDefinition definition = scale();
  if (definition.args.size() != 3 || jitune::Value(jitune::Type::half).text() != "half") return 1;
  if (!refuses_a_missing_file()) return 2;
  std::puts("consumer: jitune works from outside");
}
