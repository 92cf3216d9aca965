#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/prewarm/kernels.hpp"
#include "apps/prewarm/options.hpp"
#include "apps/prewarm/progress.hpp"
#include "base/log.hpp"
#include "runtime/environment.hpp"
#include "space/device.hpp"
#include "store/store.hpp"
#include "tune/services.hpp"

namespace jitune::prewarm {

/// What commands have in common: options, the environment (read once), log, progress, and how things are found and
/// opened. Whatever is missing or not usable ends the command with a Stop that says what to do about it.
class Session {
 public:
  explicit Session(Options options);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Options& options() const { return options_; }
  Progress& progress() { return progress_; }
  Log& log() { return *log_; }

  /// Absolute; "" and a reason in `why_none` when results would stay in memory only.
  std::string database_path(std::string* why_none = nullptr) const;

  /// The GPU that --device names, the first one without it.
  space::DeviceInfo gpu() const;

  /// The GPUs that share the trials of a study, all of one class: those that --device names, the first one without it.
  std::vector<space::DeviceInfo> gpus();

  /// As --arch says, by published figures, or without it the GPU.
  space::DeviceInfo gpu_or_arch() const;

  /// One device for each --arch, in their order, or the GPU.
  std::vector<space::DeviceInfo> gpu_or_archs() const;

  /// Kernels bound to their problems on a device; nothing is opened. Ends the command where a space is empty.
  std::vector<Task> tasks(const std::vector<Work>& work, const space::DeviceInfo& device) const;
  std::vector<Work> load();
  /// What misses of the database ask for on this GPU.
  std::vector<Work> load_from(store::Store& store, const space::DeviceInfo& device);

  /// Makes sure of NVRTC and the worker program, then opens or creates the database.
  std::unique_ptr<tune::Services> open_services();

  /// Opens a database that must exist, for reading.
  std::unique_ptr<store::Store> open_store();

  /// Opens a database to write to; `create`: one that is not there is made.
  std::unique_ptr<store::Store> open_store_to_write(bool create);

  tune::ServiceOptions service_options() const;

 private:
  void warn(const std::string& text);
  std::vector<space::DeviceInfo> all_gpus() const;  ///< one at least

  Options options_;
  runtime::Settings settings_;  ///< the environment
  Progress progress_;
  struct Hook;
  std::shared_ptr<Hook> hook_;
  std::unique_ptr<Log> log_;
};

/// Throws Stop where nothing is at `path`.
void must_exist(const std::string& path);

/// Makes ^C, SIGTERM and the end of the terminal ask for an end instead of killing; a second one kills.
void catch_interrupts();
bool interrupted();

/// A room's message with options named as they are on the command line: `--worker`, not `Options::worker`.
std::string for_command_line(std::string text);

/// How one command prints what it found on stdout.
void print(const std::string& text);

}  // namespace jitune::prewarm
