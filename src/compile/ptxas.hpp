#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace jitune::compile {

/// What `ptxas -v` says about one kernel.
struct PtxasFacts {
  bool found = false;
  int regs = 0;
  int64_t static_smem_bytes = 0;
  int64_t stack_bytes = 0;
  int64_t spill_store_bytes = 0;
  int64_t spill_load_bytes = 0;
};

/// Reads the lines about the kernel whose symbol is `symbol` out of NVRTC's log.
PtxasFacts read_ptxas_facts(std::string_view log, std::string_view symbol);

/// The log without what `-v` added; warnings and errors of ptxas stay.
std::string without_ptxas_info(std::string_view log);

}  // namespace jitune::compile
