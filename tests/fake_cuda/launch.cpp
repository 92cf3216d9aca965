#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "state.hpp"

namespace fake_cuda {
namespace {

uint64_t hash(const std::string& text) {
  uint64_t value = 0xcbf29ce484222325ull;  // FNV-1a
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return value;
}

/// A number in [0, 1) that is always the same for the same seed.
double unit(uint64_t seed) {
  seed += 0x9E3779B97F4A7C15ull;
  seed = (seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9ull;
  seed = (seed ^ (seed >> 27)) * 0x94D049BB133111EBull;
  return static_cast<double>((seed ^ (seed >> 31)) >> 11) * 0x1p-53;
}

/// `scale<64, float>(...)` becomes `scale` and its template arguments.
void split(const std::string& demangled, Launch& launch) {
  const size_t end = demangled.find_first_of("<(");
  launch.name = demangled.substr(0, end);
  if (end == std::string::npos || demangled[end] != '<') return;
  int depth = 0;
  std::string argument;
  for (size_t i = end; i < demangled.size(); ++i) {
    const char c = demangled[i];
    if (c == '<' && depth++ == 0) continue;
    if (c == '>' && --depth == 0) break;
    if (c == ',' && depth == 1) {
      launch.arguments.push_back(argument);
      argument.clear();
    } else if (c != ' ' || !argument.empty()) {
      argument += c;
    }
  }
  launch.arguments.push_back(argument);
  // Integers come as `128`, `128u` or `(unsigned)128`.
  for (std::string& text : launch.arguments) {
    if (text.size() > 1 && text[0] == '(' && text.find(')') != std::string::npos) text.erase(0, text.find(')') + 1);
    while (text.size() > 1 && std::isdigit(static_cast<unsigned char>(text[0])) && std::isalpha(text.back()))
      text.pop_back();
  }
}

/// The product of the factors of a kernel's template arguments.
double factor_of(const std::vector<std::map<std::string, double>>& factors, const Launch& launch) {
  double product = 1;
  for (size_t i = 0; i < std::min(factors.size(), launch.arguments.size()); ++i)
    if (const auto found = factors[i].find(launch.arguments[i]); found != factors[i].end()) product *= found->second;
  return product;
}

double duration_us(const Rule& rule, const Launch& launch, const Function& function) {
  const double blocks = 1.0 * launch.grid[0] * launch.grid[1] * launch.grid[2];
  double us = rule.time_us * factor_of(rule.factors, launch) + rule.per_block_us * blocks;
  const uint64_t name = hash(function.demangled);
  us *= 1 + rule.spread * unit(name);
  us *= 1 + rule.noise * (2 * unit(name + function.launches) - 1);
  us *= 1 + rule.drift * static_cast<double>(state().launches);
  return function.launches == 0 ? us * rule.first : us;
}

void* variable(void* module, const char* name) {
  const auto& variables = static_cast<Module*>(module)->variables;
  const auto found = variables.find(name);
  return found == variables.end() ? nullptr : reinterpret_cast<void*>(found->second.address);
}

void flip(char* at) {
  *at = static_cast<char>(*at ^ 0x41);
}

/// Does to the memory what the fault says.
void spoil(Fault fault, Effects& effects) {
  if (fault == Fault::input && !effects.inputs.empty()) {
    Effects::Region& input = effects.inputs[0];
    flip(input.data + input.bytes / 2);
  }
  if (effects.outputs.empty()) return;
  Effects::Region& output = effects.outputs[0];
  const size_t half = output.bytes / output.element_bytes / 2 * output.element_bytes;
  switch (fault) {
    case Fault::wrong:
      flip(output.data + half + output.element_bytes - 1);  // the byte of sign and exponent
      break;
    case Fault::half:
      std::memcpy(output.data + half, output.before.data() + half, output.bytes - half);
      break;
    case Fault::out_of_bounds:
      std::memset(output.data + output.bytes, 0, 4);
      break;
    case Fault::before_bounds:
      std::memset(output.data - 4, 0, 4);
      break;
    default:
      break;
  }
}

void note_unknown(const std::string& demangled) {
  if (state().spec.log.empty()) return;
  if (FILE* log = std::fopen(state().spec.log.c_str(), "ae"); log != nullptr) {
    std::fprintf(log, "no host function for %s: it writes nothing\n", demangled.c_str());
    std::fclose(log);
  }
}

CUresult refusal(const Function& function, const Rule& rule, const std::array<unsigned, 3>& grid,
                 const std::array<unsigned, 3>& block, unsigned shared_bytes) {
  const uint64_t threads = uint64_t{block[0]} * block[1] * block[2];
  if (threads == 0 || threads > 1024 || block[2] > 64) return CUDA_ERROR_INVALID_VALUE;
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || grid[1] > 65535 || grid[2] > 65535)
    return CUDA_ERROR_INVALID_VALUE;
  if (static_cast<int64_t>(shared_bytes) > function.max_dynamic_bytes) return CUDA_ERROR_INVALID_VALUE;
  if (static_cast<uint64_t>(rule.regs) * threads > 65536) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  return CUDA_SUCCESS;
}

}  // namespace

int next_clock_mhz() {
  const auto& clocks = state().spec.devices[static_cast<size_t>(current_device())].busy_clocks_mhz;
  const uint64_t turn = state().clock_readings++;
  if (clocks.empty()) return state().spec.devices[static_cast<size_t>(current_device())].clock_mhz;
  return clocks[std::min<size_t>(turn, clocks.size() - 1)];
}

int occupancy(const Function& function, int threads, size_t shared_bytes) {
  const Rule& rule = find_rule(state().spec, function.demangled);
  const int regs = std::max(1, rule.regs);
  const auto shared = static_cast<int>(shared_bytes) + rule.static_smem_bytes + 1024;
  return std::max(
      0, std::min({32, 2048 / std::max(1, threads), 65536 / (regs * std::max(1, threads)), (228 << 10) / shared}));
}

CUresult launch(Function& function, const std::array<unsigned, 3>& grid, const std::array<unsigned, 3>& block,
                unsigned shared_bytes, void** params) {
  State& driver = state();
  if (driver.recording != nullptr) {
    const CUresult bad = refusal(function, find_rule(driver.spec, function.demangled), grid, block, shared_bytes);
    if (bad == CUDA_SUCCESS) driver.recording->launches.push_back({&function, grid, block, shared_bytes, params});
    return bad;
  }
  if (run_utility(function.symbol, params)) {
    driver.last_start_us = driver.now_us;
    driver.last_us = 5;
    driver.now_us += 5;
    return CUDA_SUCCESS;
  }
  const Rule& rule = find_rule(driver.spec, function.demangled);
  if (const CUresult bad = refusal(function, rule, grid, block, shared_bytes); bad != CUDA_SUCCESS) return bad;
  const bool faulty = rule.fault != Fault::none && driver.rule_launches[&rule]++ >= rule.after;
  const Fault fault = faulty ? rule.fault : Fault::none;
  if (fault == Fault::launch_error) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  if (fault == Fault::out_of_memory) return CUDA_ERROR_OUT_OF_MEMORY;

  Launch call;
  split(function.demangled, call);
  call.grid = grid;
  call.block = block;
  call.params = params;
  call.variable = variable;
  call.module = function.module;
  const Device& device = driver.spec.devices[static_cast<size_t>(current_device())];
  const double us = duration_us(rule, call, function) * device.slower * factor_of(device.factors, call);
  ++driver.launches;
  ++function.launches;
  driver.last_start_us = driver.now_us;
  driver.last_us = us;
  if (fault != Fault::zero_time) driver.now_us += us;
  if (driver.spec.real_time) ::usleep(static_cast<unsigned>(us));
  if (fault == Fault::hang) driver.hung = true;
  if (fault == Fault::device_lost) {
    driver.sticky = CUDA_ERROR_ECC_UNCORRECTABLE;
    if (FILE* mark = std::fopen(driver.spec.lost_file.c_str(), "we"); mark != nullptr) std::fclose(mark);
  }
  if (device.lost_after > 0 && driver.launches > device.lost_after) driver.sticky = CUDA_ERROR_ECC_UNCORRECTABLE;
  if (fault == Fault::illegal_address) driver.sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
  if (driver.hung || driver.sticky != CUDA_SUCCESS) return CUDA_SUCCESS;  // the next wait tells

  const HostKernel kernel = find_kernel(call.name);
  if (kernel == nullptr) {
    note_unknown(function.demangled);
    return CUDA_SUCCESS;
  }
  Effects effects;
  effects.keep_before = fault == Fault::half;
  kernel(call, effects);
  spoil(fault, effects);
  return CUDA_SUCCESS;
}

}  // namespace fake_cuda
