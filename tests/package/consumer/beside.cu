// Compiled by nvcc: its own kernel on the runtime API, and jitune's on the same primary context and stream.
#include <cuda_runtime.h>

#include <cstdio>
#include <jitune/jitune.hpp>
#include <vector>

namespace {

__global__ void add_one(float* x, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) x[i] += 1;
}

}  // namespace

/// 0 where both kernels did their work, or where there is no GPU to do it.
int run_beside(jitune::Tuner& tuner) {
  using Doubled = jitune::Kernel<void(float* x, int n)>;
  Doubled doubled{tuner,
                  {.name = "doubled",
                   .source_text = "template <int BLOCK> __global__ void doubled(float* x, int n) "
                                  "{ int i = blockIdx.x * BLOCK + threadIdx.x; if (i < n) x[i] *= 2; }",
                   .entry = "doubled<{BLOCK}>",
                   .problem = {"n"},
                   .params = {{"BLOCK", {64, 128}}},
                   .launch = {.grid = {"ceil_div(n, BLOCK)"}, .block = {"BLOCK"}},
                   .args = {jitune::inout("x", "float", "n"), jitune::scalar("n", "int", "n")},
                   .defaults = {{.config = {{"BLOCK", "128"}}}}}};
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("consumer: linked with nvcc's code; no GPU to run it on");
    return 0;
  }
  constexpr int kCount = 1000;
  float* x = nullptr;
  cudaStream_t stream = nullptr;
  if (cudaMalloc(&x, kCount * sizeof(float)) != cudaSuccess || cudaStreamCreate(&stream) != cudaSuccess) return 1;
  cudaMemsetAsync(x, 0, kCount * sizeof(float), stream);
  add_one<<<(kCount + 127) / 128, 128, 0, stream>>>(x, kCount);
  doubled.launch(stream, doubled.problem({{"n", kCount}}), x, kCount);
  add_one<<<(kCount + 127) / 128, 128, 0, stream>>>(x, kCount);
  std::vector<float> host(kCount);
  if (cudaMemcpyAsync(host.data(), x, kCount * sizeof(float), cudaMemcpyDeviceToHost, stream) != cudaSuccess ||
      cudaStreamSynchronize(stream) != cudaSuccess)
    return 1;
  return host == std::vector<float>(kCount, 3.0f) ? 0 : 1;
}
