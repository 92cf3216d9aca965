#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "jitune/error.hpp"

namespace jitune {

/// How a launch gets its config.
enum class Track : uint8_t {
  heuristic,   ///< the default config, always; looks nothing up
  lookup,      ///< the stored winner, else the default config; records misses
  background,  ///< as lookup; a miss is tuned beside the application, rationed, and the winner swapped in
  tune,        ///< as lookup; a miss is tuned in the first call, within first_call_budget
  retune,      ///< as tune, even if a winner is stored (pinned ones excepted)
};

/// The word for a track, `lookup` for instance. Never null.
JITUNE_API const char* to_string(Track track) noexcept;

/// Where candidates run while they are measured.
enum class Isolation : uint8_t {
  /// In a process of their own, jitune-worker: whatever a config does, the application goes on.
  process,
  /// In the application, in the context of the thread that launches. For arguments that mean something in one context
  /// only: device addresses inside buffers, texture or surface handles. What it risks, for untried code runs there: an
  /// illegal access or a trap of one config destroys the context with all of the application's memory in it; a kernel
  /// that never ends hangs the application, for no deadline can be enforced; memory that a config reaches through such
  /// an address is neither copied, restored nor guarded. The buffers themselves are copied as always. The GPU is shared
  /// with the application's other streams, which wait, and are waited for, while a study lasts. Not with the track
  /// `background`.
  in_process,
};

enum class LogLevel : uint8_t { debug, info, warning };

/// Something that a person may want to know.
struct Event {
  LogLevel level;
  std::string_view code;    ///< a stable word, `worker_died` for instance
  std::string_view kernel;  ///< "" when it concerns no kernel
  std::string_view text;    ///< one line
};

/// Where events go. Called from the library's threads, never under a lock; it must not throw. Calls back into jitune
/// from it are allowed but their own events are dropped.
struct LogHook {
  void (*function)(void* user, const Event& event) noexcept = nullptr;  ///< null: warnings go to stderr
  void* user = nullptr;
};

/// What a launch, prepare or study behind launches decided for one problem: for counters of one's own.
struct Decision {
  std::string_view kernel;
  std::string_view problem;   ///< `hidden=4096 rows=16`
  std::string_view rule;      ///< Choice::rule
  std::string_view config;    ///< canonical JSON
  bool hit = false;           ///< a stored winner of this very key serves
  bool miss = false;          ///< there was none
  double stall_ms = 0;        ///< what the call waited for it; 0 behind launches
  std::string_view fallback;  ///< why a config that was to be used could not be; "" where none failed
};

/// Called after each decision, never for launches of known problems, from the thread that decided and under no lock; it
/// must not throw. Tuner::statistics() sums the same up.
struct DecisionHook {
  void (*function)(void* user, const Decision& decision) noexcept = nullptr;
  void* user = nullptr;
};

/// How a Tuner works. Defaults suit most programs; an environment variable named with a member overrides it.
struct Options {
  /// JITUNE_TRACK. `lookup` never runs a config that has not been verified: the choice for production.
  Track track = Track::lookup;

  /// JITUNE_DATABASE. "" is $XDG_CACHE_HOME/jitune/jitune.db (or ~/.cache/...), `off` keeps results in memory only.
  std::string database = {};

  /// The longest a first call may spend on tuning. 0 turns tuning in first calls off.
  std::chrono::milliseconds first_call_budget{8000};

  /// The longest one study of the track `background` may take; its pauses count.
  std::chrono::milliseconds background_budget{600'000};

  /// The share of GPU time that the track `background` may take while the application launches; 1 does not ration it.
  double background_share = 0.05;

  /// The share of the compile workers that the track `background` may use at a time; at least one.
  double background_compile_share = 0.25;

  /// The longest a single config may compile before its worker is killed.
  std::chrono::milliseconds compile_timeout{60000};

  /// JITUNE_COMPILE_WORKERS. 0: nine tenths of the cores, less where memory is short.
  int compile_workers = 0;

  /// JITUNE_NVRTC: path of libnvrtc. "": CUDA_HOME, CUDA_PATH, the usual install paths, the Python wheels' layout.
  std::string nvrtc = {};

  /// JITUNE_WORKER: path of jitune-worker. "": beside the library or program, ../libexec/jitune, the install path.
  std::string worker = {};

  /// JITUNE_MEASURE: how times are taken, in words: `cold` (default) or `hot` L2 before each launch; `auto` (default),
  /// `stream` or `graph`: single launches, or graphs of short ones; `cupti`: by the GPU's own record of each launch,
  /// which needs the toolkit's libcupti; `unchecked`: outputs are not compared. Part of the key: what was found by
  /// another kind of measuring does not serve.
  std::string measure = {};

  /// A miss is answered only by an exact key; a winner found with another NVRTC does not serve.
  bool strict = false;

  /// JITUNE_BUNDLES (paths between colons): files of winners that `jit-prewarm export` wrote, looked into in this order
  /// where the database has no answer: databases, .json files or folders of them, .csv tables. They are only read. A
  /// file that can't be used is one warning.
  std::vector<std::string> bundles = {};

  /// JITUNE_LOG (off, warn, info, debug, key) decides what stderr gets when there is no hook.
  LogHook log = {};

  /// Read what Isolation::in_process risks before it is chosen. Compiling stays in processes of its own.
  Isolation isolation = Isolation::process;

  DecisionHook decisions = {};

  /// GPUs of this machine on which studies may measure beside the launch's own: UUIDs (`GPU-...`), `all`, or `own` for
  /// no other one at all. They must be of its class. In first calls (tracks `tune` and `retune`) trials are spread over
  /// the named ones; where none is named a first call measures on its own GPU alone. On `background` a study goes to
  /// the named ones on which nothing runs (NVML tells), or, where none is named, to one such GPU of the class; to the
  /// launch's own GPU only where none is idle. A name that fits no GPU here is one warning. `all` and `own` say the
  /// same on every machine. Not with Isolation::in_process. Tuner::tune has StudyOptions::more_gpus instead.
  std::vector<std::string> tuning_devices = {};
};

}  // namespace jitune
