#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "apps/prewarm/commands.hpp"
#include "apps/prewarm/text.hpp"
#include "base/json.hpp"
#include "compile/choose_nvrtc.hpp"
#include "compile/nvrtc.hpp"
#include "gpu/driver.hpp"
#include "pool/pool.hpp"
#include "store/schema.hpp"
#include "tune/device_lock.hpp"

namespace jitune::prewarm {
namespace {

/// All findings: text for people, the same for scripts, and what is missing.
struct Report {
  std::string text;
  Json json = Json::object();
  std::vector<std::string> missing;
  bool database_bad = false;

  void line(const char* state, const std::string& what, const std::string& finding) {
    std::string label = "  " + std::string(state);
    label += std::string(label.size() < 11 ? 11 - label.size() : 1, ' ') + what;
    text += label + std::string(label.size() < 26 ? 26 - label.size() : 1, ' ') + indented(finding, 26) + "\n";
  }

  /// Later lines stand below the first; long ones are broken at spaces.
  static std::string indented(const std::string& text, size_t columns) {
    constexpr size_t kWidth = 90;
    std::string out;
    size_t length = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const bool wrap =
          text[i] == ' ' && length + (std::min(text.find_first_of(" \n", i + 1), text.size()) - i) > kWidth;
      length = text[i] == '\n' || wrap ? 0 : length + 1;
      out += length == 0 ? "\n" + std::string(columns, ' ') : std::string(1, text[i]);
    }
    return out;
  }
};

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

void look_at_gpus(Report& report) {
  const Result<const gpu::Driver*> driver = gpu::driver();
  report.json["gpus"] = Json::array();
  if (!driver) {
    report.line("missing", "GPU",
                driver.error() + "\n`jit-prewarm compile --arch sm_90` works without a GPU; tune does not");
    report.json["driver"] = {{"found", false}, {"problem", driver.error()}};
    report.missing.emplace_back("gpu");
    return;
  }
  report.line("ok", "CUDA driver", version_text((*driver)->version) + " (the newest CUDA it supports), libcuda.so.1");
  report.json["driver"] = {{"found", true}, {"version", version_text((*driver)->version)}};
  const Result<std::vector<space::DeviceInfo>> devices = gpu::devices();
  if (!devices || devices->empty()) {
    report.line("missing", "GPU",
                devices ? "the driver shows none; check `nvidia-smi` and CUDA_VISIBLE_DEVICES" : devices.error());
    report.missing.emplace_back("gpu");
    return;
  }
  for (size_t i = 0; i < devices->size(); ++i) {
    const space::DeviceInfo& gpu = (*devices)[i];
    const bool measured_on = tune::is_device_locked(gpu.uuid);
    gpu::Sharing sharing;
    if (const auto device = gpu::find_device(**driver, gpu.uuid)) sharing = gpu::sharing(**driver, *device);
    const std::string mode = sharing.prohibited ? "prohibited: no context at all (nvidia-smi -c DEFAULT)"
                             : sharing.exclusive
                                 ? "exclusive: tuning beside an application is off (nvidia-smi -c DEFAULT)"
                                 : "default";
    report.line(sharing.prohibited || sharing.mps ? "wrong" : "ok", "GPU " + std::to_string(i),
                gpu.name + ", " + gpu.arch() + ", " + std::to_string(gpu.sm_count) + " SMs, " +
                    bytes_text(gpu.memory_bytes) + "\n" + gpu.uuid + "\ncompute mode " + mode +
                    (sharing.mps ? "\nits contexts go through MPS: tuning is off there" : "") +
                    "\nmeasuring: " + (measured_on ? "another process does right now" : "nobody right now") +
                    " (lock " + tune::device_lock_path(gpu.uuid) + ")");
    report.json["gpus"].push_back(
        {{"index", i},
         {"name", gpu.name},
         {"uuid", gpu.uuid},
         {"compute_capability", std::to_string(gpu.cc_major) + "." + std::to_string(gpu.cc_minor)},
         {"arch", gpu.arch()},
         {"sm_count", gpu.sm_count},
         {"memory_bytes", gpu.memory_bytes},
         {"compute_mode", sharing.prohibited  ? "prohibited"
                          : sharing.exclusive ? "exclusive"
                                              : "default"},
         {"mps", sharing.mps},
         {"device_lock", tune::device_lock_path(gpu.uuid)},
         {"measured_on", measured_on}});
  }
}

void look_at_nvrtc(Report& report, const tune::ServiceOptions& options) {
  const compile::NvrtcSearch search = compile::find_nvrtc({options.nvrtc, options.cuda_home, options.cuda_path, {}});
  const bool named = !options.nvrtc.empty();
  const compile::NvrtcChoice choice =
      compile::choose_nvrtc(search.found, named ? compile::NvrtcTarget{} : tune::compile_target());
  Json found = Json::array();
  for (size_t i = 0; i < search.found.size(); ++i) {
    const compile::NvrtcFile& file = search.found[i];
    const bool used = choice.index == static_cast<int>(i);
    const std::string reason = named ? "named by --nvrtc or JITUNE_NVRTC" : choice.reasons[i];
    report.line(used ? "ok" : "", used ? "NVRTC" : "also",
                file.build + "  " + file.path + "\n" + reason +
                    (file.include_dirs.empty() ? "\nwithout CUDA headers: sources that include "
                                                 "some will not compile"
                                               : ""));
    found.push_back({{"path", file.path},
                     {"version", file.version},
                     {"build", file.build},
                     {"include_dirs", file.include_dirs},
                     {"used", used},
                     {"reason", reason}});
  }
  if (!choice.note.empty()) report.line("", "note", choice.note);
  if (choice.index < 0) {
    report.line("missing", "NVRTC",
                std::string(search.found.empty() ? "" : "none of these serves this driver and GPU: ") +
                    "install the CUDA Toolkit 12 or 13, or NVIDIA's wheels (nvidia-cuda-nvrtc, nvidia-cuda-runtime,\n"
                    "nvidia-cuda-cccl), or name the library with --nvrtc PATH or JITUNE_NVRTC");
    report.missing.emplace_back("nvrtc");
  }
  for (size_t i = 0; i < search.tried.size(); ++i) report.line("", i == 0 ? "looked at" : "", search.tried[i]);
  report.json["nvrtc"] = {{"found", found}, {"tried", search.tried}, {"note", choice.note}};
}

/// What `PATH --version` prints, or "" when it does not start.
std::string version_of(const std::string& path) {
  std::string quoted = "'";
  for (const char c : path) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  std::FILE* pipe = ::popen((quoted + "' --version 2>/dev/null").c_str(), "re");
  if (pipe == nullptr) return "";
  char text[128] = "";
  const size_t size = std::fread(text, 1, sizeof text - 1, pipe);
  const int status = ::pclose(pipe);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? std::string(trim({text, size})) : std::string();
}

void look_at_worker(Report& report, const tune::ServiceOptions& options) {
  const Result<std::string> path = pool::find_worker(options.worker, options.worker_env);
  const std::string version = path ? version_of(*path) : "";
  const std::string expected = "jitune-worker " JITUNE_VERSION;
  report.json["worker"] = {{"found", path.ok()}, {"path", path ? *path : ""}, {"version", version}};
  if (path && version == expected) {
    report.line("ok", "worker", *path);
  } else if (path) {
    report.line("wrong", "worker",
                *path + "\n" + (version.empty() ? "it does not start" : "it is " + version) + "; " + expected +
                    " is needed: install jitune anew, or name it with --worker");
    report.missing.emplace_back("worker");
  } else {
    report.line("missing", "worker", for_command_line(path.error()));
    report.json["worker"]["problem"] = path.error();
    report.missing.emplace_back("worker");
  }
}

/// Whether a file could be made at `path`: the nearest directory that exists can be written to.
bool can_be_made(const std::string& path) {
  std::filesystem::path place = std::filesystem::path(path).parent_path();
  std::error_code error;
  while (!std::filesystem::exists(place, error) && place.has_relative_path()) place = place.parent_path();
  return ::access(place.c_str(), W_OK | X_OK) == 0;
}

void look_at_database(Report& report, Session& session) {
  std::string why;
  const std::string path = session.database_path(&why);
  Json& json = report.json["database"] = {{"path", path}, {"exists", false}, {"usable", false}};
  const auto bad = [&](const std::string& text) {
    report.line("wrong", "database", text);
    json["problem"] = text;
    report.database_bad = true;
  };
  if (path.empty()) return bad(why);
  if (::access(path.c_str(), F_OK) != 0) {
    if (!can_be_made(path))
      return bad(path + "\nis not there and can't be made: the directory is not writable; give --database PATH");
    json["usable"] = true;
    return report.line("ok", "database", path + "\nis not there yet; tune and compile make it");
  }
  json["exists"] = true;
  const Result<std::unique_ptr<store::Store>> store = store::Store::open(
      {.path = path, .create = false, .read_only = true, .must_be_file = true, .log = &session.log()});
  if (!store) return bad(store.error());
  const Result<store::Store::Health> health = (*store)->health();
  if (!health) return bad(path + "\n" + health.error());
  if (health->quick_check != "ok")
    return bad(path + "\nis damaged (" + health->quick_check + "); move it away, jitune makes a new one");
  if (health->schema > store::kSchemaVersion)
    return bad(path + "\nis of a newer jitune (schema " + std::to_string(health->schema) + ", this one knows " +
               std::to_string(store::kSchemaVersion) +
               "): it is read but not written; use the newer jitune, or another file");
  json["usable"] = true;
  json.update({{"state", health->state},
               {"keys", health->keys},
               {"winners", health->winners},
               {"trials", health->trials},
               {"artifacts", health->artifacts},
               {"file_bytes", health->file_bytes},
               {"cubin_bytes", health->cubin_bytes},
               {"schema", health->schema}});
  const bool writable = ::access(path.c_str(), W_OK) == 0;
  json["writable"] = writable;
  report.line("ok", "database",
              path + (writable ? "" : " (read-only for this user)") + "\n" +
                  count_text(static_cast<uint64_t>(health->keys), "key") + ", " +
                  count_text(static_cast<uint64_t>(health->winners), "winner") + ", " +
                  count_text(static_cast<uint64_t>(health->trials), "trial") + ", " +
                  count_text(static_cast<uint64_t>(health->artifacts), "artifact") + ", " +
                  bytes_text(health->file_bytes));
}

}  // namespace

Exit run_doctor(Session& session) {
  const tune::ServiceOptions options = session.service_options();
  Report report;
  report.json["jitune"] = JITUNE_VERSION;
  look_at_gpus(report);
  look_at_nvrtc(report, options);
  look_at_worker(report, options);
  look_at_database(report, session);
  const int width = options.compile_workers > 0 ? options.compile_workers : pool::default_width();
  report.line("ok", "compile with",
              count_text(static_cast<uint64_t>(width), "worker") + " at a time" +
                  (options.compile_workers > 0 ? ", as asked for" : ", by this machine's cores and memory"));
  report.json["compile_workers"] = width;
  report.json["missing"] = report.missing;
  const Exit exit = report.database_bad ? Exit::database : report.missing.empty() ? Exit::ok : Exit::missing;
  report.json["exit_code"] = static_cast<int>(exit);
  if (session.options().json) {
    print(report.json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    return exit;
  }
  print("jitune " JITUNE_VERSION "\n" + report.text);
  if (exit == Exit::ok)
    print("All that tuning needs is here.\n");
  else if (report.missing == std::vector<std::string>{"gpu"} && !report.database_bad)
    print("Compiling works here; tuning needs a GPU.\n");
  return exit;
}

}  // namespace jitune::prewarm
