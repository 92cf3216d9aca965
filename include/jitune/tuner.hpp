#pragma once

#include <iosfwd>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "jitune/options.hpp"

namespace jitune {

namespace runtime {
class TunerState;
class KernelState;
}  // namespace runtime

class UntypedKernel;
class Problem;
struct CompiledConfig;
struct Study;
struct StudyOptions;

/// What launches on the track `tune` do while another thread, or another process with the same database, tunes their
/// key.
enum class WhileTuned : uint8_t {
  wait,            ///< for its result, at most first_call_budget: ranks of one job all use the same winner
  default_config,  ///< use the default config and look again after a second
};

/// Owns what tuning needs: the database, the search for NVRTC, compile and measuring workers. Reads the environment
/// once, when it is made. Makes no CUDA call and starts no process before a launch needs one.
///
/// Thread-safety: any number of threads may use kernels of one Tuner at once. Lifetime: a Kernel used after its Tuner
/// is gone throws Error{lifetime}. Make it after daemonising; after fork() only the parent may use it.
class JITUNE_API Tuner {
 public:
  /// Opens the database (a few milliseconds). Trouble with it is one warning, and results stay in memory.
  /// Throws Error{bad_options} for a value that makes no sense, naming the option or variable.
  explicit Tuner(Options options = {});
  /// Ends workers (at most a second) and closes the database. Loaded kernels stay loaded in their context.
  ~Tuner();
  Tuner(Tuner&&) noexcept;
  Tuner& operator=(Tuner&&) noexcept;

  /// Ends every study of this Tuner, those of first calls and of the background track too, within a second: what is
  /// known of their trials is kept, and a later study of the key goes on from there. Launches go on, and no longer
  /// tune. Safe from any thread (not from a signal handler); returns at once.
  void stop();

  /// Tunes one problem, whatever the track, and tells all about it. Blocks; `study.hpp` says how long and with which
  /// data. Launches of the problem use the winner from then on.
  Study tune(UntypedKernel& kernel, const Problem& problem, const StudyOptions& options);

  /// Compiles configs (canonical JSON; none: all valid ones) side by side for those who measure by themselves. Blocks.
  /// Runs nothing on the GPU. The results are in the configs' order; `study.hpp` has what is in them.
  std::vector<CompiledConfig> compile(UntypedKernel& kernel, const Problem& problem,
                                      const std::vector<std::string>& configs);

  /// `wait` unless this says otherwise, for launches from now on.
  void set_while_tuned(WhileTuned what);

  Track track() const;           ///< after JITUNE_TRACK
  std::string database() const;  ///< path in use; "" when results are kept in memory only

  /// What this Tuner has done so far, over all its kernels.
  struct Statistics {
    long long launches = 0;
    long long compilations = 0;  ///< that really went to NVRTC
    long long trials = 0;        ///< configs run for tuning
    long long hits = 0;          ///< problems answered by a stored winner
    long long misses = 0;        ///< problems for which none was stored
    long long fallbacks = 0;     ///< chosen configs that could not be used after all
    long long stalls = 0;        ///< calls that had to look up, compile or tune before they could launch
    double stall_ms = 0;         ///< what these took in all
    int workers_started = 0;
    std::map<std::string, long long> decisions;  ///< how often each Choice::rule decided
  };
  Statistics statistics() const;

 private:
  friend class UntypedKernel;
  std::shared_ptr<runtime::TunerState> state_;
};

/// Which config a problem is launched with, and why.
struct Choice {
  enum class Source : uint8_t { stored, tuned, pinned, default_config, bundle, given };
  Source source = Source::default_config;
  std::string config;     ///< canonical JSON, {"BLOCK":256,"VEC":4}
  double time_us = 0;     ///< median when it was decided; 0 when never measured
  double default_us = 0;  ///< the default config's in the same study; 0 when never measured
  std::string why;        ///< a sentence: `tuned in this process: 20 trials in 1.9 s`
  /// The rule that decided, a word: `winner` (of this key, in the database), `pinned`, `bundle`, `compatible` (found
  /// with another NVRTC), `tuned` (here and now), `next_best` (the winner is not possible for the exact problem),
  /// `nearest` (the winner of a tuned problem near by), `given` (by hand), `default`, `heuristic`.
  std::string rule;
};
JITUNE_API const char* to_string(Choice::Source source) noexcept;
JITUNE_API std::ostream& operator<<(std::ostream& out, const Choice& choice);

}  // namespace jitune
