#pragma once

#include <cstdint>
#include <map>
#include <regex>
#include <string>
#include <vector>

namespace fake_cuda {

struct Device {
  std::string name = "Fake H200";
  std::string uuid = "GPU-fa4e0000-0000-4000-8000-000000000000";
  int cc_major = 9, cc_minor = 0;
  int sm_count = 132;
  int64_t memory_bytes = int64_t{8} << 30;
  int64_t l2_bytes = 1 << 20;  // small, so that flushing it costs the host little
  int smem_optin_bytes = 232448;
  int clock_mhz = 1980;
  int memory_clock_mhz = 2619;
  std::vector<int> busy_clocks_mhz;  // what reading the SM clock finds, in turn, then the last one; empty: clock_mhz
  bool ipc = true;
  int compute_mode = 0;  // CUcomputemode; 2 and 3: no context is to be had, as if another process held it
  bool mps = false;
  double slower = 1;                                   // every launch takes so many times longer
  std::vector<std::map<std::string, double>> factors;  // as a rule's, for all kernels of this device
  uint64_t lost_after = 0;                             // launches of a process here, then the device is lost; 0: never
};

enum class Fault : uint8_t {
  none,
  hang,
  illegal_address,
  launch_error,
  out_of_memory,
  wrong,
  half,
  out_of_bounds,
  before_bounds,
  input,
  zero_time,
  device_lost,
};

/// How long a kernel takes and what goes wrong with it.
struct Rule {
  std::string match;
  std::regex pattern;
  double time_us = 20;
  double per_block_us = 0;  // on top, for each block of the grid
  std::vector<std::map<std::string, double>> factors;
  double spread = 0;
  double noise = 0;
  double first = 1;
  double drift = 0;
  int regs = 32;
  int static_smem_bytes = 0;
  int local_bytes = 0;
  Fault fault = Fault::none;
  uint64_t after = 0;
};

struct Spec {
  int init = 0;
  std::vector<Device> devices;
  bool real_time = false;
  std::string log;
  std::string lost_file;  // while it is there, no process finds a GPU; the fault device_lost makes it
  std::vector<std::string> plugins;
  std::vector<Rule> rules;  // the last one matches everything
};

/// Reads JSON; throws std::exception when it is none or names an unknown fault.
Spec parse_spec(const std::string& text);

/// From JITUNE_FAKE_CUDA; prints to stderr and ends the process when that cannot be read.
Spec spec_from_environment();

const Rule& find_rule(const Spec& spec, const std::string& demangled);

}  // namespace fake_cuda
