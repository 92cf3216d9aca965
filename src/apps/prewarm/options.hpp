#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/prewarm/exit_codes.hpp"

namespace jitune::prewarm {

/// What a person asked for on the command line. One struct for all commands: each uses what its --help lists.
struct Options {
  enum class Command : unsigned char {
    tune,
    compile,
    space,
    list,
    show,
    dump,
    replay,
    doctor,
    export_,
    import,
    merge,
    check,
    why,
    pin,
    unpin,
    gc
  };
  Command command = Command::doctor;

  std::vector<std::string> files;     ///< kernel definitions
  std::string kernel;                 ///< only this one
  std::vector<std::string> problems;  ///< as given
  std::string problem_table;          ///< path of a CSV file
  std::string database;               ///< "": the environment's, else the default path
  std::string device;                 ///< index or UUID; "": the first GPU; tune: several, or `all`
  std::vector<std::string> archs;     ///< empty: the GPU's; several with compile only
  std::string nvrtc, worker;          ///< paths; "": the environment's, else search
  std::optional<int> compile_workers;
  std::chrono::milliseconds compile_timeout{60000};
  std::chrono::milliseconds budget{0};  ///< 0: none
  bool force = false;
  bool measure_all = false;           ///< tune: skip nothing for what its artifact says
  bool from_misses = false;           ///< tune: what launches found no winner for
  std::vector<std::string> captures;  ///< tune: files that JITUNE_CAPTURE made
  bool defaults_only = false;
  bool json = false;
  uint64_t seed = 1;
  uint64_t limit = 0;  ///< 0: none
  uint64_t samples = 5;
  std::string key;             ///< show, dump: the start of a key
  std::string output;          ///< dump: the directory; "": jitune-KEY
  std::optional<bool> hot_l2;  ///< nothing: the environment's, else cold
  std::string method;          ///< of measuring: auto, stream, graph; "": the environment's, else auto
  bool skip_check = false;
  bool default_reference = false;           ///< tune: in place of a reference that is a function of another program
  std::chrono::milliseconds fixed_time{0};  ///< 0: few samples, early stop

  std::string strategy = "auto";
  std::string surrogate = "forest";  ///< or xgboost
  std::string xgboost;               ///< path of libxgboost.so; "": the loader's
  std::string strategy_command;      ///< a program that proposes configs
  uint64_t trials = 0;               ///< 0: none; replay: evaluations of a run
  uint64_t patience = 0;             ///< trials without `improvement` that end a search; 0: none
  double improvement = 1;            ///< percent
  uint64_t seeds = 20;               ///< replay: runs
  uint64_t batch = 1;                ///< replay: configs asked for at a time
  double noise = 0;                  ///< replay: percent
  std::string from_database;         ///< replay: the start of a key whose trials are replayed
  std::string export_path;           ///< replay: where the recording is written

  std::vector<std::string> definitions;  ///< import, export: kernels to hold winners against
  std::vector<std::string> maps;         ///< import: THEIRS=OURS
  std::string format;                    ///< export, merge: database, json, csv, defaults; "": as the path's name says
  bool without_cubins = false;           ///< export
  std::string baseline;                  ///< check: winners in a file of any format
  double tolerance = 5;                  ///< check: percent
  int64_t max_bytes = int64_t{1} << 30;  ///< gc: of cubins
  bool lint_only = false;                ///< check: measure nothing
};

/// Reads the command line. Prints help or the version and ends with Stop{ok, ""} where that is asked for; throws
/// Stop{usage} for what it does not understand.
Options parse_command_line(int argc, char** argv);

}  // namespace jitune::prewarm
