#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "base/clock.hpp"
#include "compile/header_reuse.hpp"
#include "compile/nvrtc.hpp"
#include "key/key.hpp"
#include "pool/pool.hpp"
#include "space/instance.hpp"
#include "store/store.hpp"
#include "tune/compile_deadlines.hpp"

namespace jitune::tune {

/// One config to compile.
struct CompileJob {
  std::string kernel;
  space::Config config;
  space::BuildSpec spec;
  key::SourceHash source;
  key::BuildKey build;
  bool many_alike = false;  ///< more configs of this kernel follow: reading its headers once for all of them pays
  std::shared_ptr<const std::atomic<bool>> unwanted = {};  ///< true: nobody waits for it, so no retry after a crash
};

/// Makes the job of one config of an instance.
Result<CompileJob> make_job(const space::Instance& instance, const space::Config& config, const key::SourceHash& source,
                            const std::string& nvrtc_build);

/// What came of a job.
struct Compiled {
  CompileJob job;
  store::ArtifactRow artifact;  ///< status ok: with its cubin
  bool from_store = false;      ///< nothing was compiled
  bool not_run = false;         ///< cancelled, or no worker could be started: says nothing about the config
  bool no_worker = false;       ///< not run because none could be started (rather than that too many died)
};

/// The build cache in front of the compile workers. Safe from any thread.
/// Every finished compilation is stored before it is handed out: good cubins as artifacts, failures with their log.
/// A crash is retried once on a fresh worker, with no other beside it when it died for want of memory; what crashes
/// twice or exceeds `timeout` is remembered and not tried again. Deadlines adapt (compile_deadlines.hpp): what is ended
/// by one that is shorter than `timeout` is a timeout for now, but not remembered: a later study tries it again.
class Compiler {
 public:
  struct Options {
    std::string worker;  ///< "": compile in this process, with a warning
    compile::NvrtcFile nvrtc;
    int width = 1;
    std::chrono::milliseconds timeout{60000};
    bool reuse_headers = true;  ///< precompile headers where several configs of a kernel are compiled
    pool::SlotOptions slots;
    store::Store* store = nullptr;
    Log* log = nullptr;
  };
  explicit Compiler(Options options);
  ~Compiler();

  /// Blocks until the job is done: at most the timeout, twice where a crash is retried. Where no worker can be started,
  /// compiles in this process, with a warning.
  Compiled compile(CompileJob job);

  /// Compilations in flight, delivered as they finish, in any order. Destroying it cancels the rest.
  class Stream {
   public:
    /// `many_alike`: several configs of one kernel will be submitted.
    explicit Stream(Compiler& compiler, bool many_alike = false);
    ~Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    void submit(CompileJob job);
    size_t pending() const;
    /// The next finished one; nothing when none is pending, the deadline passed or wake() was called.
    std::optional<Compiled> next(Clock::time_point deadline);
    /// One that is finished already, if any. Never waits.
    std::optional<Compiled> take();
    /// Ends a next() that waits, or the next one that would. From any thread.
    void wake();

   private:
    friend class Compiler;
    struct State;
    Compiler& compiler_;
    const bool many_alike_;
    std::shared_ptr<State> state_;
  };

  /// Starts workers ahead of the first jobs. Does not wait.
  void warm_up(int count);

  int width() const { return options_.width; }
  int spawned() const;                                ///< workers started so far
  int compilations() const { return compilations_; }  ///< jobs that really went to NVRTC
  const compile::NvrtcFile& nvrtc() const { return options_.nvrtc; }

 private:
  std::optional<Compiled> from_store(const CompileJob& job);
  std::string header_directory();  ///< "" when there is none
  uint64_t start(CompileJob job, pool::Placement placement, std::function<void(Compiled)> done);
  void finish(CompileJob job, bool retry, pool::Reply reply, std::function<void(Compiled)> done);
  bool ended_early(const pool::Reply& reply) const;
  Compiled compile_here(CompileJob job);
  void keep(const Compiled& compiled, bool for_good = true);

  Options options_;
  CompileDeadlines deadlines_;
  std::unique_ptr<pool::Pool> pool_;
  std::once_flag headers_once_;
  std::unique_ptr<compile::HeaderDirectory> headers_;
  std::mutex here_mutex_;
  std::unique_ptr<compile::Nvrtc> here_;
  std::atomic<int> compilations_{0};
};

}  // namespace jitune::tune
