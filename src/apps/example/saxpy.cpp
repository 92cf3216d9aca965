// Embeds jitune with a kernel of its own: tunes it in the first call, launches it warm from the second run on.
#include <cuda_runtime.h>

#include <fstream>
#include <iostream>
#include <jitune/jitune.hpp>
#include <vector>

constexpr const char* kSource = R"(
template <int BLOCK, int ITEMS>
__global__ void saxpy(float* y, const float* x, float a, int n) {
  const int first = blockIdx.x * BLOCK * ITEMS + threadIdx.x;
#pragma unroll
  for (int k = 0; k < ITEMS; ++k)
    if (const int i = first + k * BLOCK; i < n) y[i] += a * x[i];
})";

int main(int argc, char** argv) try {
  const int n = 100'000'000;
  std::vector<float> host(n, 1.0f);
  float *x = nullptr, *y = nullptr;
  if (cudaMalloc(&x, n * sizeof(float)) != cudaSuccess || cudaMalloc(&y, n * sizeof(float)) != cudaSuccess) {
    std::cerr << "this example needs a GPU with 800 MB of free memory\n";
    return 1;
  }
  cudaMemcpy(x, host.data(), n * sizeof(float), cudaMemcpyHostToDevice);
  cudaMemcpy(y, host.data(), n * sizeof(float), cudaMemcpyHostToDevice);

  jitune::Tuner tuner{{.track = jitune::Track::tune, .database = argc > 1 ? argv[1] : "example.db"}};
  jitune::Kernel<void(float*, const float*, float, int)> saxpy{
      tuner,
      {.name = "saxpy",
       .source_text = kSource,
       .entry = "saxpy<{BLOCK}, {ITEMS}>",
       .problem = {{"n", "pow2_ceil(n)"}},
       .params = {{"BLOCK", {64, 128, 256, 512, 1024}}, {"ITEMS", {1, 2, 4, 8}}},
       .launch = {.grid = {"ceil_div(n, BLOCK * ITEMS)"}, .block = {"BLOCK"}},
       .args = {jitune::inout("y", "float", "n"), jitune::in("x", "float", "n"), jitune::scalar("a", "float", "2.0"),
                jitune::scalar("n", "int", "n")},
       .defaults = {{.config = {{"BLOCK", "1024"}, {"ITEMS", "1"}}}}}};
  const auto problem = saxpy.problem({{"n", n}});
  saxpy.launch(nullptr, problem, y, x, 2.0f, n);

  cudaMemcpy(host.data(), y, n * sizeof(float), cudaMemcpyDeviceToHost);
  for (const float value : host)
    if (value != 3.0f) return std::cerr << "wrong result: " << value << " instead of 3\n", 1;
  std::ifstream maps("/proc/self/maps");
  bool nvrtc = false;
  for (std::string line; std::getline(maps, line);) nvrtc |= line.find("libnvrtc") != std::string::npos;
  const auto did = tuner.statistics();
  std::cout << saxpy.choice(problem) << "\nright result; " << did.compilations << " compilations, " << did.trials
            << " trials, " << did.workers_started << " workers started, NVRTC " << (nvrtc ? "mapped" : "not mapped")
            << '\n';
  return 0;
} catch (const jitune::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
