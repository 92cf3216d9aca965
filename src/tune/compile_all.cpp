#include <algorithm>
#include <utility>

#include "tune/compiler.hpp"
#include "tune/tune.hpp"

namespace jitune::tune {
namespace {

constexpr size_t kMaxConfigs = 1'000'000;
constexpr size_t kAlike = 4;  // from here on precompiled headers pay even on one worker

void count(const Compiled& compiled, CompileReport& report) {
  const std::string& status = compiled.artifact.status;
  if (status != "ok") ++report.failed;
  if (status == "error") ++report.errors;
  if (status == "timeout") ++report.timeouts;
  if (status == "crash") ++report.crashes;
  if (compiled.from_store) {
    ++report.from_store;
  } else {
    ++report.compiled;
    report.compile_ms += compiled.artifact.compile_ms;
  }
}

}  // namespace

Result<CompileReport> compile_all(Services& services, const CompileAllRequest& request) {
  const auto start = Clock::now();
  const space::Instance& instance = *request.instance;
  auto library = services.nvrtc();
  if (!library) return library.failure();
  auto source = services.source_hash(instance);
  if (!source) return source.failure();

  std::vector<space::Config> configs;
  if (request.defaults_only) {
    auto config = instance.default_config();
    if (!config) return config.failure();
    configs.push_back(std::move(*config));
  } else {
    configs = instance.space().list(request.limit > 0 ? request.limit : kMaxConfigs + 1);
    if (configs.size() > kMaxConfigs && request.limit == 0)
      return Failure{"the space of kernel '" + instance.model().name() + "' has more than " +
                     std::to_string(kMaxConfigs) + " valid configs; set a limit"};
  }
  CompileReport report;
  report.configs = configs.size();

  auto compiler = services.compiler();
  if (!compiler) return compiler.failure();
  const int spawned_before = (*compiler)->spawned();
  Compiler::Stream stream(**compiler, configs.size() >= kAlike);
  const size_t ahead = 4 * static_cast<size_t>((*compiler)->width());
  size_t next = 0;
  while (next < configs.size() || stream.pending() > 0) {
    if (request.cancelled && request.cancelled()) {
      report.complete = false;
      break;
    }
    while (next < configs.size() && stream.pending() < ahead) {
      auto job = make_job(instance, configs[next++], *source, library->build);
      if (!job) return job.failure();
      stream.submit(std::move(*job));
    }
    // Wakes up to look at `cancelled`, should nothing finish for a while.
    auto compiled = stream.next(Clock::now() + std::chrono::milliseconds(200));
    if (!compiled) continue;
    if (compiled->not_run) return Failure{compiled->artifact.log};
    count(*compiled, report);
    if (compiled->artifact.status == "ok") {
      // Should this fail, an eviction may take the cubin early and it is compiled again.
      const auto marked = services.store().keep_until_tuned(compiled->artifact.build_sha256,
                                                            space::canonical(instance.bucketed_problem()));
      if (!marked) services.log().warning("store_write", instance.model().name(), marked.error(), "ahead");
    }
    report.wall_ms = ms_since(start);
    report.workers_started = (*compiler)->spawned() - spawned_before;
    if (request.on_compiled) request.on_compiled(*compiled, report);
  }
  report.wall_ms = ms_since(start);
  report.workers_started = (*compiler)->spawned() - spawned_before;
  return report;
}

}  // namespace jitune::tune
