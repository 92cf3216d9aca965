#include "runtime/environment.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>

#include "jitune/error.hpp"
#include "pool/pool.hpp"
#include "runtime/tuning_devices.hpp"
#include "store/store.hpp"

namespace jitune {

const char* to_string(Track track) noexcept {
  switch (track) {
    case Track::heuristic:
      return "heuristic";
    case Track::lookup:
      return "lookup";
    case Track::background:
      return "background";
    case Track::tune:
      return "tune";
    case Track::retune:
      return "retune";
  }
  return "unknown";
}

namespace runtime {
namespace {

/// "" for a variable that is unset; set-user-id programs see none of those that name files.
std::string variable(const char* name, bool names_file) {
  const char* value = names_file ? ::secure_getenv(name) : std::getenv(name);
  return value == nullptr ? "" : value;
}

[[noreturn]] void refuse(const std::string& name, const std::string& value, const std::string& remedy) {
  throw Error(ErrorCode::bad_options, name + "=" + value + ": " + remedy);
}

Track parse_track(const std::string& word) {
  for (const Track track : {Track::heuristic, Track::lookup, Track::background, Track::tune, Track::retune})
    if (word == to_string(track)) return track;
  refuse("JITUNE_TRACK", word, "use heuristic, lookup, background, tune or retune");
}

int64_t parse_bytes(const std::string& text) {
  char* end = nullptr;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  if (end == text.c_str() || *end != '\0' || value < 0)
    refuse("JITUNE_CAPTURE_BYTES", text, "use a number of bytes; 0 keeps no contents");
  return value;
}

int parse_workers(const std::string& text) {
  char* end = nullptr;
  const long value = std::strtol(text.c_str(), &end, 10);
  if (end == text.c_str() || *end != '\0' || value < 1 || value > 1024)
    refuse("JITUNE_COMPILE_WORKERS", text, "use a number from 1 to 1024");
  return static_cast<int>(value);
}

void parse_log(const std::string& word, Settings& settings) {
  if (word == "off")
    settings.threshold = Log::Threshold::off;
  else if (word == "warn")
    settings.threshold = Log::Threshold::warn;
  else if (word == "info")
    settings.threshold = Log::Threshold::info;
  else if (word == "debug")
    settings.threshold = Log::Threshold::debug;
  else if (word == "key")
    settings.log_keys = true;
  else
    refuse("JITUNE_LOG", word, "use off, warn, info, debug or key");
}

std::string absolute(const std::string& path) {
  std::error_code ignored;
  const auto full = std::filesystem::absolute(path, ignored);
  return full.empty() ? path : full.lexically_normal().string();
}

std::vector<std::string> split_paths(const std::string& text) {
  std::vector<std::string> paths;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(':', begin), text.size());
    if (end > begin) paths.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return paths;
}

std::string database_path(const std::string& option, const std::string& from_environment) {
  const std::string& wanted = from_environment.empty() ? option : from_environment;
  if (wanted == "off") return "";
  if (!wanted.empty()) return absolute(wanted);
  return store::default_path(std::getenv("XDG_CACHE_HOME"), std::getenv("HOME"));
}

}  // namespace

Settings read_settings(Options options) {
  Settings settings;
  if (options.first_call_budget.count() < 0)
    refuse("Options::first_call_budget", std::to_string(options.first_call_budget.count()), "use 0 or more");
  if (options.background_budget.count() <= 0)
    refuse("Options::background_budget", std::to_string(options.background_budget.count()), "use more than 0");
  if (!(options.background_share > 0 && options.background_share <= 1))
    refuse("Options::background_share", std::to_string(options.background_share), "use more than 0, at most 1");
  if (!(options.background_compile_share > 0 && options.background_compile_share <= 1))
    refuse("Options::background_compile_share", std::to_string(options.background_compile_share),
           "use more than 0, at most 1");
  if (options.compile_timeout.count() <= 0)
    refuse("Options::compile_timeout", std::to_string(options.compile_timeout.count()), "use more than 0");
  if (options.compile_workers < 0 || options.compile_workers > 1024)
    refuse("Options::compile_workers", std::to_string(options.compile_workers), "use a number from 0 to 1024");
  if (const auto word = variable("JITUNE_TRACK", false); !word.empty()) {
    options.track = parse_track(word);
    settings.always_heuristic = options.track == Track::heuristic;
  }
  if (options.track == Track::background && options.isolation == Isolation::in_process)
    refuse("Options::track or JITUNE_TRACK", "background",
           "measuring in the application's process can't go on behind its launches; use the track `tune`, or workers");
  for (const std::string& name : options.tuning_devices) {
    if (!is_tuning_device(name))
      refuse("Options::tuning_devices", name, "use GPUs' UUIDs (GPU-..., as nvidia-smi -L shows them), `all` or `own`");
    if (options.isolation == Isolation::in_process && name != "own")
      refuse("Options::tuning_devices", name, "measuring in the application's process goes on in one context");
  }
  if (const auto text = variable("JITUNE_COMPILE_WORKERS", false); !text.empty())
    options.compile_workers = parse_workers(text);
  if (const auto word = variable("JITUNE_LOG", false); !word.empty()) parse_log(word, settings);
  if (const auto path = variable("JITUNE_NVRTC", true); !path.empty()) options.nvrtc = path;
  if (!options.nvrtc.empty() && options.nvrtc.find('/') != std::string::npos) options.nvrtc = absolute(options.nvrtc);
  if (!options.worker.empty()) options.worker = absolute(options.worker);
  settings.worker_env = variable("JITUNE_WORKER", true);
  if (const auto words = variable("JITUNE_MEASURE", false); !words.empty()) options.measure = words;
  auto policy = measure::parse_policy(options.measure);
  if (!policy) refuse("Options::measure or JITUNE_MEASURE", options.measure, policy.error());
  settings.policy = *policy;
  if (const auto paths = variable("JITUNE_BUNDLES", true); !paths.empty()) options.bundles = split_paths(paths);
  for (std::string& path : options.bundles) path = absolute(path);
  settings.capture = variable("JITUNE_CAPTURE", true);
  if (const auto text = variable("JITUNE_CAPTURE_BYTES", false); !text.empty())
    settings.capture_bytes = parse_bytes(text);
  settings.cuda_home = variable("CUDA_HOME", true);
  settings.cuda_path = variable("CUDA_PATH", true);
  auto meeting = variable("JITUNE_RUNTIME_DIR", true);
  if (!meeting.empty() && meeting != "off") meeting = absolute(meeting);
  settings.runtime_directory = pool::runtime_directory(meeting);
  settings.database = database_path(options.database, variable("JITUNE_DATABASE", true));
  settings.options = std::move(options);
  return settings;
}

}  // namespace runtime
}  // namespace jitune
