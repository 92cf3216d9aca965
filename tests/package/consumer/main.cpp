// A program of another project: uses jitune through its public headers only, on a machine that may have no GPU.
#include <cstdio>
#include <jitune/jitune.hpp>

#ifdef WITH_NVCC
int run_beside(jitune::Tuner& tuner);  // beside.cu
#endif

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

// Whether `action` throws jitune::Error with that code: the type is the same on both sides of a shared library.
template <class Action>
bool throws(jitune::ErrorCode code, Action action) {
  try {
    action();
  } catch (const jitune::Error& error) {
    if (error.code() == code) return true;
    std::printf("consumer: another error: %s\n", error.what());
  }
  return false;
}

}  // namespace

int main() {
  using Scale = jitune::Kernel<void(float* y, const float* x, int n)>;
  using Wrong = jitune::Kernel<void(float* y, int n)>;
  jitune::Tuner tuner{{.track = jitune::Track::lookup, .database = "off"}};
  Scale kernel{tuner, scale()};
  jitune::Problem problem = kernel.problem({{"T", jitune::Type::float32}, {"n", 1000}});
  if (kernel.name() != "scale" || tuner.track() != jitune::Track::lookup || problem != problem.set("n", 1000)) return 1;
  if (!throws(jitune::ErrorCode::bad_problem, [&] { problem.set("m", 1); })) return 2;
  if (!throws(jitune::ErrorCode::bad_definition, [&] { Wrong{tuner, scale()}; })) return 3;
  if (!throws(jitune::ErrorCode::bad_definition, [&] { (void)jitune::load("no/such/file.toml"); })) return 4;
  if (tuner.statistics().launches != 0 || tuner.statistics().workers_started != 0) return 5;
#ifdef WITH_NVCC
  if (run_beside(tuner) != 0) return 6;
#endif
  std::puts("consumer: jitune works from outside");
}
