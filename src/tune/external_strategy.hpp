#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "search/strategy.hpp"

namespace jitune::tune {

/// A strategy in another program, in any language: JSON, a line a message, over its stdin and stdout.
///
///     to it    {"space": {"params": {"BM": [64, 128], ...}, "valid": 1234, "trials": 100, "seed": 1}}
///     to it    {"ask": 4}                              it answers with one line:
///     from it  {"configs": [{"BM": 64, ...}, ...]}     at most as many; fewer or none: it has no more to say now
///     to it    {"tell": {"config": {...}, "fate": "ok", "time_us": 12.5, "noise": 0.01}}     no answer
///     to it    {"end": true}                           and its stdin is closed
///
/// `valid` is null where the space is too large to count; `fate` is ok, early_stopped, skipped, compile_failed,
/// run_failed or wrong, and `time_us` null without a time. Configs that are not valid, or not new, are passed over.
/// What it leaves open is filled by `auto`, which hears everything too: when the program dies, is silent for
/// `patience`, or writes anything else, the search goes on with that, and `on_trouble` is told why once.
struct ExternalOptions {
  std::string command;  ///< for /bin/sh, run in the working directory with this process's environment
  std::chrono::milliseconds patience{30'000};
  std::function<void(const std::string&)> on_trouble = {};
};

/// Starts the program. Fails when `options` do or when no process can be started.
Result<std::unique_ptr<search::Strategy>> start_external(const space::Space& space,
                                                         const search::StrategyOptions& options,
                                                         const ExternalOptions& external);

}  // namespace jitune::tune
