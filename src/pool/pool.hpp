#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "base/log.hpp"
#include "base/result.hpp"

namespace jitune::pool {

/// Which program a worker is and what it is told at its start.
struct WorkerProgram {
  std::string path;                      ///< absolute
  std::vector<std::string> args;         ///< after argv[0]; the parent's pid is appended by the pool
  std::vector<std::string> environment;  ///< the whole environment, NAME=value
  int nice = 0;                          ///< added to the priority of compile workers
};

/// Looks for jitune-worker: `option` (Options::worker), JITUNE_WORKER (`environment`), beside the module that holds our
/// code, ../libexec/jitune beside it, the install path. The failure lists each path tried with its errno.
Result<std::string> find_worker(const std::string& option, const std::string& environment);

/// The environment for a worker: PATH, HOME, TMPDIR, LANG=C and what CUDA needs, nothing else of the host's
/// (LD_PRELOAD, NVCC_APPEND_FLAGS and the like stay out). Compile workers see no GPU.
std::vector<std::string> worker_environment(bool sees_gpu);

enum class Outcome : uint8_t {
  ok,         ///< `message` is the worker's answer
  timeout,    ///< the deadline passed; the worker was killed and is gone
  crash,      ///< the worker died by itself; `detail` says how, `stderr_tail` holds its last words
  protocol,   ///< the worker sent something that is not an answer; it was killed
  cancelled,  ///< cancel() or the pool's end
  no_worker,  ///< it could not be started, or said a wrong hello
  gave_up,    ///< too many workers in a row died of what they were asked; whatever killed them is no safer elsewhere
};
const char* to_string(Outcome outcome) noexcept;

struct Reply {
  Outcome outcome = Outcome::no_worker;
  Json message;
  std::string detail;                  ///< a sentence for people: `killed by SIGSEGV`, `no answer within 2.0 s`
  std::string stderr_tail;             ///< at most 2 KiB
  double wall_ms = 0;                  ///< from sending the request, queueing not counted
  bool likely_oom = false;             ///< crash by a SIGKILL that was not ours
  std::chrono::milliseconds limit{0};  ///< timeout: the deadline that passed
};

using Milliseconds = std::chrono::milliseconds;

/// Where a request may run.
enum class Placement : uint8_t {
  any,
  fresh,  ///< on a worker that has served nobody before
  alone,  ///< likewise, and with no other worker of the pool beside it: after a death for want of memory
};

struct RequestOptions {
  Milliseconds deadline{60000};
  /// Asked when a worker gets the request and each second after it; a shorter answer than `deadline` counts. Called on
  /// the io thread. Empty: `deadline` is all.
  std::function<Milliseconds()> current_deadline = {};
  Placement placement = Placement::any;  ///< anything but `any` also goes to the head of the queue
};

/// Compile slots shared with other processes of the user; see pool/slots.hpp.
struct SlotOptions {
  std::string directory;         ///< "": none are shared
  int count = 1;                 ///< of the whole machine
  Milliseconds patience{60000};  ///< without any, and none changes hands: a pool goes on with one worker all the same
};

struct PoolOptions {
  WorkerProgram program;
  int width = 1;  ///< most workers at a time; they start when first needed
  Milliseconds hello_timeout{30000};
  int max_requests_per_worker = 1000;      ///< then it is replaced
  int64_t max_resident_bytes = 2ll << 30;  ///< checked after each answer; above it the worker is replaced
  Milliseconds idle_exit{0};               ///< a worker leaves after so long without a request; 0: it stays
  SlotOptions slots;                       ///< workers start and work only with one
  Log* log = nullptr;                      ///< outlives the pool

  // Rarely changed; tests make them short.
  int storm_deaths = 5;             ///< workers that end in a row without an answer before the pool gives up
  Milliseconds storm_pause{60000};  ///< for how long it then answers no_worker at once
  Milliseconds backoff{50};         ///< before a new worker after the second death in a row; doubles with each
  Milliseconds stuck_after{10000};  ///< a killed worker still there then holds its place for good (stuck in the driver)
  Milliseconds narrow_for{60000};   ///< a death for want of memory halves the width; it doubles again after so long
  bool use_pidfd = true;            ///< false: ask for dead workers every 10 ms, as where pidfd_open is refused
};

/// Runs requests on worker processes. Every rule of the design's process checklist: posix_spawn with clean signals and
/// descriptors, own process group, death told by pidfd, deadlines by SIGKILL, a dead worker costs its request only.
/// Safe from any thread. One io thread per pool, with all signals blocked, started with the first request.
/// The destructor cancels what is left, kills, and waits at most one second; a worker that is stuck is left to a thread
/// of its own. After fork() the child's copy does nothing: requests get no_worker, the destructor touches nothing.
///
/// A worker's answer `{"id", "reply"}` may hold `"last": true`: it is about to end by itself and gets no more requests.
/// Too many deaths in a row (storm_deaths), a program that can't be started or a wrong hello turn the pool off for
/// storm_pause: requests then get gave_up or no_worker at once, with the reason. restart() turns it on again.
class Pool {
 public:
  explicit Pool(PoolOptions options);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  using Callback = std::function<void(Reply)>;

  /// Queues a request. `done` is called once, on the io thread: it must be short and must not call wait functions.
  /// The deadline counts from when a worker (that has said hello) is given the request.
  /// A crash is not retried here.
  uint64_t submit(Json request, Milliseconds deadline, Callback done);
  uint64_t submit(Json request, RequestOptions options, Callback done);

  /// Takes back a request: unsent ones are dropped, a running one costs its worker. `done` gets `cancelled`.
  void cancel(uint64_t id);
  void cancel_all();

  /// Waits for the answer. Not to be called from a callback.
  Reply call(Json request, Milliseconds deadline);

  /// Starts up to `count` workers now, so that the first requests find them ready. Does not wait.
  void warm_up(int count);

  /// Kills the workers and forgets them; the next request starts fresh ones. Waits until they are gone, at most
  /// `stuck_after`; false when one is stuck (in the driver, say), at once where that is known already.
  bool restart();

  /// The hello of the most recent worker, or null before there was one.
  Json hello() const;

  int spawned() const;  ///< workers started so far

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// How many compile workers this machine bears: nine tenths of the usable cores (affinity and cgroup quota counted),
/// at least one, and no more than available memory holds at `bytes_each`.
int default_width(int64_t bytes_each = 400ll << 20);

/// Where this user's jitune processes meet: `chosen` (JITUNE_RUNTIME_DIR), or /tmp/jitune-UID. Not below $TMPDIR or
/// $XDG_RUNTIME_DIR, which a login shell has and a service has not. "" when `chosen` is `off`.
std::string runtime_directory(const std::string& chosen);

}  // namespace jitune::pool
