#include "apps/prewarm/session.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <utility>

#include "apps/prewarm/text.hpp"
#include "compile/nvrtc.hpp"
#include "gpu/driver.hpp"
#include "key/device_class.hpp"
#include "pool/pool.hpp"

namespace jitune::prewarm {
namespace {

volatile std::sig_atomic_t interrupt_seen = 0;

void on_interrupt(int) {
  interrupt_seen = 1;
}

std::string absolute(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

bool exists(const std::string& path) {
  return ::access(path.c_str(), F_OK) == 0;
}

std::string describe(const std::vector<space::DeviceInfo>& devices) {
  std::string text;
  for (size_t i = 0; i < devices.size(); ++i)
    text += "\n  " + std::to_string(i) + "  " + devices[i].uuid + "  " + devices[i].name;
  return text;
}

std::string join(const std::vector<std::string>& texts) {
  std::string joined;
  for (const std::string& text : texts) joined += (joined.empty() ? "" : ", ") + text;
  return joined;
}

/// By index or UUID.
space::DeviceInfo find_gpu(const std::vector<space::DeviceInfo>& devices, const std::string& name) {
  size_t index = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data(), end, index);
  if (error == std::errc() && stop == end && index < devices.size()) return devices[index];
  for (const space::DeviceInfo& device : devices)
    if (device.uuid == name || device.uuid == "GPU-" + name) return device;
  throw Stop(Exit::usage, "--device " + name + ": there is no such GPU; there are" + describe(devices));
}

}  // namespace

/// Log events as lines on stderr that don't tear the progress bar.
struct Session::Hook {
  Progress* progress = nullptr;
  Log::Threshold threshold = Log::Threshold::warn;

  static void send(void* user, const Event& event) noexcept {
    const auto& hook = *static_cast<const Hook*>(user);
    const auto needed = event.level == LogLevel::warning ? Log::Threshold::warn
                        : event.level == LogLevel::info  ? Log::Threshold::info
                                                         : Log::Threshold::debug;
    if (hook.threshold < needed) return;
    try {
      const char* level = event.level == LogLevel::warning ? "warning"
                          : event.level == LogLevel::info  ? "info"
                                                           : "debug";
      std::string line = "jit-prewarm " + std::string(level) + " [" + std::string(event.code) + "]";
      if (!event.kernel.empty()) line += " " + std::string(event.kernel);
      hook.progress->say(line + ": " + std::string(event.text));
    } catch (...) {  // out of memory: the message is lost, the command goes on
    }
  }
};

Session::Session(Options options)
    : options_(std::move(options)),
      settings_(runtime::read_settings({})),
      progress_(Progress::on_terminal()),
      hook_(std::make_shared<Hook>(Hook{&progress_, settings_.threshold})),
      log_(std::make_unique<Log>(LogHook{&Hook::send, hook_.get()}, settings_.threshold, settings_.log_keys)) {}

void Session::warn(const std::string& text) {
  progress_.say("jit-prewarm: " + text);
}

std::string Session::database_path(std::string* why_none) const {
  std::string why;
  if (options_.database == "off") why = "--database off would keep nothing; give a file with --database PATH";
  if (options_.database.empty() && settings_.database.empty())
    why =
        "there is no place for the database: JITUNE_DATABASE is off, or neither HOME nor XDG_CACHE_HOME is set; give "
        "a file with --database PATH";
  if (why_none != nullptr) *why_none = why;
  if (why.empty()) return options_.database.empty() ? settings_.database : absolute(options_.database);
  if (why_none == nullptr) throw Stop(Exit::usage, why);
  return "";
}

std::vector<space::DeviceInfo> Session::all_gpus() const {
  Result<std::vector<space::DeviceInfo>> devices = gpu::devices();
  const bool measures = options_.command == Options::Command::tune;
  if (devices && !devices->empty()) return std::move(devices).value();
  const std::string why = devices ? "this machine's CUDA driver shows no GPU" : devices.error();
  throw Stop(
      Exit::missing,
      why + (measures ? "\nTuning needs a GPU; `jit-prewarm compile --arch sm_90` compiles ahead "
                        "without one. `jit-prewarm doctor` shows what was found."
                      : "\nWithout a GPU, say for which one: --arch sm_90 (known: " + space::nominal_archs() + ")"));
}

space::DeviceInfo Session::gpu() const {
  const std::vector<space::DeviceInfo> devices = all_gpus();
  return options_.device.empty() ? devices.front() : find_gpu(devices, options_.device);
}

std::vector<space::DeviceInfo> Session::gpus() {
  const std::vector<space::DeviceInfo> devices = all_gpus();
  std::vector<space::DeviceInfo> chosen;
  if (options_.device == "all") {
    for (const space::DeviceInfo& device : devices) {
      const auto differences = key::class_differences(devices.front(), device);
      if (differences.empty())
        chosen.push_back(device);
      else
        warn("GPU " + device.uuid + " (" + device.name +
             ") does not take part, for it is not of the first one's class: " + join(differences));
    }
    return chosen;
  }
  std::istringstream names(options_.device);
  for (std::string name; std::getline(names, name, ',');) {
    chosen.push_back(find_gpu(devices, name));
    const space::DeviceInfo& latest = chosen.back();
    if (const auto differences = key::class_differences(chosen.front(), latest); !differences.empty())
      throw Stop(Exit::usage, "--device " + options_.device + ": " + latest.uuid + " (" + latest.name +
                                  ") is not of the class of " + chosen.front().uuid + " (" + chosen.front().name +
                                  "), so that its times say nothing of it: " + join(differences));
    for (size_t i = 0; i + 1 < chosen.size(); ++i)
      if (chosen[i].uuid == latest.uuid)
        throw Stop(Exit::usage, "--device " + options_.device + ": " + latest.uuid + " is named twice");
  }
  if (chosen.empty()) chosen.push_back(devices.front());
  return chosen;
}

space::DeviceInfo Session::gpu_or_arch() const {
  return gpu_or_archs().front();
}

std::vector<space::DeviceInfo> Session::gpu_or_archs() const {
  std::vector<space::DeviceInfo> devices;
  for (const std::string& arch : options_.archs) {
    const std::optional<space::DeviceInfo> device = space::nominal_device(arch);
    if (!device) throw Stop(Exit::usage, "--arch " + arch + ": unknown; the known ones are " + space::nominal_archs());
    const auto same = [&](const space::DeviceInfo& known) { return known.arch() == device->arch(); };
    if (std::none_of(devices.begin(), devices.end(), same)) devices.push_back(*device);
  }
  if (devices.empty()) devices.push_back(gpu());
  return devices;
}

std::vector<Work> Session::load() {
  return load_work(options_, [this](const std::string& text) { warn(text); });
}

std::vector<Work> Session::load_from(store::Store& store, const space::DeviceInfo& device) {
  const auto warning = [this](const std::string& text) { warn(text); };
  return load_misses(options_, store, device.name, warning);
}

std::vector<Task> Session::tasks(const std::vector<Work>& work, const space::DeviceInfo& device) const {
  std::vector<Task> tasks = bind_work(work, device);
  check_not_empty(tasks);
  return tasks;
}

tune::ServiceOptions Session::service_options() const {
  tune::ServiceOptions options;
  options.nvrtc = options_.nvrtc.empty() ? settings_.options.nvrtc : options_.nvrtc;
  options.worker = options_.worker.empty() ? "" : absolute(options_.worker);
  options.worker_env = settings_.worker_env;
  options.cuda_home = settings_.cuda_home;
  options.cuda_path = settings_.cuda_path;
  // Code for an architecture that was named runs on another machine, whose driver nobody knows.
  if (!options_.archs.empty()) options.target = compile::NvrtcTarget{options_.archs, 0};
  options.compile_workers = options_.compile_workers.value_or(settings_.options.compile_workers);
  options.compile_timeout = options_.compile_timeout;
  options.runtime_directory = settings_.runtime_directory;
  options.keep_measuring_worker = true;
  options.policy = settings_.policy;
  if (options_.hot_l2) options.policy.cold_l2 = !*options_.hot_l2;
  if (const auto method = measure::parse_method(options_.method)) options.policy.method = *method;
  if (options_.skip_check) options.policy.check = false;
  options.policy.fixed_ms = static_cast<double>(options_.fixed_time.count());
  options.log = log_.get();
  return options;
}

std::unique_ptr<tune::Services> Session::open_services() {
  tune::ServiceOptions options = service_options();
  options.store.path = database_path();
  options.store.must_be_file = true;
  const Result<std::string> worker = pool::find_worker(options.worker, options.worker_env);
  if (!worker) throw Stop(Exit::missing, for_command_line(worker.error()));
  // Where there is a database it knows this machine's NVRTC; where there is none yet, none is made before NVRTC is
  // found.
  if (!exists(options.store.path)) {
    const compile::NvrtcSearch search = compile::find_nvrtc({options.nvrtc, options.cuda_home, options.cuda_path, {}});
    if (search.found.empty()) throw Stop(Exit::missing, for_command_line(compile::explain_missing(search)));
  }
  Result<std::unique_ptr<tune::Services>> services = tune::Services::open(std::move(options));
  if (!services) throw Stop(Exit::database, services.error());
  if (const auto nvrtc = (*services)->nvrtc(); !nvrtc) throw Stop(Exit::missing, for_command_line(nvrtc.error()));
  return std::move(services).value();
}

std::unique_ptr<store::Store> Session::open_store() {
  store::Store::OpenOptions options;
  options.path = database_path();
  options.create = false;
  options.read_only = true;
  options.must_be_file = true;
  options.log = log_.get();
  if (!exists(options.path))
    throw Stop(Exit::database, "there is no database at " + options.path +
                                   "; `jit-prewarm tune` and `jit-prewarm compile` make one, --database names another");
  Result<std::unique_ptr<store::Store>> store = store::Store::open(options);
  if (!store) throw Stop(Exit::database, store.error());
  return std::move(store).value();
}

std::unique_ptr<store::Store> Session::open_store_to_write(bool create) {
  store::Store::OpenOptions options;
  options.path = database_path();
  options.create = create;
  options.must_be_file = true;
  options.log = log_.get();
  if (!create && !exists(options.path))
    throw Stop(Exit::database, "there is no database at " + options.path + "; --database names another");
  Result<std::unique_ptr<store::Store>> store = store::Store::open(options);
  if (!store) throw Stop(Exit::database, store.error());
  return std::move(store).value();
}

std::string for_command_line(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {{"Options::worker", "--worker"},
                                                                      {"Options::nvrtc", "--nvrtc"}};
  for (const auto& [from, to] : kNames)
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from)) text.replace(at, from.size(), to);
  return text;
}

void must_exist(const std::string& path) {
  if (!exists(path)) throw Stop(Exit::usage, path + ": there is no such file or folder");
}

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second one kills
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  struct sigaction hangup {};
  if (::sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN)  // nohup's stays ignored
    ::sigaction(SIGHUP, &action, nullptr);
}

bool interrupted() {
  return interrupt_seen != 0;
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace jitune::prewarm
