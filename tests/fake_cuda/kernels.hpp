#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace fake_cuda {

/// A launch as a host function sees it.
struct Launch {
  std::string name;                    // `rmsnorm`
  std::vector<std::string> arguments;  // of the template: `__half`, `128`, `4`
  std::array<unsigned, 3> grid{}, block{};
  void** params = nullptr;

  template <class T>
  T param(size_t index) const {
    return *static_cast<T*>(params[index]);
  }
  void* (*variable)(void* module, const char* name) = nullptr;  // a variable of the module
  void* module = nullptr;
};

/// What a launch reads and writes. A host function names its outputs before it writes them.
struct Effects {
  struct Region {
    char* data = nullptr;
    size_t bytes = 0;
    size_t element_bytes = 4;
    std::vector<char> before = {};
  };
  std::vector<Region> inputs, outputs;
  bool keep_before = false;

  void input(const void* data, size_t bytes, size_t element_bytes) {
    inputs.push_back({static_cast<char*>(const_cast<void*>(data)), bytes, element_bytes});
  }
  void output(void* data, size_t bytes, size_t element_bytes) {
    Region region{static_cast<char*>(data), bytes, element_bytes};
    if (keep_before) region.before.assign(region.data, region.data + bytes);
    outputs.push_back(region);
  }
};

using HostKernel = void (*)(const Launch& launch, Effects& effects);

/// A plugin exports `extern "C" void fake_cuda_plugin(fake_cuda::Register add)`.
using Register = void (*)(const char* name, HostKernel kernel);

/// The host function for a kernel's base name, or null.
HostKernel find_kernel(const std::string& name);
void add_kernel(const char* name, HostKernel kernel);

/// Runs one of the worker's own kernels; false when `name` is none of them.
bool run_utility(const std::string& name, void** params);

/// Elements of the types in kernels_src, by their C++ spelling: `__half`, `__nv_bfloat16`, `float`.
size_t element_bytes(const std::string& type);
double load_element(const void* data, size_t index, const std::string& type);
void store_element(void* data, size_t index, const std::string& type, double value);

}  // namespace fake_cuda
