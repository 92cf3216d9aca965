#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "kernels.hpp"
#include "spec.hpp"

namespace fake_cuda {

/// One variable or function of a module.
struct Variable {
  CUdeviceptr address = 0;
  size_t bytes = 0;
};
struct Module;
struct Function {
  Module* module = nullptr;
  std::string symbol;     // as in the ELF file
  std::string demangled;  // `scale<64>(float*, ...)`, without the return type
  int max_dynamic_bytes = 0;
  bool large_clusters = false;
  uint64_t launches = 0;
};
/// A launch that was captured. The parameters stay the caller's.
struct RecordedLaunch {
  Function* function = nullptr;
  std::array<unsigned, 3> grid{}, block{};
  unsigned shared_bytes = 0;
  void** params = nullptr;
};
struct Graph {
  std::vector<RecordedLaunch> launches;
};
struct Module {
  std::map<std::string, std::unique_ptr<Function>> functions;
  std::map<std::string, Variable> variables;
};

/// Everything the driver knows. One for the process; every entry point locks `mutex`.
struct State {
  std::recursive_mutex mutex;
  bool initialised = false;
  Spec spec;
  CUresult sticky = CUDA_SUCCESS;
  bool hung = false;
  bool capturing = false;
  int foreign_capture = 0;  // another thread's: 1 of a stream that the legacy stream waits for, 2 of another one
  bool spoiled = false;     // that capture was ended by a call of ours
  double now_us = 0;
  double last_start_us = 0, last_us = 0;  // of the latest launch
  uint64_t launches = 0;
  uint64_t waits = 0;
  uint64_t clock_readings = 0;
  Graph* recording = nullptr;  // what launches go to while a stream is captured
  std::map<const Rule*, uint64_t> rule_launches;
  std::map<Module*, std::unique_ptr<Module>> modules;
};
State& state();

/// A device's primary context, a stream, an event: what the opaque handles point at.
struct Context {
  CUdevice device = 0;
};
struct Stream {
  bool open = true;
};
struct Event {
  bool recorded = false;
  double at_us = 0;
};

// memory.cpp
int64_t allocated_bytes();
CUresult allocate(size_t bytes, CUdeviceptr* address);
CUresult release(CUdeviceptr address);
/// Whether [address, address + bytes) lies in one allocation.
bool is_mapped(CUdeviceptr address, size_t bytes);

// image.cpp
/// Symbols of a CUDA ELF file; false when it is none.
struct ImageSymbol {
  std::string name;
  bool is_function = false;
  size_t bytes = 0;
};
bool read_image(const void* image, std::vector<ImageSymbol>& symbols);
std::string demangle(const std::string& symbol);

// launch.cpp
CUresult launch(Function& function, const std::array<unsigned, 3>& grid, const std::array<unsigned, 3>& block,
                unsigned shared_bytes, void** params);
int next_clock_mhz();
int occupancy(const Function& function, int threads, size_t shared_bytes);

// context.cpp: what every entry point asks first
CUresult ready();       // initialised, not after a sticky error
CUresult in_context();  // and this thread has a current context
CUresult wait();        // in_context, not capturing; never returns after a hang
bool spoils_capture();  // an unsafe call of this thread's ends another thread's capture
CUdevice current_device();

}  // namespace fake_cuda
