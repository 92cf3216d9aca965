// Times the stored gemm winner apart from the worker that chose it: gemm_retime DEFINITION DATABASE SIZE
// Method as Triton's do_bench: L2 flushed by zeroing 256 MB, CUDA events around one launch, median of 200. Checks 256
// elements of the result in double precision.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <jitune/jitune.hpp>
#include <vector>

namespace {

void check(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(code));
  std::exit(1);
}

float to_float(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

/// bfloat16 values between -1 and 1: random data, since zeros run faster than real data will.
std::vector<uint16_t> values(size_t count, uint32_t seed) {
  std::vector<uint16_t> out(count);
  for (auto& each : out) {
    seed = seed * 1664525u + 1013904223u;
    const float value = static_cast<float>(seed >> 8) / 8388608.0f - 1.0f;
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    each = static_cast<uint16_t>(bits >> 16);
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) return std::fprintf(stderr, "usage: gemm_retime DEFINITION DATABASE SIZE\n"), 2;
  const int n = std::atoi(argv[3]);
  const size_t count = static_cast<size_t>(n) * static_cast<size_t>(n);
  const auto ha = values(count, 1), hb = values(count, 2);
  void *a = nullptr, *b = nullptr, *c = nullptr, *flush = nullptr;
  constexpr size_t kFlushBytes = 256u << 20;
  for (auto [pointer, bytes] : {std::pair{&a, 2 * count}, {&b, 2 * count}, {&c, 2 * count}, {&flush, kFlushBytes}})
    check(cudaMalloc(pointer, bytes), "cudaMalloc");
  check(cudaMemcpy(a, ha.data(), 2 * count, cudaMemcpyHostToDevice), "copying A");
  check(cudaMemcpy(b, hb.data(), 2 * count, cudaMemcpyHostToDevice), "copying B");

  jitune::Tuner tuner{{.track = jitune::Track::lookup, .database = argv[2]}};
  jitune::Kernel<void(void*, const void*, const void*, int, int, int)> gemm{tuner, jitune::load(argv[1])};
  const auto problem = gemm.problem({{"T", jitune::Type::bfloat16}, {"M", n}, {"N", n}, {"K", n}});
  gemm.launch(nullptr, problem, c, a, b, n, n, n);
  check(cudaDeviceSynchronize(), "the first launch");

  std::vector<uint16_t> hc(count);
  check(cudaMemcpy(hc.data(), c, 2 * count, cudaMemcpyDeviceToHost), "copying C");
  double worst = 0;
  for (size_t i = 0; i < 256; ++i) {
    const size_t row = i * 7919 % static_cast<size_t>(n), col = i * 104729 % static_cast<size_t>(n);
    double sum = 0;
    for (size_t k = 0; k < static_cast<size_t>(n); ++k)
      sum += double{to_float(ha[row * static_cast<size_t>(n) + k])} * to_float(hb[k * static_cast<size_t>(n) + col]);
    worst = std::max(worst, std::abs(to_float(hc[row * static_cast<size_t>(n) + col]) - sum));
  }

  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  std::vector<float> ms(220);
  for (float& each : ms) {
    cudaMemsetAsync(flush, 0, kFlushBytes);
    cudaEventRecord(begin);
    gemm.launch(nullptr, problem, c, a, b, n, n, n);
    cudaEventRecord(end);
    check(cudaEventSynchronize(end), "a timed launch");
    cudaEventElapsedTime(&each, begin, end);
  }
  ms.erase(ms.begin(), ms.begin() + 20);  // warm-up
  std::nth_element(ms.begin(), ms.begin() + 100, ms.end());
  const double us = ms[100] * 1e3;

  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 200; ++i) gemm.launch(nullptr, problem, c, a, b, n, n, n);
  const double host_us =
      std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / 200;
  check(cudaDeviceSynchronize(), "the last launches");
  std::printf(
      "jitune's winner: %.1f us, %.0f TFLOP/s, worst absolute error of 256 elements %.2g; host's cost of a launch %.2f "
      "us\n",
      us, 2.0 * n * n * n / us * 1e-6, worst, host_us);
  const auto choice = gemm.choice(problem);
  std::printf("  %s %s; %lld compilations in this process\n", to_string(choice.source), choice.config.c_str(),
              tuner.statistics().compilations);
  return 0;
} catch (const jitune::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
