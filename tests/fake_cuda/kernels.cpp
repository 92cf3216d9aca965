#include "kernels.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace fake_cuda {
namespace {

using Floats = float*;

void scale(const Launch& launch, Effects& effects) {
  const auto n = static_cast<size_t>(launch.param<int>(3));
  const Floats y = launch.param<Floats>(0), x = launch.param<Floats>(1);
  effects.input(x, n * 4, 4);
  effects.output(y, n * 4, 4);
  for (size_t i = 0; i < n; ++i) y[i] = launch.param<float>(2) * x[i];
}

void add(const Launch& launch, Effects& effects) {
  const auto n = static_cast<size_t>(launch.param<int>(3));
  const Floats c = launch.param<Floats>(0), a = launch.param<Floats>(1), b = launch.param<Floats>(2);
  effects.input(a, n * 4, 4);
  effects.output(c, n * 4, 4);
  for (size_t i = 0; i < n; ++i) c[i] = a[i] + b[i];
}

void increment(const Launch& launch, Effects& effects) {
  const auto n = static_cast<size_t>(launch.param<int>(1));
  const Floats x = launch.param<Floats>(0);
  effects.output(x, n * 4, 4);
  for (size_t i = 0; i < n; ++i) x[i] += 1;
}

void accumulate(const Launch& launch, Effects& effects) {
  const auto n = static_cast<size_t>(launch.param<int>(2));
  const Floats sum = launch.param<Floats>(0), x = launch.param<Floats>(1);
  effects.input(x, n * 4, 4);
  effects.output(sum, n * 4, 4);
  for (size_t i = 0; i < n; ++i) sum[i] += x[i];
}

void tally(const Launch& launch, Effects& effects) {
  const auto n = static_cast<size_t>(launch.param<int>(2));
  int* const count = launch.param<int*>(0);
  const Floats x = launch.param<Floats>(1);
  effects.input(x, n * 4, 4);
  effects.output(count, n * 4, 4);
  for (size_t i = 0; i < n; ++i) count[i] += x[i] > 0 ? 1 : 0;
}

void interior(const Launch& launch, Effects& effects) {
  const auto n = static_cast<size_t>(launch.param<int>(2));
  const Floats y = launch.param<Floats>(0), x = launch.param<Floats>(1);
  effects.input(x, n * 4, 4);
  effects.output(y, n * 4, 4);
  for (size_t i = 1; i + 1 < n; ++i) y[i] = x[i];
}

void symbol_scale(const Launch& launch, Effects& effects) {
  const auto n = static_cast<size_t>(launch.param<int>(2));
  const Floats y = launch.param<Floats>(0), x = launch.param<Floats>(1);
  const auto* factor = static_cast<const float*>(launch.variable(launch.module, "factor"));
  effects.input(x, n * 4, 4);
  effects.output(y, n * 4, 4);
  for (size_t i = 0; i < n; ++i) y[i] = (factor == nullptr ? 0 : *factor) * x[i];
}

void scratch_copy(const Launch& launch, Effects& effects) {
  const auto n = static_cast<size_t>(launch.param<int>(3));
  const Floats y = launch.param<Floats>(0), x = launch.param<Floats>(1), scratch = launch.param<Floats>(2);
  effects.input(x, n * 4, 4);
  effects.output(y, n * 4, 4);
  for (size_t i = 0; i < n; ++i) scratch[i] = x[i];
  for (size_t i = 0; i < n; ++i) y[i] = scratch[i];
}

const std::string& element(const Launch& launch) {
  static const std::string kFloat = "float";
  return launch.arguments.empty() ? kFloat : launch.arguments[0];
}

void rmsnorm(const Launch& launch, Effects& effects) {
  const std::string& type = element(launch);
  void* y = launch.param<void*>(0);
  const void* x = launch.param<void*>(1);
  const void* weight = launch.param<void*>(2);
  const auto hidden = static_cast<size_t>(launch.param<int>(3));
  const size_t rows = launch.grid[0];
  effects.input(x, rows * hidden * element_bytes(type), element_bytes(type));
  effects.output(y, rows * hidden * element_bytes(type), element_bytes(type));
  for (size_t first = 0; first < rows * hidden; first += hidden) {
    double sum = 0;
    for (size_t i = 0; i < hidden; ++i) sum += std::pow(load_element(x, first + i, type), 2);
    const double factor = 1 / std::sqrt(sum / static_cast<double>(hidden) + launch.param<float>(4));
    for (size_t i = 0; i < hidden; ++i)
      store_element(y, first + i, type, load_element(x, first + i, type) * factor * load_element(weight, i, type));
  }
}

void fused_add_rmsnorm(const Launch& launch, Effects& effects) {
  const std::string& type = element(launch);
  void* x = launch.param<void*>(0);
  void* residual = launch.param<void*>(1);
  const void* weight = launch.param<void*>(2);
  const auto hidden = static_cast<size_t>(launch.param<int>(3));
  const size_t rows = launch.grid[0];
  effects.input(weight, hidden * element_bytes(type), element_bytes(type));
  effects.output(x, rows * hidden * element_bytes(type), element_bytes(type));
  effects.output(residual, rows * hidden * element_bytes(type), element_bytes(type));
  for (size_t first = 0; first < rows * hidden; first += hidden) {
    double sum = 0;
    for (size_t i = first; i < first + hidden; ++i) {
      store_element(residual, i, type, load_element(x, i, type) + load_element(residual, i, type));
      sum += std::pow(load_element(residual, i, type), 2);
    }
    const double factor = 1 / std::sqrt(sum / static_cast<double>(hidden) + launch.param<float>(4));
    for (size_t i = 0; i < hidden; ++i)
      store_element(x, first + i, type,
                    load_element(residual, first + i, type) * factor * load_element(weight, i, type));
  }
}

void softmax(const Launch& launch, Effects& effects) {
  const std::string& type = element(launch);
  void* y = launch.param<void*>(0);
  const void* x = launch.param<void*>(1);
  const auto rows = static_cast<size_t>(launch.param<int>(2));
  const auto cols = static_cast<size_t>(launch.param<int>(3));
  effects.input(x, rows * cols * element_bytes(type), element_bytes(type));
  effects.output(y, rows * cols * element_bytes(type), element_bytes(type));
  for (size_t first = 0; first < rows * cols; first += cols) {
    double most = -HUGE_VAL;
    double sum = 0;
    for (size_t i = first; i < first + cols; ++i) most = std::max(most, load_element(x, i, type));
    for (size_t i = first; i < first + cols; ++i) sum += std::exp(load_element(x, i, type) - most);
    for (size_t i = first; i < first + cols; ++i)
      store_element(y, i, type, std::exp(load_element(x, i, type) - most) / sum);
  }
}

void transpose(const Launch& launch, Effects& effects) {
  const std::string& type = element(launch);
  void* y = launch.param<void*>(0);
  const void* x = launch.param<void*>(1);
  const auto rows = static_cast<size_t>(launch.param<int>(2));
  const auto cols = static_cast<size_t>(launch.param<int>(3));
  effects.input(x, rows * cols * element_bytes(type), element_bytes(type));
  effects.output(y, rows * cols * element_bytes(type), element_bytes(type));
  for (size_t row = 0; row < rows; ++row)
    for (size_t col = 0; col < cols; ++col)
      store_element(y, col * rows + row, type, load_element(x, row * cols + col, type));
}

std::map<std::string, HostKernel>& kernels() {
  static std::map<std::string, HostKernel> known{{"scale", scale},
                                                 {"add", add},
                                                 {"increment", increment},
                                                 {"accumulate", accumulate},
                                                 {"tally", tally},
                                                 {"interior", interior},
                                                 {"symbol_scale", symbol_scale},
                                                 {"scratch_copy", scratch_copy},
                                                 {"rmsnorm", rmsnorm},
                                                 {"fused_add_rmsnorm", fused_add_rmsnorm},
                                                 {"softmax", softmax},
                                                 {"transpose", transpose}};
  return known;
}

}  // namespace

HostKernel find_kernel(const std::string& name) {
  const auto found = kernels().find(name);
  return found == kernels().end() ? nullptr : found->second;
}

void add_kernel(const char* name, HostKernel kernel) {
  kernels()[name] = kernel;
}

}  // namespace fake_cuda
