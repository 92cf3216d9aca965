#include <algorithm>
#include <cstdio>
#include <vector>

#include "apps/prewarm/commands.hpp"
#include "apps/prewarm/failures.hpp"
#include "apps/prewarm/text.hpp"
#include "base/json.hpp"
#include "tune/tune.hpp"

namespace jitune::prewarm {
namespace {

struct Done {
  const Task* task = nullptr;
  tune::CompileReport report;
  Failures failures;
  std::string trouble;  ///< why it could not be done at all
};

/// ` (1 error, 2 timeouts)`, or "" when nothing failed.
std::string causes(const tune::CompileReport& report) {
  std::string text;
  const std::pair<uint64_t, const char*> counts[] = {
      {report.errors, "error"}, {report.timeouts, "timeout"}, {report.crashes, "crash"}};
  for (const auto& [count, what] : counts)
    if (count > 0)
      text +=
          (text.empty() ? " (" : ", ") +
          (count > 1 && std::string(what) == "crash" ? std::to_string(count) + " crashes" : count_text(count, what));
  return text.empty() ? "" : text + ")";
}

/// `200 configs: 198 compiled, 0 from the database, 2 failed; 34.2 s, 14 workers`, or that nothing was to do.
std::string summary(const Done& done) {
  const tune::CompileReport& report = done.report;
  const uint64_t seen = report.compiled + report.from_store;
  if (report.complete && report.compiled == 0 && report.failed == 0)
    return "nothing to do: " +
           (seen == 1 ? std::string("the artifact is") : "all " + std::to_string(seen) + " artifacts are") +
           " in the database";
  if (report.complete && report.compiled == 0)
    return "nothing to do: " + count_text(seen - report.failed, "artifact") + " and " +
           count_text(report.failed, "known failure") + " are in the database";
  std::string text = count_text(report.configs, "config") + ": " + std::to_string(report.compiled) + " compiled, " +
                     std::to_string(report.from_store) + " from the database, " + std::to_string(report.failed) +
                     " failed" + causes(report) + "; " + duration_text(report.wall_ms) + ", " +
                     count_text(static_cast<uint64_t>(report.workers_started), "worker") + " started";
  if (report.compiled > 0 && report.wall_ms > 0) {
    char speedup[64];
    std::snprintf(speedup, sizeof speedup, ", %.1f times one compiler's pace (%s)", report.compile_ms / report.wall_ms,
                  duration_text(report.compile_ms).c_str());
    text += speedup;
  }
  return text + (report.complete ? "" : "; interrupted, the same command goes on from here");
}

std::string task_report(const Done& done) {
  std::string text = done.task->label() + "\n";
  if (!done.trouble.empty()) return text + "  failed: " + done.trouble + "\n";
  return text + done.failures.text() + "  " + summary(done) + "\n";
}

Json to_json(const Done& done) {
  return {{"kernel", done.task->instance.model().name()},
          {"arch", done.task->instance.device().arch()},
          {"problem", Json::parse(space::canonical(done.task->instance.problem()))},
          {"variant", done.task->instance.variant()},
          {"configs", done.report.configs},
          {"compiled", done.report.compiled},
          {"from_store", done.report.from_store},
          {"failed", done.report.failed},
          {"errors", done.report.errors},
          {"timeouts", done.report.timeouts},
          {"crashes", done.report.crashes},
          {"failures", done.failures.json()},
          {"wall_ms", done.report.wall_ms},
          {"compile_ms", done.report.compile_ms},
          {"workers_started", done.report.workers_started},
          {"complete", done.report.complete},
          {"trouble", done.trouble}};
}

Done compile_one(Session& session, tune::Services& services, const Task& task, const std::string& place) {
  Done done{&task, {}, {}, {}};
  const Clock::time_point start = Clock::now();
  tune::CompileAllRequest request;
  request.instance = &task.instance;
  request.defaults_only = session.options().defaults_only;
  request.limit = session.options().limit;
  request.cancelled = interrupted;
  request.on_compiled = [&](const tune::Compiled& compiled, const tune::CompileReport& report) {
    if (compiled.artifact.status != "ok")
      done.failures.add(compiled.artifact.status, compiled.artifact.log, compiled.artifact.config);
    session.progress().update({place + task.label(), report.configs, report.compiled + report.from_store, report.failed,
                               0, 0, ms_since(start), 0});
  };
  Result<tune::CompileReport> report = tune::compile_all(services, request);
  session.progress().clear();
  if (report)
    done.report = *report;
  else
    done.trouble = report.error();
  return done;
}

void check_bounded(const std::vector<Task>& tasks, const Options& options) {
  if (options.defaults_only || options.limit > 0) return;
  for (const Task& task : tasks)
    if (is_vast(task.instance))
      throw Stop(Exit::usage, task.label() +
                                  ": its space has more than 100000 configs; say how many to compile, with "
                                  "--limit N or --defaults-only");
}

/// With --defaults-only every problem needs a default config; nothing is opened before that is known.
void check_defaults(const std::vector<Task>& tasks, const Options& options) {
  if (!options.defaults_only) return;
  for (const Task& task : tasks)
    if (const auto config = task.instance.default_config(); !config) throw Stop(Exit::no_valid_config, config.error());
}

Exit exit_for(const std::vector<Done>& all) {
  uint64_t good = 0, failed = 0;
  bool trouble = false;
  for (const Done& done : all) {
    good += done.report.compiled + done.report.from_store - done.report.failed;
    failed += done.report.failed;
    trouble |= !done.trouble.empty();
  }
  if (interrupted()) return Exit::interrupted;
  if (failed == 0 && !trouble) return Exit::ok;
  return good == 0 && !trouble ? Exit::no_valid_config : Exit::partly;
}

/// One line over all kernels and problems.
std::string total_text(const std::vector<Done>& all, double wall_ms) {
  Done total;
  total.report.wall_ms = wall_ms;
  for (const Done& done : all) {
    total.report.configs += done.report.configs;
    total.report.compiled += done.report.compiled;
    total.report.from_store += done.report.from_store;
    total.report.failed += done.report.failed;
    total.report.errors += done.report.errors;
    total.report.timeouts += done.report.timeouts;
    total.report.crashes += done.report.crashes;
    total.report.compile_ms += done.report.compile_ms;
    total.report.workers_started += done.report.workers_started;
    total.report.complete &= done.report.complete && done.trouble.empty();
  }
  return summary(total);
}

}  // namespace

Exit run_compile(Session& session) {
  const bool json = session.options().json;
  const std::vector<Work> work = session.load();
  const std::vector<space::DeviceInfo> devices = session.gpu_or_archs();
  std::vector<Task> tasks;
  std::string archs;
  for (const space::DeviceInfo& device : devices) {
    archs += (archs.empty() ? "" : ", ") + device.arch();
    for (Task& task : session.tasks(work, device)) tasks.push_back(std::move(task));
  }
  check_bounded(tasks, session.options());
  check_defaults(tasks, session.options());
  const std::unique_ptr<tune::Services> services = session.open_services();
  const std::string nvrtc = services->nvrtc()->build;
  if (!json) print("for " + archs + " with NVRTC " + nvrtc + ", database " + services->store().path() + "\n");

  const Clock::time_point start = Clock::now();
  std::vector<Done> all;
  for (size_t i = 0; i < tasks.size() && !interrupted(); ++i) {
    std::string place =
        tasks.size() > 1 ? std::to_string(i + 1) + "/" + std::to_string(tasks.size()) + " " : std::string();
    if (devices.size() > 1) place += tasks[i].instance.device().arch() + " ";
    all.push_back(compile_one(session, *services, tasks[i], place));
    if (!json) print((devices.size() > 1 ? tasks[i].instance.device().arch() + "  " : "") + task_report(all.back()));
    std::fflush(stdout);
  }

  const Exit exit = exit_for(all);
  if (!json) {
    if (all.size() > 1) print("in all\n  " + total_text(all, ms_since(start)) + "\n");
    if (all.size() < tasks.size()) print(std::to_string(tasks.size() - all.size()) + " more were not begun\n");
    return exit;
  }
  Json results = Json::array();
  for (const Done& done : all) results.push_back(to_json(done));
  print(Json{{"arch", archs},
             {"nvrtc", nvrtc},
             {"database", services->store().path()},
             {"results", results},
             {"not_begun", tasks.size() - all.size()},
             {"wall_ms", ms_since(start)},
             {"exit_code", static_cast<int>(exit)}}
            .dump(2, ' ', false, Json::error_handler_t::replace) +
        "\n");
  return exit;
}

}  // namespace jitune::prewarm
