#include "tune/compiler.hpp"

#include <future>
#include <utility>

#include "base/hash.hpp"
#include "base/json.hpp"
#include "compile/artifact.hpp"

namespace jitune::tune {
namespace {

// What a worker holds of memory after a compilation is some 100 MiB, with precompiled headers some 300; more is a leak.
constexpr int64_t kMaxWorkerBytes = 1ll << 30;
constexpr std::chrono::seconds kIdleExit{60};  // a worker is ready again within about 0.2 s

/// What deadlines are learnt for: the configs of one source.
std::string space_of(const CompileJob& job) {
  return job.kernel + ' ' + job.source.sha256;
}

/// Crashes and timeouts are retried or remembered; plain compile errors are artifacts with a log.
bool is_violent(const std::string& status) {
  return status == "crash" || status == "timeout";
}

store::ArtifactRow to_row(const CompileJob& job, compile::Artifact artifact) {
  store::ArtifactRow row;
  row.build_sha256 = job.build.sha256;
  row.kernel = job.kernel;
  row.config = job.build.config;
  row.status = compile::to_string(artifact.status);
  row.compile_ms = artifact.compile_ms;
  row.lowered_name = std::move(artifact.lowered_name);
  row.regs = artifact.regs;
  row.static_smem_bytes = artifact.static_smem_bytes;
  row.local_bytes = artifact.local_bytes;
  row.spill_bytes = artifact.spill_bytes;
  row.cubin = std::move(artifact.cubin);
  row.log = std::move(artifact.log);
  row.arch = job.build.arch;
  row.nvrtc = job.build.nvrtc;
  if (!row.cubin.empty()) row.cubin_sha256 = sha256_hex(row.cubin);
  return row;
}

compile::Artifact failed(compile::Status status, std::string log, double ms = 0) {
  compile::Artifact artifact;
  artifact.status = status;
  artifact.log = std::move(log);
  artifact.compile_ms = ms;
  return artifact;
}

/// What a worker's reply means for the job.
compile::Artifact to_artifact(const pool::Reply& reply) {
  switch (reply.outcome) {
    case pool::Outcome::ok: {
      auto artifact = compile::artifact_from_json(reply.message);
      if (!artifact) return failed(compile::Status::crash, "the worker's answer makes no sense: " + artifact.error());
      if (artifact->status == compile::Status::ok) {
        if (auto sane = compile::check_cubin(artifact->cubin, artifact->lowered_name); !sane)
          return failed(compile::Status::crash, "the cubin is damaged: " + sane.error());
      }
      return std::move(*artifact);
    }
    case pool::Outcome::timeout:
      return failed(compile::Status::timeout, reply.detail, reply.wall_ms);
    default: {
      std::string log = reply.detail;
      if (!reply.stderr_tail.empty()) log += "\nlast words:\n" + reply.stderr_tail;
      return failed(compile::Status::crash, std::move(log), reply.wall_ms);
    }
  }
}

/// For JITUNE_LOG=key: as FieldHasher::text() of what make_build_key hashes.
std::string fields_of(const key::BuildKey& key) {
  const std::pair<const char*, std::string> fields[] = {
      {"source_sha256", key.source_sha256},
      {"entry", key.entry},
      {"is_template", std::to_string(int{key.is_template})},
      {"config", key.config},
      {"defines", key.defines},
      {"defines_before_includes", std::to_string(int{key.defines_before_includes})},
      {"headers", key.headers},
      {"options", key.options},
      {"nvrtc", key.nvrtc},
      {"arch", key.arch},
      {"gives build_sha256", key.sha256}};
  std::string text = "schema = " + std::to_string(key::kKeySchema) + "\n";
  for (const auto& [label, value] : fields) text += std::string(label) + " = " + value + "\n";
  return text;
}

}  // namespace

Result<CompileJob> make_job(const space::Instance& instance, const space::Config& config, const key::SourceHash& source,
                            const std::string& nvrtc_build) {
  auto spec = instance.build(config);
  if (!spec) return spec.failure();
  CompileJob job;
  job.kernel = instance.model().name();
  job.config = config;
  job.spec = std::move(*spec);
  job.source = source;
  job.build = key::make_build_key(source, job.spec, config, nvrtc_build);
  return job;
}

Compiler::Compiler(Options options) : options_(std::move(options)), deadlines_(options_.timeout) {
  if (options_.worker.empty()) return;
  pool::PoolOptions pool;
  pool.program.path = options_.worker;
  pool.program.args = {"compile", "--nvrtc=" + options_.nvrtc.path};
  pool.program.environment = pool::worker_environment(false);
  pool.program.nice = 5;
  pool.width = options_.width;
  pool.max_resident_bytes = kMaxWorkerBytes;
  pool.idle_exit = kIdleExit;
  pool.slots = options_.slots;
  pool.log = options_.log;
  pool_ = std::make_unique<pool::Pool>(std::move(pool));
}

Compiler::~Compiler() {
  pool_.reset();
}  // its callbacks use the other members

void Compiler::warm_up(int count) {
  if (pool_) pool_->warm_up(std::min(count, options_.width));
}

int Compiler::spawned() const {
  return pool_ ? pool_->spawned() : 0;
}

std::optional<Compiled> Compiler::from_store(const CompileJob& job) {
  if (options_.log->keys()) options_.log->key(job.kernel, fields_of(job.build));
  auto row = options_.store->find_artifact(job.build.sha256);
  if (row && *row) {
    // A good artifact whose cubin was dropped or damaged is compiled again; a compile error stays one.
    if ((*row)->status != "ok" || !(*row)->cubin.empty()) {
      if (!is_violent((*row)->status)) return Compiled{job, std::move(**row), true, false};
    }
  }
  auto known = options_.store->known_failure(job.build.sha256, "");
  if (known && *known) {
    const bool timeout = **known == "compile_timeout";
    auto artifact = failed(timeout ? compile::Status::timeout : compile::Status::crash,
                           "not tried again: an earlier compilation ended in " + **known);
    return Compiled{job, to_row(job, std::move(artifact)), true, false};
  }
  return std::nullopt;
}

void Compiler::keep(const Compiled& compiled, bool for_good) {
  const auto& row = compiled.artifact;
  if (is_violent(row.status) && for_good) {
    const char* status = row.status == "timeout" ? "compile_timeout" : "compile_crash";
    (void)options_.store->record_failure(row.build_sha256, "", status, row.log);
  }
  if (auto put = options_.store->put_artifact(row, compiled.job.source, compiled.job.spec.source_text); !put)
    options_.log->warning("store_write", compiled.job.kernel, "an artifact could not be stored: " + put.error(), "put");
}

std::string Compiler::header_directory() {
  if (!options_.reuse_headers) return "";
  std::call_once(headers_once_, [this] {
    headers_ = compile::HeaderDirectory::make();
    if (!headers_) options_.log->debug("no_header_reuse", "", "no directory for precompiled headers could be made");
  });
  return headers_ ? headers_->path() : "";
}

uint64_t Compiler::start(CompileJob job, pool::Placement placement, std::function<void(Compiled)> done) {
  const bool retry = placement != pool::Placement::any;
  compile::Request request{job.spec, options_.nvrtc.path, options_.nvrtc.include_dirs, {}};
  // After a crash nothing is left that could have caused it but the config itself.
  if (job.many_alike && !retry) request.header_directory = header_directory();
  Json message = compile::to_json(request);
  pool::RequestOptions how{options_.timeout, [this, space = space_of(job)] { return deadlines_.deadline(space); },
                           placement};
  return pool_->submit(std::move(message), std::move(how),
                       [this, job = std::move(job), retry, done = std::move(done)](pool::Reply reply) mutable {
                         finish(std::move(job), retry, std::move(reply), std::move(done));
                       });
}

/// A timeout that says little about the config: the user would have let it go on.
bool Compiler::ended_early(const pool::Reply& reply) const {
  return reply.outcome == pool::Outcome::timeout && reply.limit < options_.timeout;
}

void Compiler::finish(CompileJob job, bool retry, pool::Reply reply, std::function<void(Compiled)> done) {
  using pool::Outcome;
  if (reply.outcome == Outcome::cancelled || reply.outcome == Outcome::no_worker || reply.outcome == Outcome::gave_up) {
    // Nothing is wrong with the config, so nothing is stored about it.
    Compiled compiled{std::move(job), {}, false, true};
    compiled.no_worker = reply.outcome == Outcome::no_worker;
    compiled.artifact = to_row(compiled.job, failed(compile::Status::crash, reply.detail));
    done(std::move(compiled));
    return;
  }
  ++compilations_;
  auto artifact = to_artifact(reply);
  if (artifact.headers.starts_with("not "))
    options_.log->debug("header_reuse", job.kernel, "precompiled header " + artifact.headers);
  if (artifact.status == compile::Status::crash && !retry && !(job.unwanted && *job.unwanted)) {
    options_.log->debug("compile_retry", job.kernel, space::short_text(job.config) + ": " + artifact.log);
    start(std::move(job), reply.likely_oom ? pool::Placement::alone : pool::Placement::fresh, std::move(done));
    return;
  }
  const bool early = ended_early(reply);
  if (artifact.status == compile::Status::ok || early) deadlines_.note(space_of(job), reply.wall_ms);
  if (early)
    artifact.log += "; most configs of this kernel need a tenth of that at most (the limit is " +
                    std::to_string(options_.timeout.count() / 1000) + " s, tried again in another study)";
  Compiled compiled{std::move(job), {}, false, false};
  compiled.artifact = to_row(compiled.job, std::move(artifact));
  // A first crash that is not retried, because nobody wants the result any more, is no verdict.
  keep(compiled, !early && (retry || compiled.artifact.status != "crash"));
  done(std::move(compiled));
}

Compiled Compiler::compile_here(CompileJob job) {
  const std::lock_guard lock(here_mutex_);
  options_.log->warning("no_worker", job.kernel,
                        "jitune-worker was not found, so this config is compiled in the application's own process "
                        "(set JITUNE_WORKER or Options::worker)",
                        "once");
  compile::Artifact artifact;
  if (!here_) {
    auto loaded = compile::Nvrtc::load(options_.nvrtc.path);
    if (!loaded)
      artifact = failed(compile::Status::error, loaded.error());
    else
      here_ = std::move(*loaded);
  }
  if (here_) artifact = here_->compile({job.spec, options_.nvrtc.path, options_.nvrtc.include_dirs, {}});
  ++compilations_;
  Compiled compiled{std::move(job), {}, false, false};
  compiled.artifact = to_row(compiled.job, std::move(artifact));
  if (here_) keep(compiled);
  return compiled;
}

Compiled Compiler::compile(CompileJob job) {
  if (auto known = from_store(job)) return std::move(*known);
  if (!pool_) return compile_here(std::move(job));
  std::promise<Compiled> promise;
  auto future = promise.get_future();
  start(std::move(job), pool::Placement::any,
        [&promise](Compiled compiled) { promise.set_value(std::move(compiled)); });
  Compiled compiled = future.get();
  // After a storm of deaths not: what killed the workers would kill the application.
  return compiled.no_worker ? compile_here(std::move(compiled.job)) : compiled;
}

// Stream -------------------------------------------------------------------------------------------------------------

struct Compiler::Stream::State {
  std::mutex mutex;
  std::condition_variable ready;
  std::deque<Compiled> finished;
  size_t pending = 0;  // submitted and not yet taken with next()
  std::vector<uint64_t> requests;
  bool woken = false;
  std::atomic<bool> abandoned{false};

  std::optional<Compiled> take() {  // with mutex
    if (finished.empty()) return std::nullopt;
    Compiled compiled = std::move(finished.front());
    finished.pop_front();
    --pending;
    return compiled;
  }
};

Compiler::Stream::Stream(Compiler& compiler, bool many_alike)
    : compiler_(compiler), many_alike_(many_alike), state_(std::make_shared<State>()) {}

Compiler::Stream::~Stream() {
  std::vector<uint64_t> requests;
  std::deque<Compiled> untaken;  // their jobs hold the state that holds them
  {
    const std::lock_guard lock(state_->mutex);
    state_->abandoned = true;
    untaken.swap(state_->finished);
    if (state_->pending > untaken.size()) requests.swap(state_->requests);
  }
  for (const uint64_t request : requests) compiler_.pool_->cancel(request);  // no effect on those that are done
}

void Compiler::Stream::submit(CompileJob job) {
  job.many_alike |= many_alike_;
  {
    const std::lock_guard lock(state_->mutex);
    ++state_->pending;
  }
  job.unwanted = std::shared_ptr<const std::atomic<bool>>(state_, &state_->abandoned);
  auto deliver = [state = state_](Compiled compiled) {
    const std::lock_guard lock(state->mutex);
    if (state->abandoned) return;
    state->finished.push_back(std::move(compiled));
    state->ready.notify_one();
  };
  if (auto known = compiler_.from_store(job)) {
    deliver(std::move(*known));
  } else if (compiler_.pool_) {
    const uint64_t request = compiler_.start(std::move(job), pool::Placement::any, std::move(deliver));
    const std::lock_guard lock(state_->mutex);
    state_->requests.push_back(request);
  } else {
    deliver(compiler_.compile_here(std::move(job)));
  }
}

size_t Compiler::Stream::pending() const {
  const std::lock_guard lock(state_->mutex);
  return state_->pending;
}

void Compiler::Stream::wake() {
  const std::lock_guard lock(state_->mutex);
  state_->woken = true;
  state_->ready.notify_one();
}

std::optional<Compiled> Compiler::Stream::next(Clock::time_point deadline) {
  std::unique_lock lock(state_->mutex);
  if (state_->pending == 0) return std::nullopt;
  const bool in_time =
      state_->ready.wait_until(lock, deadline, [&] { return !state_->finished.empty() || state_->woken; });
  state_->woken = false;
  return in_time ? state_->take() : std::nullopt;
}

std::optional<Compiled> Compiler::Stream::take() {
  const std::lock_guard lock(state_->mutex);
  return state_->take();
}

}  // namespace jitune::tune
