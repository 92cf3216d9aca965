#pragma once

#include <exception>
#include <string>
#include <utility>

namespace jitune::prewarm {

/// What jit-prewarm's exit code says. The numbers are stable across releases.
enum class Exit : int {
  ok = 0,
  partly = 1,
  usage = 2,
  definition = 3,
  missing = 4,
  database = 5,
  no_valid_config = 6,
  regression = 7,
  stale = 8,
  duplicate = 9,
  invalid = 10,
  interrupted = 130,
};

struct ExitText {
  Exit code;
  const char* meaning;
};

/// The one table of exit codes; --help prints it.
inline constexpr ExitText kExitTexts[] = {
    {Exit::ok, "all that was asked for is done"},
    {Exit::partly, "something failed to compile or to tune, the rest is stored"},
    {Exit::usage, "bad input: an unknown option, a problem that fits no kernel"},
    {Exit::definition, "a kernel file is missing or wrong: TOML, expression, source"},
    {Exit::missing, "no GPU, no NVRTC or no jitune-worker"},
    {Exit::database, "the database can't be used: not there, not jitune's, or of a newer jitune"},
    {Exit::no_valid_config, "a kernel has no valid config for a problem, or none that works"},
    {Exit::regression, "check: a winner is slower than it was, or than the default config"},
    {Exit::stale, "check: a key is not that of today's kernel"},
    {Exit::duplicate, "check: a key is there more than once"},
    {Exit::invalid, "check: a winner or a default config is not in today's space"},
    {Exit::interrupted, "interrupted by ^C; what was known by then is stored"},
};

/// Ends the command: the message goes to stderr, the code to the shell.
class Stop : public std::exception {
 public:
  Stop(Exit code, std::string message) : code_(code), message_(std::move(message)) {}
  Exit code() const noexcept { return code_; }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  Exit code_;
  std::string message_;
};

}  // namespace jitune::prewarm
