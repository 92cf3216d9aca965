#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "jitune/kernel.hpp"

/// Studies by hand: Tuner::tune and Tuner::compile. New members are only ever added at the end of an aggregate.
namespace jitune {

/// One config tried for one problem.
struct Trial {
  std::string config;  ///< canonical JSON
  std::string status;  ///< ok, early_stopped, skipped, compile_error, run_crash, wrong_result ...
  std::string error;   ///< a sentence, where it failed or was skipped
  int samples = 0;
  double min_us = 0, median_us = 0, stddev_us = 0;  ///< device microseconds; of an early_stopped one what was seen
  double default_us = 0;                            ///< the default config's median in this study; 0 before it is known
  double occupancy = 0;                             ///< share of an SM's threads; 0 when not known
  double wall_ms = 0;                               ///< compiling and measuring it
};

struct StudyOptions {
  std::chrono::milliseconds budget{0};  ///< 0: until the space is used up
  uint64_t trials = 0;                  ///< at most so many, the default config counted; 0: no bound
  std::string strategy = "auto";        ///< see `jit-prewarm tune --help`
  uint64_t seed = 1;
  bool force = false;  ///< measure every config again; otherwise only what was not tried yet for this key
  /// Requested: the study ends within a second, with outcome `cancelled`; trials that are done are kept.
  std::stop_token stop = {};
  /// Called after each trial, on the thread that called tune. It must not throw.
  std::function<void(const Trial&)> on_trial = {};
  Stream stream = nullptr;  ///< waited for before inputs are read, where ScopedInputs give any
  /// UUIDs (`GPU-...`) of more GPUs of this machine, over which the trials are spread; `all` is every one of the class
  /// of the context's own that this process sees. One named here that is not there, or is of another class, throws
  /// Error{bad_options}; one that is in use is left out with a warning. Not with Isolation::in_process.
  std::vector<std::string> more_gpus = {};
  /// Runs also the configs that a study compiles and then skips, because they spill registers or fill little of an SM
  /// and others like them have clearly lost: for whoever wants every config's time.
  bool measure_all = false;
};

/// What a study found. Without ScopedInputs of the calling thread its data are the definition's fills.
struct JITUNE_API Study {
  std::string kernel, problem, key;  ///< problem: canonical JSON, exact; key: its SHA-256
  /// won, default_kept, no_valid_config, cancelled, budget, out_of_memory, error; or held: another process tunes the
  /// key.
  std::string outcome;
  std::string note;           ///< why, where there is something to explain
  std::string winner;         ///< canonical JSON; "" when there is none
  double time_us = 0;         ///< the winner's median among the finalists
  double default_us = 0;      ///< the default config's in the same rematch
  std::vector<Trial> trials;  ///< of this call, in order
  int compilations = 0;       ///< that really went to NVRTC
  double wall_ms = 0, compile_ms = 0, measure_ms = 0;
  int gpus = 0;  ///< that took trials

  /// Writes it as JSON; the file appears whole or not at all. Throws Error{bad_options} naming the file.
  void save(const std::string& path) const;
  /// Reads what save() wrote. Throws Error{bad_options} naming the file and what is wrong with it.
  static Study load(const std::string& path);
};

/// A config, compiled for the current context's device.
struct CompiledConfig {
  std::string config;        ///< canonical JSON
  std::string error;         ///< "" where it compiled; else NVRTC's log or why it is not valid
  std::string cubin;         ///< bytes for cuModuleLoadData
  std::string lowered_name;  ///< for cuModuleGetFunction
  int regs = 0;
  int64_t spill_bytes = 0;
  std::array<uint32_t, 3> grid{1, 1, 1},
      block{1, 1, 1};         ///< for the exact problem; a grid by occupancy assumes 1 block
  uint32_t shared_bytes = 0;  ///< dynamic
};

}  // namespace jitune
