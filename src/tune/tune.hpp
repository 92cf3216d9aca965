#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "key/key.hpp"
#include "space/instance.hpp"
#include "store/store.hpp"
#include "tune/compiler.hpp"
#include "tune/services.hpp"

namespace jitune::tune {

/// How far a study is, for progress bars.
struct Progress {
  uint64_t total = 0;  ///< configs that will be tried at most; 0 when not known
  int done = 0;
  int failed = 0;
  int early_stopped = 0;
  int skipped = 0;  ///< compiled and not run
  int compiling = 0;
  double best_us = 0;  ///< 0 before the first good trial
  std::string best_config;
  double default_us = 0;
  double elapsed_ms = 0;
  double budget_ms = 0;  ///< 0: none
};

/// How configs are chosen and when that ends, beside the budget. Zeros: no such bound.
struct SearchRequest {
  std::string strategy = "auto";     ///< search::strategy_names()
  std::string command = {};          ///< a program that proposes configs, see external_strategy.hpp; "": none
  uint64_t trials = 0;               ///< the default config is one of them
  double improvement = 0;            ///< ends when the best improved by less than this share ...
  uint64_t window = 0;               ///< ... within so many trials
  std::string surrogate = "forest";  ///< or xgboost; where it can't be loaded a warning says so and forests do it
  std::string xgboost = {};          ///< path of libxgboost.so; "": the loader's
  bool measure_all = false;          ///< no config is skipped for what its artifact says (doubts.hpp)
};

/// How a study beside a running application is held back.
struct Rationing {
  double share = 1;       ///< of GPU time; below 1 the GPU is taken to be shared: long uses of it are cut into pieces
  int compile_width = 0;  ///< compilations at a time; 0: as many as there are workers
  /// After each use of the GPU, with about what it took of the GPU's time: the place to pause.
  std::function<void(double busy_ms)> after_measuring = {};

  bool is_shared() const { return share < 1; }
};

/// One tuning run.
struct Request {
  const space::Instance* instance = nullptr;
  key::TuningKey key;
  /// More GPUs of this machine, of the class of the instance's own: configs are spread over all of them. One that is
  /// not to be had is left out with a warning; one of another class is an error.
  std::vector<space::DeviceInfo> more_devices = {};
  std::chrono::milliseconds budget{0};  ///< 0: until the space is used up
  bool force = false;                   ///< tune although a winner is stored, and measure every config again
  /// Of a definition whose reference is a function of another program: the default config takes its place.
  bool default_reference = false;
  bool resume = false;  ///< tune although a winner is stored, but only what was not tried yet
  uint64_t seed = 1;
  SearchRequest search = {};
  void* context = nullptr;                ///< in process: the CUcontext that measuring is done in
  std::vector<measure::DataSource> data;  ///< by arg, from a caller; empty: fills
  std::vector<std::pair<size_t, std::vector<uint8_t>>> scalars;  ///< the caller's own values, by arg
  std::function<void(const Progress&)> on_progress;              ///< after each trial, on the calling thread
  std::function<void(const store::TrialRow&)> on_trial;          ///< likewise
  /// Asked all the time, on the calling thread: true ends the study within about 200 ms, whatever is under way. Trials
  /// that are done stay.
  std::function<bool()> cancelled = {};
  Rationing rationing = {};
  std::vector<space::Config> first = {};  ///< to be tried before others, where they are valid
};

/// What came of it.
struct Outcome {
  /// won, default_kept, no_valid_config, cancelled, budget, out_of_memory, error; or `held` (another process tunes this
  /// key) or `answered` (a winner is stored already), where no study was made.
  std::string outcome;
  std::string note;  ///< the reason, where there is something to explain
  std::optional<store::WinnerRow>
      winner;               ///< the answer to launch now, published or (budget, cancelled) the best verified
  std::string reference;    ///< what results were compared with, where that is not the default config: `kernel naive`
  double reference_us = 0;  ///< median of a reference kernel's launches; 0: none
  int trials = 0, ok = 0, failed = 0, early_stopped = 0, skipped = 0;
  int compilations = 0;  ///< that really went to NVRTC
  double wall_ms = 0;
  double compile_ms = 0;         ///< from the start until the last artifact was there
  double measure_ms = 0;         ///< during which a measuring worker was at work, on whichever GPU
  int devices = 0;               ///< GPUs that took trials
  store::StudyEnd::Costs costs;  ///< what that was spent on
};

/// Tunes one key: the whole flow, readable from top to bottom in tune.cpp. Blocks for at most budget plus one deadline.
/// Nothing throws; every trial is committed when it is known.
Outcome tune(Services& services, const Request& request);

/// What compile_all did.
struct CompileReport {
  uint64_t configs = 0, compiled = 0, from_store = 0, failed = 0;
  uint64_t errors = 0, timeouts = 0, crashes = 0;  ///< of the failed
  double wall_ms = 0;
  double compile_ms = 0;  ///< what the compilations took, one by one
  int workers_started = 0;
  bool complete = true;  ///< false: stopped by `limit` or `cancelled`
};

/// Compiles every valid config of an instance (or only the default) into the build cache; needs no GPU. When all
/// artifacts are there already no worker is started. What is compiled stays in the database until its key is tuned.
struct CompileAllRequest {
  const space::Instance* instance = nullptr;
  bool defaults_only = false;
  uint64_t limit = 0;  ///< 0: all
  std::function<void(const Compiled&, const CompileReport&)> on_compiled = {};
  std::function<bool()> cancelled = {};
};
Result<CompileReport> compile_all(Services& services, const CompileAllRequest& request);

}  // namespace jitune::tune
