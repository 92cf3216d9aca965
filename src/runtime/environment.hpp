#pragma once

#include <string>

#include "base/log.hpp"
#include "jitune/options.hpp"
#include "measure/protocol.hpp"

namespace jitune::runtime {

/// Options after the environment had its say, and what else is read from it. Read once, when a Tuner is made.
struct Settings {
  Options options;
  bool always_heuristic = false;  ///< JITUNE_TRACK=heuristic: wins over per-launch tracks too
  std::string database;           ///< resolved path; "" keeps results in memory
  std::string worker_env;         ///< JITUNE_WORKER
  std::string cuda_home, cuda_path;
  std::string runtime_directory;  ///< JITUNE_RUNTIME_DIR, else /tmp/jitune-UID; "" for `off`
  Log::Threshold threshold = Log::Threshold::warn;
  bool log_keys = false;
  measure::Policy policy;                      ///< JITUNE_MEASURE
  std::string capture;                         ///< JITUNE_CAPTURE: a pattern of kernels' names; "": none
  int64_t capture_bytes = int64_t{256} << 20;  ///< JITUNE_CAPTURE_BYTES: of a launch's inputs; beyond it none are kept
};

/// Throws Error{bad_options} naming the variable or option, its value and the values that would do.
/// Paths become absolute here, so that a later chdir changes nothing. In a set-user-id program JITUNE_WORKER,
/// JITUNE_NVRTC, JITUNE_BUNDLES and JITUNE_DATABASE are ignored.
Settings read_settings(Options options);

}  // namespace jitune::runtime
