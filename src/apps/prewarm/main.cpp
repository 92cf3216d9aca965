#include <cstdio>
#include <exception>

#include "apps/prewarm/commands.hpp"
#include "jitune/error.hpp"

namespace jitune::prewarm {
namespace {

Exit run(Options options) {
  Session session(std::move(options));
  catch_interrupts();
  switch (session.options().command) {
    case Options::Command::tune:
      return run_tune(session);
    case Options::Command::compile:
      return run_compile(session);
    case Options::Command::space:
      return run_space(session);
    case Options::Command::list:
      return run_list(session);
    case Options::Command::show:
      return run_show(session);
    case Options::Command::replay:
      return run_replay(session);
    case Options::Command::dump:
      return run_dump(session);
    case Options::Command::doctor:
      return run_doctor(session);
    case Options::Command::export_:
      return run_export(session);
    case Options::Command::import:
      return run_import(session);
    case Options::Command::merge:
      return run_merge(session);
    case Options::Command::check:
      return run_check(session);
    case Options::Command::why:
      return run_why(session);
    case Options::Command::gc:
      return run_gc(session);
    case Options::Command::pin:
    case Options::Command::unpin:
      return run_pin(session);
  }
  return Exit::usage;
}

/// The exit code for an author's or a caller's mistake.
Exit exit_for(ErrorCode code) {
  switch (code) {
    case ErrorCode::bad_definition:
    case ErrorCode::bad_expression:
      return Exit::definition;
    case ErrorCode::no_gpu:
      return Exit::missing;
    case ErrorCode::no_runnable_config:
      return Exit::no_valid_config;
    default:
      return Exit::usage;
  }
}

int complain(Exit code, const char* text) {
  if (*text != '\0') std::fprintf(stderr, "jit-prewarm: %s\n", text);
  return static_cast<int>(code);
}

}  // namespace
}  // namespace jitune::prewarm

int main(int argc, char** argv) {
  using namespace jitune::prewarm;
  try {
    const Exit code = run(parse_command_line(argc, argv));
    if (std::fflush(stdout) != 0) return complain(Exit::partly, "the result could not be written to stdout");
    return static_cast<int>(code);
  } catch (const Stop& stop) {
    return complain(stop.code(), stop.what());
  } catch (const jitune::Error& error) {
    return complain(exit_for(error.code()), error.what());
  } catch (const std::exception& error) {
    return complain(Exit::partly, error.what());
  }
}
