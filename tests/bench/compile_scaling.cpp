// How compiling scales: jitune's compile workers (pool, frames, store and all) beside bare NVRTC in threads of one
// process and in bare forked processes that do nothing else; and what precompiled headers save. Needs NVRTC, no GPU.
// Every way starts warm (NVRTC loaded, one small compile done), takes the next config from one counter, and says
// --no-cache. Run from the repository's root.
#include <dlfcn.h>
#include <nvrtc.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/hash.hpp"
#include "compile/nvrtc.hpp"
#include "compile/source.hpp"
#include "compile/std_headers.hpp"
#include "jitune/definition.hpp"
#include "pool/pool.hpp"
#include "space/device.hpp"
#include "space/instance.hpp"
#include "tune/compiler.hpp"

namespace {

using namespace jitune;

[[noreturn]] void stop(const std::string& text) {
  std::fprintf(stderr, "compile_scaling: %s\n", text.c_str());
  std::exit(1);
}

template <class T>
T take(Result<T> result, const char* what) {
  if (!result) stop(std::string(what) + ": " + result.error());
  return std::move(result).value();
}

// Bare NVRTC ----------------------------------------------------------------------------------------------------------

/// NVRTC and nothing else: what a program that calls it by hand does.
class BareNvrtc {
 public:
  explicit BareNvrtc(const compile::NvrtcFile& file) : file_(file) {
    for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(file.path).parent_path()))
      if (entry.path().filename().string().starts_with("libnvrtc-builtins.so"))
        ::dlopen(entry.path().c_str(), RTLD_NOW | RTLD_GLOBAL);
    library_ = ::dlopen(file.path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) stop(::dlerror());
  }

  void compile(const space::BuildSpec& spec) const {
    const std::string source = compile::specialise(spec);
    std::vector<std::string> options{"--gpu-architecture=" + spec.arch, "-default-device", "--ptxas-options=-v",
                                     "--no-cache", "--std=c++17"};
    for (const std::string& dir : spec.include_dirs) options.push_back("-I" + dir);
    for (const std::string& dir : file_.include_dirs) options.push_back("-I" + dir);
    options.insert(options.end(), spec.options.begin(), spec.options.end());
    std::vector<const char*> names, texts, option_texts;
    const auto headers = compile::std_headers(spec.include_dirs, file_.include_dirs, true);
    for (const auto& header : headers) {
      names.push_back(header.name.c_str());
      texts.push_back(header.text.c_str());
    }
    for (const std::string& option : options) option_texts.push_back(option.c_str());
    nvrtcProgram program = nullptr;
    call<decltype(nvrtcCreateProgram)>("nvrtcCreateProgram")(
        &program, source.c_str(), spec.source_name.c_str(), static_cast<int>(names.size()), texts.data(), names.data());
    call<decltype(nvrtcAddNameExpression)>("nvrtcAddNameExpression")(program, spec.entry.c_str());
    const nvrtcResult result = call<decltype(nvrtcCompileProgram)>("nvrtcCompileProgram")(
        program, static_cast<int>(option_texts.size()), option_texts.data());
    size_t size = 0;
    call<decltype(nvrtcGetCUBINSize)>("nvrtcGetCUBINSize")(program, &size);
    if (result != NVRTC_SUCCESS || size == 0) stop("a config does not compile: " + spec.entry);
    std::string cubin(size, '\0');
    call<decltype(nvrtcGetCUBIN)>("nvrtcGetCUBIN")(program, cubin.data());
    call<decltype(nvrtcDestroyProgram)>("nvrtcDestroyProgram")(&program);
  }

 private:
  template <class F>
  F* call(const char* name) const {
    auto* function = reinterpret_cast<F*>(::dlsym(library_, name));
    if (function == nullptr) stop(std::string("NVRTC lacks ") + name);
    return function;
  }
  const compile::NvrtcFile& file_;
  void* library_ = nullptr;
};

space::BuildSpec warm_up_spec(const std::string& arch) {
  space::BuildSpec spec;
  spec.source_text = "extern \"C\" __global__ void warm_up() {}\n";
  spec.source_name = "warm_up.cu";
  spec.entry = "warm_up";
  spec.arch = arch;
  return spec;
}

/// Forked processes (or threads of one) that compile what they are told to, one config after the other.
class BareProcesses {
 public:
  /// Starts `processes` of `threads` threads each and waits until all are warm. Before any thread of this process.
  BareProcesses(const compile::NvrtcFile& file, const std::vector<tune::CompileJob>& jobs, int processes, int threads)
      : jobs_(jobs), workers_(processes * threads) {
    void* memory = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) stop("no shared memory");
    board_ = new (memory) Board;
    ::sem_init(&board_->work, 1, 0);
    ::sem_init(&board_->told, 1, 0);
    for (int p = 0; p < processes; ++p) {
      const pid_t pid = ::fork();
      if (pid < 0) stop("no process can be forked");
      if (pid == 0) {
        const BareNvrtc nvrtc(file);
        std::vector<std::thread> pool;
        for (int t = 1; t < threads; ++t) pool.emplace_back([&] { work(nvrtc); });
        work(nvrtc);
        for (std::thread& thread : pool) thread.join();
        ::_exit(0);
      }
      children_.push_back(pid);
    }
    for (int i = 0; i < workers_; ++i) wait_for_word();
  }
  BareProcesses(const BareProcesses&) = delete;
  BareProcesses& operator=(const BareProcesses&) = delete;
  ~BareProcesses() {
    board_->stop = true;
    for (int i = 0; i < workers_; ++i) ::sem_post(&board_->work);
    for (const pid_t pid : children_) ::waitpid(pid, nullptr, 0);
    ::munmap(board_, sizeof(Board));
  }

  /// Seconds for the next `count` configs.
  double run(int count) {
    const auto start = Clock::now();
    for (int i = 0; i < count; ++i) ::sem_post(&board_->work);
    for (int i = 0; i < count; ++i) wait_for_word();
    return ms_since(start) / 1000;
  }

 private:
  struct Board {
    sem_t work, told;
    std::atomic<int> next{0};
    std::atomic<bool> stop{false};
  };

  void work(const BareNvrtc& nvrtc) {
    nvrtc.compile(warm_up_spec(jobs_.front().spec.arch));
    ::sem_post(&board_->told);
    for (::sem_wait(&board_->work); !board_->stop; ::sem_wait(&board_->work)) {
      nvrtc.compile(jobs_[static_cast<size_t>(board_->next++) % jobs_.size()].spec);
      ::sem_post(&board_->told);
    }
  }

  void wait_for_word() {
    timespec until{};
    ::clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 120;
    if (::sem_timedwait(&board_->told, &until) != 0) stop("a bare process failed");
  }

  const std::vector<tune::CompileJob>& jobs_;
  int workers_;
  Board* board_ = nullptr;
  std::vector<pid_t> children_;
};

// jitune
// ----------------------------------------------------------------------------------------------------------------

/// The largest peak of resident memory among this process's children.
double largest_child_mb() {
  double largest = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream list(task.path() / "children");
    for (std::string pid; list >> pid;) {
      std::ifstream status("/proc/" + pid + "/status");
      for (std::string line; std::getline(status, line);)
        if (line.starts_with("VmHWM:")) largest = std::max(largest, std::atof(line.c_str() + 6) / 1024);
    }
  }
  return largest;
}

/// jitune's compile service over a store in memory, its workers warm.
class Jitune {
 public:
  Jitune(const compile::NvrtcFile& file, const std::string& worker, const std::vector<tune::CompileJob>& jobs,
         int width, bool reuse_headers)
      : jobs_(jobs), width_(width) {
    store::Store::OpenOptions memory;
    memory.log = &log_;
    store_ = take(store::Store::open(memory), "store");
    tune::Compiler::Options options;
    options.worker = worker;
    options.nvrtc = file;
    options.width = width;
    options.reuse_headers = reuse_headers;
    options.store = store_.get();
    options.log = &log_;
    compiler_.emplace(options);
    compiler_->warm_up(width);
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  }
  ~Jitune() {
    if (compiler_->spawned() != width_)
      std::printf("  (jitune started %d workers, not %d)\n", compiler_->spawned(), width_);
  }

  /// Seconds for the next `count` configs.
  double run(int count) {
    const auto start = Clock::now();
    tune::Compiler::Stream stream(*compiler_, true);
    for (int i = 0; i < count; ++i) stream.submit(jobs_[next_++ % jobs_.size()]);
    for (int i = 0; i < count; ++i) {
      const auto compiled = stream.next(Clock::now() + std::chrono::minutes(5));
      if (!compiled || compiled->from_store || compiled->artifact.status != "ok")
        stop("a config does not compile: " + (compiled ? compiled->artifact.log : "no answer"));
    }
    return ms_since(start) / 1000;
  }

 private:
  const std::vector<tune::CompileJob>& jobs_;
  int width_;
  size_t next_ = 0;
  Log log_;
  std::unique_ptr<store::Store> store_;
  std::optional<tune::Compiler> compiler_;
};

// What is compiled
// ------------------------------------------------------------------------------------------------------

/// `count` jobs over the space of a definition in a fixed random order, each with a build key of its own.
std::vector<tune::CompileJob> make_jobs(const KernelDefinition& definition, const space::ProblemValues& problem,
                                        const std::string& arch, const std::string& build, size_t count) {
  const auto model = space::Model::make(definition);
  const auto instance = take(space::Instance::bind(model, problem, *space::nominal_device(arch)), "problem");
  const key::SourceHash source{sha256_hex(definition.name), {}, {}};
  std::vector<space::Config> configs = instance.space().list(100'000);
  std::mt19937_64 random(1);
  std::shuffle(configs.begin(), configs.end(), random);
  std::vector<tune::CompileJob> jobs;
  for (size_t i = 0; i < count; ++i) {
    jobs.push_back(take(tune::make_job(instance, configs[i % configs.size()], source, build), "config"));
    jobs.back().build.sha256 = sha256_hex(jobs.back().build.sha256 + std::to_string(i));
  }
  std::printf("%s: %zu configs\n", definition.name.c_str(), configs.size());
  return jobs;
}

KernelDefinition cub_kernel() {
  KernelDefinition kernel;
  kernel.name = "block_sum";
  kernel.source_text =
      "#include <cuda_fp16.h>\n#include <cub/block/block_reduce.cuh>\n"
      "template <int ITEMS> __global__ void block_sum(float* out, const __half* in, int n) {\n"
      "  using Reduce = cub::BlockReduce<float, BLOCK>;\n  __shared__ typename Reduce::TempStorage storage;\n"
      "  float sum = 0;\n  const int first = blockIdx.x * BLOCK * ITEMS + threadIdx.x;\n"
      "#pragma unroll\n  for (int i = 0; i < ITEMS; ++i)\n"
      "    if (first + i * BLOCK < n) sum += __half2float(in[first + i * BLOCK]);\n"
      "  sum = Reduce(storage).Sum(sum);\n  if (threadIdx.x == 0) out[blockIdx.x] = sum;\n}\n";
  kernel.entry = "block_sum<{ITEMS}>";
  kernel.problem = {"n"};
  kernel.params = {{"BLOCK", {64, 96, 128, 160, 192, 256, 320, 384, 512, 768, 1024}}, {"ITEMS", {1, 2, 4, 8, 16}}};
  kernel.launch = {.grid = {"ceil_div(n, BLOCK * ITEMS)"}, .block = {"BLOCK"}};
  kernel.args = {out("out", "float", "ceil_div(n, 64)"), in("in", "half", "n"), scalar("n", "int", "n")};
  kernel.defaults = {{.config = {{"BLOCK", "256"}, {"ITEMS", "4"}}}};
  return kernel;
}

/// The middle of slices' shares and how far off it may be (one standard error, from the median deviation): one slice
/// that a neighbour on the machine slows down moves a sum, and leaves this alone.
struct Middle {
  double value = 0, error = 0;
};

Middle middle_of(std::vector<double> values) {
  const auto median = [](std::vector<double> list) {
    const auto half = list.begin() + static_cast<std::ptrdiff_t>(list.size() / 2);
    std::nth_element(list.begin(), half, list.end());
    return *half;
  };
  Middle middle;
  middle.value = median(values);
  const double count = static_cast<double>(values.size());
  for (double& value : values) value = std::abs(value - middle.value);
  middle.error = 1.2533 * 1.4826 * median(values) / std::sqrt(count);
  return middle;
}

struct Settings {
  std::vector<int> widths{1, 2, 4, 8, 12, 16};
  std::vector<int> header_widths{8};
  std::vector<int> header_configs{4, 8, 24};
  int per_worker = 48;
  int slices = 24;           ///< that the configs are divided into, bare processes and jitune in turn
  int most_in_threads = 48;  ///< threads stop scaling early, and their rate is known long before
  std::string part = "all", nvrtc, arch = "sm_90";
};

std::vector<int> numbers(const std::string& text) {
  std::vector<int> list;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) list.push_back(std::atoi(word.c_str()));
  return list;
}

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const size_t equals = option.find('=');
    const std::string name = option.substr(0, equals),
                      value = equals == std::string::npos ? "" : option.substr(equals + 1);
    if (name == "--widths")
      settings.widths = numbers(value);
    else if (name == "--header-widths")
      settings.header_widths = numbers(value);
    else if (name == "--header-configs")
      settings.header_configs = numbers(value);
    else if (name == "--per-worker")
      settings.per_worker = std::atoi(value.c_str());
    else if (name == "--slices")
      settings.slices = std::max(1, std::atoi(value.c_str()));
    else if (name == "--part")
      settings.part = value;
    else if (name == "--nvrtc")
      settings.nvrtc = value;
    else if (name == "--arch")
      settings.arch = value;
    else
      stop(
          "usage: compile_scaling [--part=all|scaling|headers] [--widths=1,2,4] [--per-worker=48] "
          "[--slices=24] [--header-widths=8] [--header-configs=4,8,24] [--nvrtc=PATH] [--arch=sm_90]");
  }
  return settings;
}

void scaling(const Settings& settings, const compile::NvrtcFile& file, const std::string& worker) {
  const int most = *std::max_element(settings.widths.begin(), settings.widths.end());
  const auto jobs =
      make_jobs(load("kernels_src/gemm.toml"), {{"T", "half"}, {"M", 4096}, {"N", 4096}, {"K", 4096}}, settings.arch,
                file.build, static_cast<size_t>(most * (settings.per_worker + settings.slices)));
  std::printf(
      "configs per second, %d configs a worker (threads: at most %d in all), in %d slices; share: jitune / bare "
      "processes, of the whole and the middle of the slices\n"
      "width  threads  bare processes  jitune  share  middle +- error  by slice       worker MB\n",
      settings.per_worker, settings.most_in_threads, settings.slices);
  double one_process = 0, worst = 1e9;
  for (const int width : settings.widths) {
    const int slice = (width * settings.per_worker + settings.slices - 1) / settings.slices;
    const int count = slice * settings.slices;
    double bare_seconds = 0, jitune_seconds = 0, resident_mb = 0, threads = 0;
    std::vector<double> shares;
    {
      std::optional<BareProcesses> bare(std::in_place, file, jobs, width, 1);
      Jitune jitune(file, worker, jobs, width, false);
      for (int i = 0; i < settings.slices; ++i) {
        // Slices of half a second or so, to and fro: a machine that grows slower or faster meanwhile favours neither.
        const double first = i % 2 == 0 ? bare->run(slice) : jitune.run(slice);
        const double second = i % 2 == 0 ? jitune.run(slice) : bare->run(slice);
        bare_seconds += i % 2 == 0 ? first : second;
        jitune_seconds += i % 2 == 0 ? second : first;
        shares.push_back(i % 2 == 0 ? first / second : second / first);
      }
      bare.reset();
      resident_mb = largest_child_mb();
    }
    {
      const int in_threads = std::max(width, std::min(count, settings.most_in_threads));
      BareProcesses bare(file, jobs, 1, width);
      threads = in_threads / bare.run(in_threads);
    }
    const double processes = count / bare_seconds, share = bare_seconds / jitune_seconds;
    if (one_process == 0) one_process = processes / width;
    worst = std::min(worst, share);
    const auto [lowest, highest] = std::minmax_element(shares.begin(), shares.end());
    const Middle middle = middle_of(shares);
    std::printf("%5d  %7.2f  %14.2f  %6.2f  %5.3f  %6.3f +- %5.3f  %5.3f - %5.3f  %9.0f\n", width, threads, processes,
                count / jitune_seconds, share, middle.value, middle.error, *lowest, *highest, resident_mb);
    std::fflush(stdout);
  }
  std::printf("worst share %.3f (target 0.95); one bare process: %.1f ms a config\n", worst, 1000 / one_process);
}

void headers(const Settings& settings, const compile::NvrtcFile& file, const std::string& worker) {
  const int widest = *std::max_element(settings.header_widths.begin(), settings.header_widths.end());
  const int most = *std::max_element(settings.header_configs.begin(), settings.header_configs.end());
  const auto jobs =
      make_jobs(cub_kernel(), {{"n", 1 << 20}}, settings.arch, file.build, static_cast<size_t>(widest * most));
  std::printf(
      "a kernel that includes cub and cuda_fp16: seconds per config and worker (target 2.5 times)\n"
      "width  configs a worker   plain  precompiled  ratio  worker MB plain  precompiled\n");
  for (const int width : settings.header_widths)
    for (const int each : settings.header_configs) {
      // Plainly every config costs the same: more than 8 of them would only take time.
      const int plain_each = std::min(each, 8);
      double slow = 0, fast = 0, plain_mb = 0, with_mb = 0;
      {
        Jitune plain(file, worker, jobs, width, false);
        slow = plain.run(width * plain_each) / plain_each;
        plain_mb = largest_child_mb();
      }
      {
        Jitune with(file, worker, jobs, width, true);
        fast = with.run(width * each) / each;
        with_mb = largest_child_mb();
      }
      std::printf("%5d  %16d  %6.3f  %11.3f  %5.2f  %15.0f  %11.0f\n", width, each, slow, fast, slow / fast, plain_mb,
                  with_mb);
      std::fflush(stdout);
    }
}

}  // namespace

int main(int argc, char** argv) {
  const Settings settings = parse(argc, argv);
  const char* home = std::getenv("CUDA_HOME");
  const auto search = compile::find_nvrtc({settings.nvrtc, home == nullptr ? "" : home, "", {".deps/cuda"}});
  if (search.found.empty()) stop(compile::explain_missing(search));
  const compile::NvrtcFile& file = search.found.front();
  const std::string worker = take(pool::find_worker("", ""), "worker");
  std::printf("NVRTC %s, %u cores, worker %s\n", file.build.c_str(), std::thread::hardware_concurrency(),
              worker.c_str());
  const auto start = Clock::now();
  if (settings.part != "headers") scaling(settings, file, worker);
  if (settings.part != "scaling") headers(settings, file, worker);
  std::printf("%.0f s in all\n", ms_since(start) / 1000);
  return 0;
}
