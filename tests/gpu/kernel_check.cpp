// Checks the bundled kernels: every config of every problem in kernel_problems.cpp is compiled, run on the GPU, and
// compared with a reference computed here. jitune's own checks compare configs with each other; this one does not trust
// the default config either. Times are not its business.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <set>
#include <sstream>
#include <stdexcept>

#include "jitune/definition.hpp"
#include "kernel_on_gpu.hpp"
#include "kernel_problems.hpp"
#include "tune/compiler.hpp"
#include "tune/services.hpp"

using namespace jitune;

namespace {

constexpr const char* kUsage = R"(Usage: kernel_check [OPTION...]
  --kernels DIR   the definitions (kernels_src)
  --only KERNEL   one kernel
  --problem TEXT  this one instead of the table's: "T=half rows=5 hidden=17"; with --only
  --sample N      the default config and N - 1 others of each problem; 0, the default: all
  --general       leave variants for special devices out; without it both forms are checked
  --without-gpu   only compile, for --arch
  --arch A[,B]    what to compile for (sm_90)
  --database FILE keep what is compiled
  --hang-after S  seconds that one config may take (20)
Exit: 0 all right, or skipped for want of a GPU or NVRTC (a failure under JITUNE_REQUIRE); 1 something is wrong;
2 wrong usage.
)";

struct Options {
  std::string kernels = JITUNE_SOURCE_DIR "/kernels_src";
  std::string only;
  std::string problem;
  size_t sample = 0;
  bool general = false;
  bool without_gpu = false;
  std::vector<std::string> archs{"sm_90"};
  std::string database;
  unsigned hang_s = 20;  ///< no problem of the table takes a second on a slow GPU
};

std::optional<Options> parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (option == "--general" || option == "--without-gpu") {
      (option == "--general" ? options.general : options.without_gpu) = true;
      continue;
    }
    if (value.empty()) return std::nullopt;
    ++i;
    if (option == "--kernels") {
      options.kernels = value;
    } else if (option == "--only") {
      options.only = value;
    } else if (option == "--problem") {
      options.problem = value;
    } else if (option == "--sample" || option == "--hang-after") {
      if (value.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
      const unsigned long number = std::strtoul(value.c_str(), nullptr, 10);
      if (option == "--sample") options.sample = number;
      if (option == "--hang-after") options.hang_s = static_cast<unsigned>(number);
    } else if (option == "--database") {
      options.database = std::filesystem::absolute(value).string();
    } else if (option == "--arch") {
      options.archs.clear();
      std::istringstream list(value);
      for (std::string arch; std::getline(list, arch, ',');) options.archs.push_back(arch);
    } else {
      return std::nullopt;
    }
  }
  if (!options.problem.empty() && options.only.empty()) return std::nullopt;
  return options;
}

std::vector<std::string> problems(const Options& options, const std::string& kernel) {
  if (!options.problem.empty()) return {options.problem};
  auto list = test::problems_of(kernel);
  if (list.empty()) throw std::runtime_error("kernel_problems.cpp has no problems for '" + kernel + "'");
  return list;
}

/// As jitune::test::skip, for a program that is no doctest.
int skip(const std::string& what, const std::string& reason) {
  const char* required = std::getenv("JITUNE_REQUIRE");
  std::istringstream list(required == nullptr ? "" : required);
  for (std::string item; std::getline(list, item, ',');) {
    if (item != what) continue;
    std::printf("kernel_check needs %s (JITUNE_REQUIRE): %s\n", what.c_str(), reason.c_str());
    return 1;
  }
  std::printf("[jitune] whole test skipped (%s): %s\n", what.c_str(), reason.c_str());
  return 0;
}

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::unique_ptr<tune::Services> open_services(const Options& options, Log& log) {
  tune::ServiceOptions service;
  service.store.path = options.database;
  service.nvrtc = from_environment("JITUNE_NVRTC");
  service.worker_env = from_environment("JITUNE_WORKER");
  service.cuda_home = from_environment("CUDA_HOME");
  service.cuda_path = from_environment("CUDA_PATH");
  service.log = &log;
  auto services = tune::Services::open(service);
  if (!services) throw std::runtime_error(services.error());
  return std::move(*services);
}

/// A definition in the form that is to be looked at.
struct Form {
  KernelDefinition definition;
  bool general = false;
};

std::vector<Form> forms(const Options& options) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(options.kernels))
    if (entry.path().extension() == ".toml") files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  std::vector<Form> list;
  for (const std::string& file : files) {
    for (const KernelDefinition& definition : load_all(file)) {
      if (!options.only.empty() && definition.name != options.only) continue;
      if (!options.general || definition.variants.empty()) list.push_back({definition, false});
      if (definition.variants.empty()) continue;
      list.push_back({definition, true});
      list.back().definition.variants.clear();
    }
  }
  return list;
}

/// Binds `problem`. Throws std::runtime_error when the definition refuses it.
space::Instance bind_problem(const std::shared_ptr<const space::Model>& model, const std::string& problem,
                             const space::DeviceInfo& device) {
  auto instance = space::Instance::bind(model, test::parse_problem(problem), device);
  if (!instance) throw std::runtime_error(instance.error());
  return std::move(*instance);
}

/// The default config, then the others or an even sample of them.
std::vector<space::Config> some_configs(const space::Instance& instance, size_t sample) {
  auto preset = instance.default_config();
  if (!preset) throw std::runtime_error(preset.error());
  std::vector<space::Config> all = instance.space().list(SIZE_MAX);
  std::erase(all, *preset);
  std::vector<space::Config> some{*preset};
  const size_t wanted = sample == 0 ? all.size() : std::min(all.size(), sample - 1);
  for (size_t i = 0; i < wanted; ++i) some.push_back(all[i * all.size() / wanted]);
  return some;
}

tune::CompileJob make_job(tune::Services& services, const space::Instance& instance, const space::Config& config) {
  auto source = services.source_hash(instance);
  if (!source) throw std::runtime_error(source.error());
  auto job = tune::make_job(instance, config, *source, services.nvrtc()->build);
  if (!job) throw std::runtime_error(job.error());
  return std::move(*job);
}

tune::Compiled next(tune::Compiler::Stream& stream) {
  auto compiled = stream.next(Clock::now() + std::chrono::minutes(5));
  if (!compiled) throw std::runtime_error("nothing was compiled within 5 minutes");
  if (compiled->not_run) throw std::runtime_error("the compile workers don't run: " + compiled->artifact.log);
  return std::move(*compiled);
}

// ---- without a GPU -------------------------------------------------------------------------------------------------

/// Compiles the form's problems for one arch. Returns how many configs failed.
size_t compile_form(tune::Services& services, const Options& options, const Form& form, const std::string& arch) {
  const auto device = space::nominal_device(arch);
  const auto model = space::Model::make(form.definition);
  auto compiler = services.compiler();
  if (!compiler) throw std::runtime_error(compiler.error());
  tune::Compiler::Stream stream(**compiler);
  std::set<std::string> builds;
  bool variant = false;
  for (const std::string& text : problems(options, model->name())) {
    const space::Instance instance = bind_problem(model, text, *device);
    variant = variant || !instance.variant().empty();
    for (const space::Config& config : some_configs(instance, options.sample)) {
      tune::CompileJob job = make_job(services, instance, config);
      if (builds.insert(job.build.sha256).second) stream.submit(std::move(job));
    }
  }
  size_t failed = 0, spilling = 0;
  while (stream.pending() > 0) {
    const tune::Compiled compiled = next(stream);
    spilling += compiled.artifact.spill_bytes > 0 ? 1 : 0;
    if (compiled.artifact.status == "ok") continue;
    ++failed;
    std::printf("FAILED %s %s %s: %s: %s\n", model->name().c_str(), compiled.job.build.arch.c_str(),
                space::short_text(compiled.job.config).c_str(), compiled.artifact.status.c_str(),
                compiled.artifact.log.c_str());
  }
  std::printf("%s%s for %s: %zu compiled, %zu failed, %zu spill registers\n", model->name().c_str(),
              variant ? " (variant)" : "", arch.c_str(), builds.size() - failed, failed, spilling);
  return failed + (builds.empty() ? 1 : 0);
}

int compile_only(const Options& options) {
  Log log;
  for (const std::string& arch : options.archs) {
    if (space::nominal_device(arch)) continue;
    std::fprintf(stderr, "kernel_check: --arch %s is unknown; known: %s\n", arch.c_str(),
                 space::nominal_archs().c_str());
    return 2;
  }
  const auto services = open_services(options, log);
  if (const auto library = services->nvrtc(); !library) return skip("nvrtc", library.error());
  size_t wrong = 0, seen = 0;
  for (const Form& form : forms(options)) {
    for (const std::string& arch : options.archs) {
      wrong += compile_form(*services, options, form, arch);
      ++seen;
    }
  }
  if (seen == 0) std::printf("no kernel was found in %s\n", options.kernels.c_str());
  return wrong == 0 && seen > 0 ? 0 : 1;
}

// ---- on the GPU ----------------------------------------------------------------------------------------------------

// What the hang guard says; written before each run.
char running[512];

void on_alarm(int) {
  constexpr char kText[] = "HANGS ";
  (void)!::write(STDOUT_FILENO, kText, sizeof kText - 1);
  (void)!::write(STDOUT_FILENO, running, std::strlen(running));
  (void)!::write(STDOUT_FILENO, "\n", 1);
  ::_exit(1);
}

/// Checks one problem; the summary line says how it went. Returns how many configs are wrong.
size_t check_problem(tune::Services& services, const gpu::Driver& driver, const space::Instance& instance,
                     const std::string& title, const Options& options) {
  const std::vector<space::Config> configs = some_configs(instance, options.sample);
  auto compiler = services.compiler();
  if (!compiler) throw std::runtime_error(compiler.error());
  tune::Compiler::Stream stream(**compiler);
  for (const space::Config& config : configs) stream.submit(make_job(services, instance, config));
  test::KernelOnGpu kernel(driver, instance, configs.front());  // the reference is computed while workers compile
  size_t right = 0, wrong = 0;
  while (stream.pending() > 0) {
    const tune::Compiled compiled = next(stream);
    const std::string label = title + " | " + space::short_text(compiled.job.config);
    std::string verdict = compiled.artifact.status + ": " + compiled.artifact.log;
    if (compiled.artifact.status == "ok") {
      std::snprintf(running, sizeof running, "%s", label.c_str());
      ::alarm(options.hang_s);
      verdict = kernel.check(compiled.job.config, compiled.artifact);
      ::alarm(0);
    }
    ++(verdict.empty() ? right : wrong);
    if (!verdict.empty()) std::printf("WRONG %s | %s\n", label.c_str(), verdict.c_str());
  }
  std::printf("%s: %zu right, %zu wrong\n", title.c_str(), right, wrong);
  return wrong;
}

enum ChildExit : int { kGood = 0, kWrong = 1, kGeneralChosen = 3 };

/// Checks one form on the first GPU. kGeneralChosen: all right, and no variant applies to this GPU.
int check_form(const Options& options, const Form& form) {
  ::signal(SIGALRM, on_alarm);
  const auto start = Clock::now();
  Log log;
  auto driver = gpu::driver();
  if (!driver) throw std::runtime_error(driver.error());
  auto devices = gpu::devices();
  if (!devices) throw std::runtime_error(devices.error());
  auto device = gpu::find_device(**driver, devices->front().uuid);
  if (!device) throw std::runtime_error(device.error());
  if (auto context = gpu::use_primary_context(**driver, *device); !context) throw std::runtime_error(context.error());
  const auto services = open_services(options, log);
  const auto model = space::Model::make(form.definition);
  const std::vector<std::string> texts = problems(options, model->name());
  size_t wrong = 0;
  bool variant = false;
  for (const std::string& text : texts) {
    const space::Instance instance = bind_problem(model, text, devices->front());
    variant = variant || !instance.variant().empty();
    std::string title = model->name();
    if (!instance.variant().empty()) title.append(" (").append(instance.variant()).append(")");
    wrong += check_problem(*services, **driver, instance, title.append(" ").append(text), options);
  }
  std::printf("-- %s: %zu problems, %zu wrong configs, %.1f s\n", model->name().c_str(), texts.size(), wrong,
              ms_since(start) / 1000);
  return wrong > 0 ? kWrong : variant || form.general ? kGood : kGeneralChosen;
}

/// Runs `work` in a process of its own, since a fault in a kernel takes the process's CUDA with it.
int in_child(const std::string& what, const std::function<int()>& work) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    int code = kWrong;
    try {
      code = work();
    } catch (const std::exception& error) {
      std::printf("WRONG %s: %s\n", running[0] != '\0' ? running : what.c_str(), error.what());
    }
    std::fflush(stdout);
    ::_exit(code);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child)
    throw std::runtime_error("fork: " + std::string(strerror(errno)));
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  std::printf("WRONG %s: killed by signal %d\n", what.c_str(), WTERMSIG(status));
  return kWrong;
}

int check_all(const Options& options) {
  constexpr int kSkipped = 4;
  const int probe = in_child("looking for a GPU", [&] {
    const auto driver = gpu::driver();
    const auto devices = driver ? gpu::devices() : Result<std::vector<space::DeviceInfo>>(driver.failure());
    const bool none = devices && devices->empty();
    if (!devices || none) return skip("gpu", none ? "the driver sees no GPU" : devices.error()) == 0 ? kSkipped : 1;
    Log log;
    if (const auto library = open_services(options, log)->nvrtc(); !library)
      return skip("nvrtc", library.error()) == 0 ? kSkipped : 1;
    std::printf("%s, CUDA %s\n", devices->front().name.c_str(), devices->front().driver.c_str());
    return 0;
  });
  if (probe != 0) return probe == kSkipped ? 0 : 1;
  std::set<std::string> wrong, general_done;
  size_t seen = 0;
  for (const Form& form : forms(options)) {
    const std::string& name = form.definition.name;
    if (form.general && general_done.count(name) > 0) continue;
    const std::string title = name + (form.general ? " (general form)" : "");
    const int code = in_child(title, [&] { return check_form(options, form); });
    if (code == kGeneralChosen) general_done.insert(name);
    if (code != kGood && code != kGeneralChosen) wrong.insert(title);
    ++seen;
  }
  for (const std::string& title : wrong) std::printf("something is wrong with %s\n", title.c_str());
  if (wrong.empty()) std::printf("all %zu forms of kernels are right\n", seen);
  return wrong.empty() && seen > 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // nothing is lost with a child that is killed
  const auto options = parse(argc, argv);
  if (!options) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  try {
    return options->without_gpu ? compile_only(*options) : check_all(*options);
  } catch (const std::exception& error) {
    std::printf("WRONG %s\n", error.what());
    return 1;
  }
}
