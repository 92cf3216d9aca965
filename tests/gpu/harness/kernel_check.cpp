// Checks and times the bundled kernels without jitune: compiles a hand-written list of configs with NVRTC, runs each on
// several problems, compares with a float64 reference and prints a table. Every kernel runs in a process of its own,
// with an alarm, so that a trap or a hang costs one config only.
//
//   kernel_check [--src DIR] [--cubins DIR] [--quick] [--only KERNEL] [--gemm] [--compile [JOBS]]
//                [--arch ARCH] [--table] [--probe]
//
// --compile only compiles (no GPU needed) and reports time, registers and spills; with --cubins the results are kept
// and a later run on a GPU takes them from there.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <dlfcn.h>
#include <nvrtc.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace {

using std::string;
using std::vector;
using Params = std::map<string, long>;

string g_src = "kernels_src";
string g_cubins;
string g_arch = "sm_90";
bool g_quick = false;
struct Shared {  // survives the child
  int next;      // the config to go on with
  char label[256];
};
Shared* g_shared;

[[noreturn]] void die(const string& what) {
  std::printf("FATAL %s (at %s)\n", what.c_str(), g_shared ? g_shared->label : "");
  std::fflush(stdout);
  _exit(3);
}

void* symbol(const char* name) {
  static void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  static void* nvrtc = [] {
    for (const char* path : {"libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so.13", "libnvrtc.so.12"}) {
      if (void* handle = dlopen(path, RTLD_NOW)) return handle;
    }
    return static_cast<void*>(nullptr);
  }();
  void* library = strncmp(name, "nvrtc", 5) == 0 ? nvrtc : driver;
  void* found = library ? dlsym(library, name) : nullptr;
  if (!found) die(string("no symbol ") + name);
  return found;
}
#define TEXT2(x) #x
#define TEXT(x) TEXT2(x)  // cuda.h maps names to versioned ones; the string must be the mapped one
#define FN(name) reinterpret_cast<decltype(&name)>(symbol(TEXT(name)))
#define CU(name, ...)                                                                                  \
  do {                                                                                                 \
    static auto fn_ = FN(name);                                                                        \
    if (CUresult rc_ = fn_(__VA_ARGS__); rc_ != CUDA_SUCCESS) die(#name " -> " + std::to_string(rc_)); \
  } while (0)

// ---- building ----

struct Build {
  string source, arch, entry, prefix;
  vector<string> options;
  string find, replace;  // a change of the source: another hypothesis about the hardware
};
struct Artifact {
  string cubin, name, log;
  double ms = 0;
  int regs = -1, spill = -1;
};

string read_file(const string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) die("cannot read " + path);
  return {std::istreambuf_iterator<char>(in), {}};
}

Artifact compile(const Build& build) {
  string text = read_file(g_src + "/" + build.source);
  if (!build.find.empty()) {
    const size_t at = text.find(build.find);
    if (at == string::npos) die("hypothesis does not apply: " + build.find);
    text.replace(at, build.find.size(), build.replace);
  }
  // As jitune does it: type headers first, macros after the source's include block.
  size_t after_includes = 0;
  if (const size_t last = text.rfind("\n#include"); last != string::npos)
    after_includes = text.find('\n', last + 1) + 1;
  text.insert(after_includes, build.prefix);
  if (build.entry.find("__half") != string::npos) text = "#include <cuda_fp16.h>\n" + text;
  if (build.entry.find("__nv_bfloat16") != string::npos) text = "#include <cuda_bf16.h>\n" + text;
  vector<string> options{"--gpu-architecture=" + build.arch,
                         "--std=c++17",
                         "-default-device",
                         "-I" + g_src,
                         "-I/usr/local/cuda/include",
                         "-I/usr/local/cuda/include/cccl",
                         "--ptxas-options=-v",
                         "--no-cache"};
  options.insert(options.end(), build.options.begin(), build.options.end());
  size_t key = std::hash<string>{}(text + read_file(g_src + "/row_ops.cuh") + build.entry);
  for (size_t i = 3; i < options.size(); ++i)
    key = key * 31 + (options[i][1] == 'I' ? 0 : std::hash<string>{}(options[i]));
  key = key * 31 + std::hash<string>{}(build.arch);
  const string path = g_cubins + "/" + std::to_string(key);
  Artifact result;
  if (std::ifstream in(path, std::ios::binary); !g_cubins.empty() && in) {
    in >> result.ms >> result.regs >> result.spill >> result.name;
    in.get();
    result.cubin.assign(std::istreambuf_iterator<char>(in), {});
    return result;
  }
  const auto begin = std::chrono::steady_clock::now();
  nvrtcProgram program;
  FN(nvrtcCreateProgram)(&program, text.c_str(), build.source.c_str(), 0, nullptr, nullptr);
  FN(nvrtcAddNameExpression)(program, build.entry.c_str());
  vector<const char*> args;
  for (const string& option : options) args.push_back(option.c_str());
  const nvrtcResult rc = FN(nvrtcCompileProgram)(program, static_cast<int>(args.size()), args.data());
  size_t size = 0;
  FN(nvrtcGetProgramLogSize)(program, &size);
  result.log.resize(size);
  FN(nvrtcGetProgramLog)(program, result.log.data());
  if (rc != NVRTC_SUCCESS) {
    std::printf("COMPILE ERROR %s %s\n%s\n", build.source.c_str(), build.entry.c_str(), result.log.c_str());
    return result;
  }
  FN(nvrtcGetCUBINSize)(program, &size);
  result.cubin.resize(size);
  FN(nvrtcGetCUBIN)(program, result.cubin.data());
  const char* lowered = nullptr;
  FN(nvrtcGetLoweredName)(program, build.entry.c_str(), &lowered);
  result.name = lowered;
  FN(nvrtcDestroyProgram)(&program);
  result.ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  const auto number_before = [&](const char* words) {
    size_t at = result.log.find(words);
    if (at == string::npos) return -1;
    while (at > 0 && isdigit(static_cast<unsigned char>(result.log[at - 1]))) --at;
    return atoi(result.log.c_str() + at);
  };
  result.regs = number_before(" registers");
  result.spill = number_before(" bytes spill stores");
  if (!g_cubins.empty()) {
    const string partial = path + "." + std::to_string(getpid());
    std::ofstream out(partial, std::ios::binary);
    out << result.ms << ' ' << result.regs << ' ' << result.spill << ' ' << result.name << '\n' << result.cubin;
    out.close();
    rename(partial.c_str(), path.c_str());
  }
  return result;
}

// ---- data ----

string type_name(const string& type) {
  return type == "half" ? "__half" : type == "bfloat16" ? "__nv_bfloat16" : "float";
}
size_t type_size(const string& type) {
  return type == "float" ? 4 : 2;
}

float load(const string& type, const void* data, size_t i) {
  if (type == "half") return __half2float(static_cast<const __half*>(data)[i]);
  if (type == "bfloat16") return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]);
  return static_cast<const float*>(data)[i];
}
float round_to(const string& type, float value) {
  if (type == "half") return __half2float(__float2half_rn(value));
  if (type == "bfloat16") return __bfloat162float(__float2bfloat16_rn(value));
  return value;
}

enum class Role { in, out, inout, zeroed, hidden };  // hidden: behind a tensor map, not passed itself
struct Buffer {
  Role role;
  string type;
  size_t count;
  double mean = 0, sigma = 1;
  vector<float> host;
  string bytes;
  CUdeviceptr device = 0, work = 0;
};
constexpr size_t kGuard = 4096;

void fill(Buffer& buffer, unsigned seed) {
  buffer.bytes.resize(buffer.count * type_size(buffer.type));
  if (buffer.role == Role::out || buffer.role == Role::zeroed) return;
  buffer.host.resize(buffer.count);
  unsigned long long state = seed * 0x9e3779b97f4a7c15ull + 1;
  for (size_t i = 0; i < buffer.count; ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    const double sum = (state & 0xffff) + (state >> 16 & 0xffff) + (state >> 32 & 0xffff) + (state >> 48);
    buffer.host[i] =
        round_to(buffer.type, static_cast<float>(buffer.mean + buffer.sigma * (sum / 65536.0 - 2) * 1.732));
    const float value = buffer.host[i];
    if (buffer.type == "half")
      reinterpret_cast<__half*>(buffer.bytes.data())[i] = __float2half_rn(value);
    else if (buffer.type == "bfloat16")
      reinterpret_cast<__nv_bfloat16*>(buffer.bytes.data())[i] = __float2bfloat16_rn(value);
    else
      reinterpret_cast<float*>(buffer.bytes.data())[i] = value;
  }
}

struct Problem {
  string type;
  long a, b, c;  // rows, columns or M, N, K
  bool timed = true;
  bool all = true;  // every config, else a sample
};
struct Launch {
  long grid, block, shared;
  long cluster = 1;
};
struct Expect {  // one element of one buffer
  int buffer;
  size_t at;
  double value;
};
struct Kernel {
  string name, source;
  vector<Problem> problems;
  std::function<vector<Params>(const Problem&)> configs;
  std::function<Params(const Problem&)> preset;  // the default config
  std::function<Build(const Problem&, const Params&)> build;
  std::function<Launch(const Problem&, const Params&)> launch;
  std::function<vector<Buffer>(const Problem&)> buffers;
  std::function<vector<Expect>(const Problem&, const vector<Buffer>&)> reference;
  double rtol, atol;
  std::function<double(const Problem&)> work;  // bytes, or operations for a gemm
};

#include "kernel_list.inc"

string text(const Params& config) {
  string out;
  for (const auto& [name, value] : config) out += (out.empty() ? "" : " ") + name + "=" + std::to_string(value);
  return out;
}

vector<Params> chosen(const Kernel& kernel, const Problem& problem) {
  vector<Params> all = kernel.configs(problem);
  const Params preset = kernel.preset(problem);
  if (std::find(all.begin(), all.end(), preset) == all.end())
    die("default is not valid: " + kernel.name + " " + text(preset));
  const size_t step = problem.all && !g_quick ? 1 : std::max<size_t>(1, all.size() / (g_quick ? 8 : 24));
  vector<Params> some{preset};
  for (size_t i = 0; i < all.size(); i += step) {
    if (all[i] != preset) some.push_back(all[i]);
  }
  return some;
}

// ---- running ----

CUtensorMap encode(const string& type, CUdeviceptr at, long inner, long outer, unsigned box_inner, unsigned box_outer) {
  CUtensorMap map;
  const cuuint64_t dims[2] = {static_cast<cuuint64_t>(inner), static_cast<cuuint64_t>(outer)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(inner) * 2};
  const cuuint32_t box[2] = {box_inner, box_outer}, steps[2] = {1, 1};
  CU(cuTensorMapEncodeTiled, &map, type == "half" ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
     2, reinterpret_cast<void*>(at), dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
     CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return map;
}

struct Runner {
  const Kernel& kernel;
  const Problem& problem;
  vector<Buffer> buffers;
  vector<Expect> expected;
  CUdeviceptr flush = 0;
  static constexpr size_t kFlush = 192u << 20;

  Runner(const Kernel& k, const Problem& p) : kernel(k), problem(p), buffers(k.buffers(p)) {
    unsigned seed = 1;
    for (Buffer& buffer : buffers) {
      fill(buffer, seed++);
      CU(cuMemAlloc, &buffer.device, buffer.bytes.size() + kGuard);
      CU(cuMemcpyHtoD, buffer.device, buffer.bytes.data(), buffer.bytes.size());
      if (buffer.role == Role::inout) {
        CU(cuMemAlloc, &buffer.work, buffer.bytes.size() + kGuard);
      } else {
        buffer.work = buffer.device;
      }
      CU(cuMemsetD8, buffer.work + buffer.bytes.size(), 0xa5, kGuard);
    }
    CU(cuMemAlloc, &flush, kFlush);
    expected = kernel.reference(problem, buffers);
  }
  ~Runner() {
    for (Buffer& buffer : buffers) {
      CU(cuMemFree, buffer.device);
      if (buffer.work != buffer.device) CU(cuMemFree, buffer.work);
    }
    CU(cuMemFree, flush);
  }
  void restore() {
    for (Buffer& buffer : buffers) {
      const size_t size = buffer.bytes.size();
      if (buffer.role == Role::out) CU(cuMemsetD8Async, buffer.work, 0xff, size, nullptr);  // NaN in every type
      if (buffer.role == Role::zeroed) CU(cuMemsetD8Async, buffer.work, 0, size, nullptr);
      if (buffer.role == Role::inout) CU(cuMemcpyDtoDAsync, buffer.work, buffer.device, size, nullptr);
    }
  }

  // Median time in us, < 0 for a failure; `verdict` says what was wrong.
  double run(const Params& config, const Build& build, string& verdict) {
    const Artifact artifact = compile(build);
    if (artifact.cubin.empty()) return verdict = "compile error", -1;
    CUmodule module;
    CUfunction function;
    CU(cuModuleLoadData, &module, artifact.cubin.data());
    CU(cuModuleGetFunction, &function, module, artifact.name.c_str());
    const Launch launch = kernel.launch(problem, config);
    CU(cuFuncSetAttribute, function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_cast<int>(launch.shared));
    vector<void*> args;
    CUtensorMap maps[2];
    const bool tma = config.count("CLUSTER");
    for (Buffer& buffer : buffers) {
      if (buffer.role != Role::hidden) args.push_back(&buffer.work);
    }
    if (tma) {
      maps[0] = encode(problem.type, buffers[1].work, problem.c, problem.a, 64, static_cast<unsigned>(config.at("BM")));
      maps[1] = encode(problem.type, buffers[2].work, problem.b, problem.c, 64,
                       static_cast<unsigned>(64 / config.at("CLUSTER")));
      args.push_back(&maps[0]);
      args.push_back(&maps[1]);
    }
    vector<int> numbers = scalars(kernel.name, problem);
    for (int& number : numbers) args.push_back(&number);
    float eps = 1e-6f;
    if (kernel.name.find("rmsnorm") != string::npos) args.push_back(&eps);
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim.x = static_cast<unsigned>(launch.cluster);
    attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
    CUlaunchConfig how{};
    how.gridDimX = static_cast<unsigned>(launch.grid);
    how.blockDimX = static_cast<unsigned>(launch.block);
    how.gridDimY = how.gridDimZ = how.blockDimY = how.blockDimZ = 1;
    how.sharedMemBytes = static_cast<unsigned>(launch.shared);
    if (launch.cluster > 1) how.attrs = &attribute, how.numAttrs = 1;
    const auto go = [&] { CU(cuLaunchKernelEx, &how, function, args.data(), nullptr); };

    restore();
    go();
    CU(cuCtxSynchronize, );
    verdict = check();
    double median = verdict.empty() ? 0 : -1;
    if (verdict.empty() && problem.timed) {
      CUevent begin, end;
      CU(cuEventCreate, &begin, CU_EVENT_DEFAULT);
      CU(cuEventCreate, &end, CU_EVENT_DEFAULT);
      vector<float> times;
      for (int i = 0; i < 9; ++i) {
        restore();
        CU(cuMemsetD8Async, flush, static_cast<unsigned char>(i), kFlush, nullptr);
        CU(cuEventRecord, begin, nullptr);
        go();
        CU(cuEventRecord, end, nullptr);
        CU(cuEventSynchronize, end);
        float ms = 0;
        CU(cuEventElapsedTime, &ms, begin, end);
        if (i >= 2) times.push_back(ms * 1000);
      }
      std::sort(times.begin(), times.end());
      median = times[times.size() / 2];
      CU(cuEventDestroy, begin);
      CU(cuEventDestroy, end);
      if (tma) verdict = check();  // a race may spare the first run
    }
    CU(cuModuleUnload, module);
    return verdict.empty() ? median : -1;
  }

  string check() {
    string wrong;
    for (size_t b = 0; b < buffers.size(); ++b) {
      Buffer& buffer = buffers[b];
      string guard(kGuard, '\0');
      CU(cuMemcpyDtoH, guard.data(), buffer.work + buffer.bytes.size(), kGuard);
      if (guard.find_first_not_of('\xa5') != string::npos)
        wrong += "written past the end of buffer " + std::to_string(b) + "; ";
      if (buffer.role == Role::in || buffer.role == Role::hidden) continue;
      string got(buffer.bytes.size(), '\0');
      CU(cuMemcpyDtoH, got.data(), buffer.work, got.size());
      size_t bad = 0, seen = 0, first = 0;
      double worst = 0, got_first = 0, want_first = 0;
      for (const Expect& e : expected) {
        if (e.buffer != static_cast<int>(b)) continue;
        ++seen;
        const double value = load(buffer.type, got.data(), e.at);
        const double error = std::abs(value - e.value);
        if (!(error <= kernel.atol + kernel.rtol * std::abs(e.value))) {
          if (bad++ == 0) first = e.at, got_first = value, want_first = e.value;
        }
        worst = std::max(worst, std::isnan(error) ? 1e30 : error);
      }
      if (bad) {
        char line[200];
        std::snprintf(line, sizeof line, "buffer %zu: %zu of %zu wrong, worst %.3g, first at %zu: %.5g for %.5g; ", b,
                      bad, seen, worst, first, got_first, want_first);
        wrong += line;
      }
    }
    return wrong;
  }
};

void run_kernel(const Kernel& kernel) {
  CU(cuInit, 0);
  CUdevice device;
  CUcontext context;
  CU(cuDeviceGet, &device, 0);
  CU(cuDevicePrimaryCtxRetain, &context, device);
  CU(cuCtxSetCurrent, context);
  const int begin = g_shared->next;
  int number = 0;
  for (const Problem& problem : kernel.problems) {
    const vector<Params> configs = chosen(kernel, problem);
    const vector<std::pair<string, Build>> extra = hypotheses(kernel, problem);
    if (number + static_cast<int>(configs.size() + extra.size()) <= begin) {
      number += static_cast<int>(configs.size() + extra.size());
      continue;
    }
    char head[128];
    std::snprintf(head, sizeof head, "%s %s %ldx%ldx%ld", kernel.name.c_str(), problem.type.c_str(), problem.a,
                  problem.b, problem.c);
    alarm(60);
    Runner runner(kernel, problem);
    vector<std::pair<double, string>> times;
    double preset = -1;
    int good = 0, bad = 0;
    const auto one = [&](const Params& config, const Build& build, const string& label) {
      if (number++ < begin) return;
      g_shared->next = number;
      std::snprintf(g_shared->label, sizeof g_shared->label, "%s %s", head, label.c_str());
      alarm(8);
      string verdict;
      const double us = runner.run(config, build, verdict);
      if (us < 0) {
        if (++bad <= 4) std::printf("WRONG %s | %s | %s\n", head, label.c_str(), verdict.c_str());
        return;
      }
      ++good;
      if (label == text(configs[0])) preset = us;
      times.emplace_back(us, label);
    };
    for (const auto& [label, build] : extra) one(configs[0], build, label);
    for (const Params& config : configs) one(config, kernel.build(problem, config), text(config));
    std::sort(times.begin(), times.end());
    const double scale = kernel.name.find("gemm") == 0 ? 1e-6 : 1e-3;  // TFLOP/s or GB/s
    std::printf("%-44s ok %3d wrong %3d", head, good, bad);
    if (problem.timed && !times.empty()) {
      std::printf(" | default %8.2f us %7.1f", preset, kernel.work(problem) / preset * scale);
      for (size_t i = 0; i < std::min<size_t>(times.size(), problem.all ? 2 : 1); ++i) {
        std::printf(" | %8.2f us %7.1f %s", times[i].first, kernel.work(problem) / times[i].first * scale,
                    times[i].second.c_str());
      }
      std::printf(" | worst %.2f us %s", times.back().first, times.back().second.c_str());
    }
    std::printf("\n");
    std::fflush(stdout);
    if (const char* out = getenv("OUT"); out && problem.timed) {
      std::ofstream rows(string(out) + "/kernel_check.tsv", std::ios::app);
      for (const auto& [us, label] : times) rows << head << '\t' << label << '\t' << us << '\n';
    }
  }
}

// ---- probes ----

void probe() {
  const pid_t waiting = fork();
  if (waiting == 0) {
    pause();
    _exit(0);
  }
  const long pidfd = syscall(SYS_pidfd_open, waiting, 0);
  std::printf("probe pidfd_open: %s\n", pidfd >= 0 ? "works" : strerror(errno));
  kill(waiting, SIGKILL);
  waitpid(waiting, nullptr, 0);
  int there[2], back[2];
  if (pipe(there) || pipe(back)) return;
  const auto context = [] {
    CUcontext made;
    CU(cuInit, 0);
    CU(cuDevicePrimaryCtxRetain, &made, 0);
    CU(cuCtxSetCurrent, made);
  };
  const pid_t owner = fork();
  if (owner == 0) {
    alarm(30);
    context();
    CUdeviceptr data;
    CUipcMemHandle handle;
    CU(cuMemAlloc, &data, 1 << 20);
    CU(cuMemsetD32, data, 0x1234abcd, 1 << 18);
    CU(cuCtxSynchronize, );
    CU(cuIpcGetMemHandle, &handle, data);
    char done;
    _exit(write(there[1], &handle, sizeof handle) < 0 || read(back[0], &done, 1) < 0);
  }
  const pid_t reader = fork();
  if (reader == 0) {
    alarm(30);
    CUipcMemHandle handle;
    if (read(there[0], &handle, sizeof handle) != sizeof handle) _exit(1);
    context();
    CUdeviceptr data;
    CU(cuIpcOpenMemHandle, &data, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    unsigned word = 0;
    CU(cuMemcpyDtoH, &word, data + 4096, 4);
    CU(cuIpcCloseMemHandle, data);
    std::printf("probe CUDA IPC: %s\n", word == 0x1234abcd ? "works" : "opened, wrong data");
    std::fflush(stdout);
    _exit(0);
  }
  int status = 0;
  waitpid(reader, &status, 0);
  if (status) std::printf("probe CUDA IPC: failed, status %d\n", status);
  if (write(back[1], "x", 1) < 0) return;
  waitpid(owner, nullptr, 0);
}

void compile_all(const vector<Kernel>& kernels, int jobs, bool table, bool report) {
  vector<std::pair<string, Build>> builds;
  for (const Kernel& kernel : kernels) {
    std::map<string, bool> seen;
    for (const Problem& problem : kernel.problems) {
      auto add = [&](const string& label, const Build& build) {
        if (!std::exchange(seen[problem.type + label], true))
          builds.emplace_back(kernel.name + " " + problem.type + " " + label, build);
      };
      for (const Params& config : chosen(kernel, problem)) add(text(config), kernel.build(problem, config));
      for (const auto& [label, build] : hypotheses(kernel, problem)) add(label, build);
    }
  }
  for (int job = 0; job < jobs; ++job) {
    if (fork() != 0) continue;
    for (size_t i = static_cast<size_t>(job); i < builds.size(); i += static_cast<size_t>(jobs)) {
      const Artifact a = compile(builds[i].second);
      const bool noise = a.log.find("C75") != string::npos || a.log.find("warning") != string::npos;
      if (table || (report && (a.spill > 0 || noise))) {
        std::printf("%-90s %6.0f ms %3d regs %3d spilled %6zu B %s\n", builds[i].first.c_str(), a.ms, a.regs, a.spill,
                    a.cubin.size(), noise ? a.log.c_str() : "");
      }
    }
    std::fflush(stdout);
    _exit(0);
  }
  while (wait(nullptr) > 0) {
  }
  std::printf("compiled %zu builds\n", builds.size());
}

}  // namespace

int main(int argc, char** argv) {
  string only;
  bool only_compile = false, probe_only = false, gemm = false, table = false;
  int jobs = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  for (int i = 1; i < argc; ++i) {
    const string arg = argv[i];
    const bool more = i + 1 < argc && argv[i + 1][0] != '-';
    if (arg == "--src" && more)
      g_src = argv[++i];
    else if (arg == "--cubins" && more)
      g_cubins = argv[++i];
    else if (arg == "--arch" && more)
      g_arch = argv[++i];
    else if (arg == "--only" && more)
      only = argv[++i];
    else if (arg == "--quick")
      g_quick = true;
    else if (arg == "--gemm")
      gemm = true;
    else if (arg == "--probe")
      probe_only = true;
    else if (arg == "--table")
      table = true;
    else if (arg == "--compile")
      only_compile = true, jobs = more ? atoi(argv[++i]) : jobs;
    else
      return std::printf("unknown option %s\n", arg.c_str()), 2;
  }
  g_shared =
      static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  vector<Kernel> kernels;
  for (Kernel& kernel : kernel_list()) {
    if (!only.empty() ? kernel.name == only : !gemm || kernel.name.find("gemm") == 0) kernels.push_back(kernel);
  }
  if (!only_compile) probe();
  if (probe_only) return 0;
  std::fflush(stdout);
  if (!g_cubins.empty() || only_compile) compile_all(kernels, jobs, table, only_compile);
  if (only_compile) return 0;
  int failures = 0;
  for (const Kernel& kernel : kernels) {
    g_shared->next = 0;
    for (int attempt = 0; attempt < 4; ++attempt) {
      std::fflush(stdout);
      const auto begin = std::chrono::steady_clock::now();
      const pid_t child = fork();
      if (child == 0) {
        run_kernel(kernel);
        std::fflush(stdout);
        _exit(0);
      }
      int status = 0;
      waitpid(child, &status, 0);
      std::printf("-- %s: %.1f s\n", kernel.name.c_str(),
                  std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
      if (status == 0) break;
      ++failures;
      std::printf("DIED %s (%s %d)\n", g_shared->label, WIFSIGNALED(status) ? "signal" : "exit",
                  WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
  }
  return failures != 0;
}
