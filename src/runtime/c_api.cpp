// jitune.h over the C++ objects: exceptions become a status and this thread's message.
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <string>

#include "jitune/jitune.h"
#include "jitune/jitune.hpp"

struct jitune_tuner {
  explicit jitune_tuner(jitune::Options options) : tuner(std::move(options)) {}
  jitune::Tuner tuner;
};

struct jitune_kernel {
  jitune::UntypedKernel kernel;
};

struct jitune_problem {
  jitune::Problem problem;
  jitune::Choice choice;  // whose texts jitune_get_choice hands out
};

namespace {

using jitune::Error;
using jitune::ErrorCode;

thread_local std::string last_error;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

jitune_status failed(jitune_status status, const char* message) noexcept {
  try {
    last_error = message;
  } catch (...) {
    last_error.clear();
  }
  return status;
}

template <class Body>
jitune_status guarded(Body body) noexcept {
  try {
    body();
    return JITUNE_OK;
  } catch (const Error& error) {
    return failed(static_cast<jitune_status>(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return failed(JITUNE_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return failed(JITUNE_INTERNAL, error.what());
  } catch (...) {
    return failed(JITUNE_INTERNAL, "something unknown was thrown");
  }
}

void require(bool given, const char* what) {
  if (!given) throw Error(ErrorCode::bad_arguments, std::string(what) + " is NULL");
}

std::optional<jitune::Track> track_of(const char* word) {
  using jitune::Track;
  if (word == nullptr) return std::nullopt;
  for (const Track track : {Track::heuristic, Track::lookup, Track::background, Track::tune, Track::retune})
    if (std::strcmp(word, jitune::to_string(track)) == 0) return track;
  throw Error(ErrorCode::bad_options,
              std::string("there is no track '") + word + "': use heuristic, lookup, background, tune or retune");
}

/// A hook of C's kind with its user pointer. Never freed: events may come until the last worker is gone.
struct CLog {
  void (*function)(void*, int, const char*, const char*, const char*);
  void* user;
};

void send(void* user, const jitune::Event& event) noexcept {
  const auto* log = static_cast<const CLog*>(user);
  try {
    const std::string code(event.code), kernel(event.kernel), text(event.text);
    log->function(log->user, static_cast<int>(event.level), code.c_str(), kernel.c_str(), text.c_str());
  } catch (...) {  // out of memory: the event is lost
  }
}

jitune::Options options_from(const jitune_options* given) {
  jitune::Options options;
  if (given == nullptr) return options;
  jitune_options known{};
  if (given->struct_bytes < sizeof known.struct_bytes)
    throw Error(ErrorCode::bad_options, "jitune_options::struct_bytes is not set: use sizeof(jitune_options)");
  std::memcpy(&known, given, std::min(given->struct_bytes, sizeof known));
  if (const auto track = track_of(known.track)) options.track = *track;
  if (known.database != nullptr) options.database = known.database;
  if (known.worker != nullptr) options.worker = known.worker;
  if (known.nvrtc != nullptr) options.nvrtc = known.nvrtc;
  if (known.first_call_budget_ms != 0)
    options.first_call_budget = std::chrono::milliseconds(known.first_call_budget_ms);
  options.compile_workers = known.compile_workers;
  if (known.log != nullptr) options.log = {&send, new CLog{known.log, known.log_user}};
  return options;
}

/// Writes as much of `made` as the caller's struct has room for; its first member stays the caller's.
template <class Struct>
void hand_out(Struct made, Struct* to) {
  if (to->struct_bytes < sizeof to->struct_bytes)
    throw Error(ErrorCode::bad_arguments, "struct_bytes is not set: use sizeof");
  made.struct_bytes = to->struct_bytes;
  std::memcpy(to, &made, std::min(to->struct_bytes, sizeof made));
}

}  // namespace

extern "C" {

const char* jitune_status_name(jitune_status status) {
  switch (status) {
    case JITUNE_OK:
      return "ok";
    case JITUNE_OUT_OF_MEMORY:
      return "out_of_memory";
    case JITUNE_INTERNAL:
      return "internal";
    default:
      return jitune::to_string(static_cast<ErrorCode>(status));
  }
}

const char* jitune_last_error(void) {
  return last_error.c_str();
}

jitune_status jitune_tuner_new(const jitune_options* options, jitune_tuner** tuner) {
  return guarded([&] {
    require(tuner != nullptr, "tuner");
    *tuner = new jitune_tuner(options_from(options));
  });
}

void jitune_tuner_free(jitune_tuner* tuner) {
  delete tuner;
}

void jitune_tuner_stop(jitune_tuner* tuner) {
  if (tuner != nullptr) tuner->tuner.stop();
}

jitune_status jitune_tuner_statistics(const jitune_tuner* tuner, jitune_statistics* statistics) {
  return guarded([&] {
    require(tuner != nullptr && statistics != nullptr, "tuner or statistics");
    const auto did = tuner->tuner.statistics();
    hand_out({sizeof(jitune_statistics), did.launches, did.compilations, did.trials, did.hits, did.misses,
              did.fallbacks, did.stalls, did.stall_ms, did.workers_started},
             statistics);
  });
}

jitune_status jitune_kernel_load(jitune_tuner* tuner, const char* path, const char* name, jitune_kernel** kernel) {
  return guarded([&] {
    require(tuner != nullptr && path != nullptr && kernel != nullptr, "tuner, path or kernel");
    *kernel = new jitune_kernel{
        jitune::UntypedKernel(tuner->tuner, jitune::load(path, name == nullptr ? std::string() : std::string(name)))};
  });
}

void jitune_kernel_free(jitune_kernel* kernel) {
  delete kernel;
}

jitune_status jitune_problem_new(jitune_kernel* kernel, jitune_problem** problem) {
  return guarded([&] {
    require(kernel != nullptr && problem != nullptr, "kernel or problem");
    *problem = new jitune_problem{kernel->kernel.problem({}), {}};
  });
}

void jitune_problem_free(jitune_problem* problem) {
  delete problem;
}

jitune_status jitune_problem_set_int(jitune_problem* problem, const char* name, int64_t value) {
  return guarded([&] {
    require(problem != nullptr && name != nullptr, "problem or name");
    problem->problem.set(name, static_cast<long long>(value));
  });
}

jitune_status jitune_problem_set_bool(jitune_problem* problem, const char* name, int value) {
  return guarded([&] {
    require(problem != nullptr && name != nullptr, "problem or name");
    problem->problem.set(name, value != 0);
  });
}

jitune_status jitune_problem_set_word(jitune_problem* problem, const char* name, const char* word) {
  return guarded([&] {
    require(problem != nullptr && name != nullptr && word != nullptr, "problem, name or word");
    problem->problem.set(name, word);
  });
}

jitune_status jitune_problem_set_track(jitune_problem* problem, const char* track) {
  return guarded([&] {
    require(problem != nullptr, "problem");
    problem->problem.on(track_of(track));
  });
}

jitune_status jitune_prepare(jitune_kernel* kernel, const jitune_problem* problem, struct CUstream_st* stream) {
  return guarded([&] {
    require(kernel != nullptr && problem != nullptr, "kernel or problem");
    kernel->kernel.prepare(problem->problem, stream);
  });
}

jitune_status jitune_launch(jitune_kernel* kernel, struct CUstream_st* stream, const jitune_problem* problem,
                            const void* const* arguments, size_t count) {
  return guarded([&] {
    require(kernel != nullptr && problem != nullptr && (arguments != nullptr || count == 0),
            "kernel, problem or arguments");
    kernel->kernel.launch(stream, problem->problem, {arguments, count});
  });
}

jitune_status jitune_get_choice(jitune_kernel* kernel, jitune_problem* problem, jitune_choice* choice) {
  return guarded([&] {
    require(kernel != nullptr && problem != nullptr && choice != nullptr, "kernel, problem or choice");
    problem->choice = kernel->kernel.choice(problem->problem);
    const auto& made = problem->choice;
    hand_out({sizeof(jitune_choice), jitune::to_string(made.source), made.config.c_str(), made.rule.c_str(),
              made.why.c_str(), made.time_us, made.default_us},
             choice);
  });
}

jitune_status jitune_tune(jitune_tuner* tuner, jitune_kernel* kernel, const jitune_problem* problem, int64_t budget_ms,
                          uint64_t trials, const char** outcome) {
  return guarded([&] {
    require(tuner != nullptr && kernel != nullptr && problem != nullptr, "tuner, kernel or problem");
    jitune::StudyOptions options;
    options.budget = std::chrono::milliseconds(budget_ms);
    options.trials = trials;
    const auto study = tuner->tuner.tune(kernel->kernel, problem->problem, options);
    if (outcome == nullptr) return;
    static constexpr const char* kOutcomes[] = {"won",    "default_kept",  "no_valid_config", "cancelled",
                                                "budget", "out_of_memory", "error",           "held"};
    *outcome = "error";
    for (const char* each : kOutcomes)
      if (study.outcome == each) *outcome = each;
  });
}

jitune_status jitune_set_symbol(jitune_kernel* kernel, const char* name, const void* data, size_t bytes) {
  return guarded([&] {
    require(kernel != nullptr && name != nullptr && data != nullptr, "kernel, name or data");
    kernel->kernel.set_symbol(name, data, bytes);
  });
}

}  // extern "C"
