#pragma once

#include <cstdint>

/// What proposals cost beside what they are for.
struct SearchOverhead {
  uint64_t configs = 0;    ///< valid ones of the large space
  double proposal_ms = 0;  ///< mean processor time of the default strategy for each of 400 evaluations there
  double peak_mb = 0;      ///< memory of the process at its highest after that
  double compile_ms = 0;   ///< processor time of one config of a gemm in NVRTC; 0: no NVRTC here
};

/// Measures in this process, which should hold nothing else. `gemm`: the definition's file.
SearchOverhead measure_search_overhead(const char* gemm);
