#pragma once

#include <CLI/CLI.hpp>

#include "apps/prewarm/options.hpp"

namespace jitune::prewarm {

/// A command with the options that several commands share.
struct SharedCommand {
  Options::Command command;
  const char* name;
  const char* text;
  const char* footer;
  bool kernels = false, device = false, arch = false, tools = false;
};
CLI::App* add_shared_command(CLI::App& app, Options& options, const SharedCommand& what);

/// export, import, merge, check, why, pin and unpin.
void add_exchange(CLI::App& app, Options& options);

}  // namespace jitune::prewarm
