/* jitune for C and for languages that call C. The objects are those of jitune.hpp, whose comments hold here too.
 *
 * Every function that can fail returns a jitune_status; what went wrong is then jitune_last_error() of the calling
 * thread. No function throws or exits. Thread-safety: as in C++, launches, prepare and choice may be called from any
 * threads at once with one kernel; a jitune_problem belongs to one thread at a time, as it is changed in place.
 * Lifetime: free problems before their kernel and kernels before their tuner; freeing NULL does nothing.
 * Structs begin with their own size, so that members can be added at their end. */
#ifndef JITUNE_JITUNE_H
#define JITUNE_JITUNE_H

#include <stddef.h>
#include <stdint.h>

#if defined(JITUNE_BUILDING_SHARED) || defined(JITUNE_USING_SHARED)
#define JITUNE_C_API __attribute__((visibility("default")))
#else
#define JITUNE_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* CUstream and cudaStream_t */

typedef struct jitune_tuner jitune_tuner;
typedef struct jitune_kernel jitune_kernel;
typedef struct jitune_problem jitune_problem;

/* Numbers 1 to 10 are those of jitune::ErrorCode. */
typedef enum jitune_status {
  JITUNE_OK = 0,
  JITUNE_BAD_DEFINITION = 1,
  JITUNE_BAD_EXPRESSION = 2,
  JITUNE_BAD_PROBLEM = 3,
  JITUNE_BAD_ARGUMENTS = 4,
  JITUNE_NO_RUNNABLE_CONFIG = 5,
  JITUNE_NOT_PREPARED = 6,
  JITUNE_LAUNCH_FAILED = 7,
  JITUNE_BAD_OPTIONS = 8,
  JITUNE_LIFETIME = 9,
  JITUNE_NO_GPU = 10,
  JITUNE_OUT_OF_MEMORY = 100,
  JITUNE_INTERNAL = 101
} jitune_status;

/* The word for a status, `bad_definition` for instance. Never NULL. */
JITUNE_C_API const char* jitune_status_name(jitune_status status);

/* The message of this thread's latest failure, "" before the first. Valid until the thread's next failure. */
JITUNE_C_API const char* jitune_last_error(void);

/* Zeros and NULLs mean the defaults of jitune::Options. Set `struct_bytes` to sizeof(jitune_options). */
typedef struct jitune_options {
  size_t struct_bytes;
  const char* track;    /* heuristic, lookup, background, tune or retune */
  const char* database; /* a path, or `off` */
  const char* worker;   /* path of jitune-worker */
  const char* nvrtc;    /* path of libnvrtc */
  int64_t first_call_budget_ms;
  int compile_workers;
  /* 0 debug, 1 info, 2 warning. Called from the library's threads; the texts are valid during the call. */
  void (*log)(void* user, int level, const char* code, const char* kernel, const char* text);
  void* log_user;
} jitune_options;

/* `options` may be NULL. */
JITUNE_C_API jitune_status jitune_tuner_new(const jitune_options* options, jitune_tuner** tuner);
JITUNE_C_API void jitune_tuner_free(jitune_tuner* tuner);

/* Ends every study within a second; launches go on. */
JITUNE_C_API void jitune_tuner_stop(jitune_tuner* tuner);

typedef struct jitune_statistics {
  size_t struct_bytes;
  int64_t launches, compilations, trials, hits, misses, fallbacks, stalls;
  double stall_ms;
  int workers_started;
} jitune_statistics;
JITUNE_C_API jitune_status jitune_tuner_statistics(const jitune_tuner* tuner, jitune_statistics* statistics);

/* The kernel of a TOML file; `name` picks one of several, NULL where there is one. */
JITUNE_C_API jitune_status jitune_kernel_load(jitune_tuner* tuner, const char* path, const char* name,
                                              jitune_kernel** kernel);
JITUNE_C_API void jitune_kernel_free(jitune_kernel* kernel);

/* A problem without values. */
JITUNE_C_API jitune_status jitune_problem_new(jitune_kernel* kernel, jitune_problem** problem);
JITUNE_C_API void jitune_problem_free(jitune_problem* problem);
JITUNE_C_API jitune_status jitune_problem_set_int(jitune_problem* problem, const char* name, int64_t value);
JITUNE_C_API jitune_status jitune_problem_set_bool(jitune_problem* problem, const char* name, int value);
/* A type word (`half`) or a word of one's own. */
JITUNE_C_API jitune_status jitune_problem_set_word(jitune_problem* problem, const char* name, const char* word);
/* The track of launches with this problem; NULL: the tuner's. */
JITUNE_C_API jitune_status jitune_problem_set_track(jitune_problem* problem, const char* track);

/* Looks up or tunes, compiles and loads, so that the next launch only launches. */
JITUNE_C_API jitune_status jitune_prepare(jitune_kernel* kernel, const jitune_problem* problem,
                                          struct CUstream_st* stream);

/* Launches in the calling thread's current context. `arguments[i]` points to the i-th argument that the caller gives
 * (buffers' addresses and scalars, in the definition's order), as for cuLaunchKernel. */
JITUNE_C_API jitune_status jitune_launch(jitune_kernel* kernel, struct CUstream_st* stream,
                                         const jitune_problem* problem, const void* const* arguments, size_t count);

/* Which config a launch uses. The texts belong to the problem and are valid until its next change, choice or free. */
typedef struct jitune_choice {
  size_t struct_bytes;
  const char* source; /* stored, tuned, pinned, default, bundle, given */
  const char* config; /* canonical JSON */
  const char* rule;
  const char* why;
  double time_us, default_us; /* 0: not measured */
} jitune_choice;
JITUNE_C_API jitune_status jitune_get_choice(jitune_kernel* kernel, jitune_problem* problem, jitune_choice* choice);

/* Tunes now, whatever the track, with the definition's fills as data. Zeros: no bound. `outcome` (may be NULL) gets a
 * word: won, default_kept, budget ... */
JITUNE_C_API jitune_status jitune_tune(jitune_tuner* tuner, jitune_kernel* kernel, const jitune_problem* problem,
                                       int64_t budget_ms, uint64_t trials, const char** outcome);

/* Copies `bytes` into a `symbol` arg of the kernel. */
JITUNE_C_API jitune_status jitune_set_symbol(jitune_kernel* kernel, const char* name, const void* data, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
