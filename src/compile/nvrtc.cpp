#include "compile/nvrtc.hpp"

#include <nvrtc.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/clock.hpp"
#include "base/dynamic_library.hpp"
#include "base/hash.hpp"
#include "compile/header_reuse.hpp"
#include "compile/ptxas.hpp"
#include "compile/source.hpp"
#include "compile/std_headers.hpp"

namespace jitune::compile {
namespace {

/// The functions of NVRTC that jitune uses.
struct Functions {
  decltype(&nvrtcVersion) version = nullptr;
  decltype(&nvrtcGetNumSupportedArchs) arch_count = nullptr;
  decltype(&nvrtcGetSupportedArchs) archs = nullptr;
  decltype(&nvrtcGetErrorString) error_string = nullptr;
  decltype(&nvrtcCreateProgram) create = nullptr;
  decltype(&nvrtcDestroyProgram) destroy = nullptr;
  decltype(&nvrtcAddNameExpression) add_name = nullptr;
  decltype(&nvrtcGetLoweredName) lowered_name = nullptr;
  decltype(&nvrtcCompileProgram) compile = nullptr;
  decltype(&nvrtcGetProgramLogSize) log_size = nullptr;
  decltype(&nvrtcGetProgramLog) log = nullptr;
  decltype(&nvrtcGetCUBINSize) cubin_size = nullptr;
  decltype(&nvrtcGetCUBIN) cubin = nullptr;
  decltype(&nvrtcGetPTXSize) ptx_size = nullptr;
  decltype(&nvrtcGetPTX) ptx = nullptr;
  // From 12.8 on; older headers don't declare them.
  nvrtcResult (*pch_status)(nvrtcProgram) = nullptr;
  nvrtcResult (*set_pch_heap)(size_t) = nullptr;
};

template <class F>
bool bind(const DynamicLibrary& library, const char* name, F& function) {
  function = reinterpret_cast<F>(library.find(name));
  return function != nullptr;
}

/// Binds every function and returns the name of the first one that is missing, or null.
const char* bind_all(const DynamicLibrary& library, Functions& f) {
  if (!bind(library, "nvrtcVersion", f.version)) return "nvrtcVersion";
  if (!bind(library, "nvrtcGetNumSupportedArchs", f.arch_count)) return "nvrtcGetNumSupportedArchs";
  if (!bind(library, "nvrtcGetSupportedArchs", f.archs)) return "nvrtcGetSupportedArchs";
  if (!bind(library, "nvrtcGetErrorString", f.error_string)) return "nvrtcGetErrorString";
  if (!bind(library, "nvrtcCreateProgram", f.create)) return "nvrtcCreateProgram";
  if (!bind(library, "nvrtcDestroyProgram", f.destroy)) return "nvrtcDestroyProgram";
  if (!bind(library, "nvrtcAddNameExpression", f.add_name)) return "nvrtcAddNameExpression";
  if (!bind(library, "nvrtcGetLoweredName", f.lowered_name)) return "nvrtcGetLoweredName";
  if (!bind(library, "nvrtcCompileProgram", f.compile)) return "nvrtcCompileProgram";
  if (!bind(library, "nvrtcGetProgramLogSize", f.log_size)) return "nvrtcGetProgramLogSize";
  if (!bind(library, "nvrtcGetProgramLog", f.log)) return "nvrtcGetProgramLog";
  if (!bind(library, "nvrtcGetCUBINSize", f.cubin_size)) return "nvrtcGetCUBINSize";
  if (!bind(library, "nvrtcGetCUBIN", f.cubin)) return "nvrtcGetCUBIN";
  if (!bind(library, "nvrtcGetPTXSize", f.ptx_size)) return "nvrtcGetPTXSize";
  if (!bind(library, "nvrtcGetPTX", f.ptx)) return "nvrtcGetPTX";
  bind(library, "nvrtcGetPCHCreateStatus", f.pch_status);
  bind(library, "nvrtcSetPCHHeapSize", f.set_pch_heap);
  return nullptr;
}

constexpr size_t kHeaderHeapBytes = size_t{512} << 20;

/// One nvrtcProgram, destroyed with the object.
struct Program {
  explicit Program(const Functions& functions) : f(functions) {}
  ~Program() {
    if (handle != nullptr) f.destroy(&handle);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  std::string log() const {
    size_t size = 0;
    if (f.log_size(handle, &size) != NVRTC_SUCCESS || size < 2) return "";
    std::string text(size, '\0');
    if (f.log(handle, text.data()) != NVRTC_SUCCESS) return "";
    text.resize(size - 1);  // its NUL
    return text;
  }

  const Functions& f;
  nvrtcProgram handle = nullptr;
};

bool has_option(const std::vector<std::string>& options, std::string_view name) {
  return std::any_of(options.begin(), options.end(), [&](std::string_view option) {
    option.remove_prefix(std::min(option.find_first_not_of('-'), option.size()));
    return option.starts_with(name);
  });
}

std::vector<std::string> author_dirs(const space::BuildSpec& spec) {
  std::vector<std::string> dirs;
  // `#include "x.h"` means the source's own folder first; NVRTC, which got a text, does not know it.
  const std::filesystem::path source(spec.source_name);
  if (source.is_absolute()) dirs.push_back(source.parent_path().string());
  dirs.insert(dirs.end(), spec.include_dirs.begin(), spec.include_dirs.end());
  return dirs;
}

std::vector<std::string> options_for(const Request& request, bool no_cache) {
  const space::BuildSpec& spec = request.spec;
  std::vector<std::string> options{"--gpu-architecture=" + spec.arch, "-default-device", "--ptxas-options=-v"};
  // NVRTC's own disk cache would load the driver and make a cold compile look warm.
  if (no_cache) options.emplace_back("--no-cache");
  if (!has_option(spec.options, "std=") && !has_option(spec.options, "std")) options.emplace_back("--std=c++17");
  for (const std::string& dir : author_dirs(spec)) options.push_back("-I" + dir);
  for (const std::string& dir : request.toolkit_include_dirs) options.push_back("-I" + dir);
  options.insert(options.end(), spec.options.begin(), spec.options.end());
  return options;
}

/// Takes what NVRTC says of a precompiled header out of a log, for it is no matter of the author's, and returns it.
std::string take_header_remarks(std::string& log) {
  std::string kept, remarks;
  for (size_t begin = 0; begin < log.size();) {
    const size_t end = std::min(log.find('\n', begin), log.size() - 1) + 1;
    const std::string line = log.substr(begin, end - begin);
    begin = end;
    (line.find("precompiled header") == std::string::npos ? kept : remarks) += line;
  }
  constexpr std::string_view kHint = "Remark: The warnings can be suppressed";  // stands below any warning
  const size_t first = kept.find_first_not_of(" \n");
  if (!remarks.empty() && (first == std::string::npos || kept.compare(first, kHint.size(), kHint) == 0)) kept.clear();
  log = std::move(kept);
  return remarks;
}

bool gives_header(const space::BuildSpec& spec, const std::string& name) {
  return std::any_of(spec.header_texts.begin(), spec.header_texts.end(),
                     [&](const HeaderText& header) { return header.name == name; });
}

/// For a device newer than this NVRTC the newest virtual arch that both know, whose PTX the driver can take; else "".
/// Code for one arch alone (sm_130a) can't be had that way.
std::string virtual_arch_for(const std::string& arch, const std::vector<int>& known) {
  int wanted = 0, end = 0;
  if (known.empty() || std::sscanf(arch.c_str(), "sm_%d%n", &wanted, &end) != 1) return "";
  if (static_cast<size_t>(end) != arch.size() || wanted <= known.back()) return "";
  return "compute_" + std::to_string(known.back());
}

void preload_builtins(const std::filesystem::path& library) {
  // NVRTC opens its builtins by bare name. Once loaded from the right folder, that name is found whatever the
  // search path says. Without the file the compile itself tells what is missing.
  std::error_code ignored;
  for (const auto& file : std::filesystem::directory_iterator(library.parent_path(), ignored)) {
    const std::string name = file.path().filename().string();
    if (!name.starts_with("libnvrtc-builtins.so")) continue;
    auto builtins = DynamicLibrary::open(file.path().string());
    if (!builtins) continue;
    builtins->keep();
  }
}

}  // namespace

struct Nvrtc::State {
  DynamicLibrary library;
  Functions f;
  int major = 0, minor = 0;
  bool knows_no_cache = true;  // found out by the first compile
  bool light_headers = true;   // until a source needs more
  // The stand-ins of the last request: the folders rarely change.
  std::vector<std::string> header_dirs;
  std::vector<MemoryHeader> headers;

  const std::vector<MemoryHeader>& headers_for(const Request& request) {
    std::vector<std::string> dirs = author_dirs(request.spec);
    const std::vector<std::string> own = dirs;
    dirs.emplace_back(light_headers ? "light" : "full");
    dirs.insert(dirs.end(), request.toolkit_include_dirs.begin(), request.toolkit_include_dirs.end());
    if (dirs != header_dirs || headers.empty()) {
      headers = std_headers(own, request.toolkit_include_dirs, light_headers);
      header_dirs = std::move(dirs);
    }
    return headers;
  }

  HeaderReuse reuse;

  /// What the headers' meaning depends on: texts, folders, options, and where this NVRTC lies in memory.
  std::string header_key(const Request& request, const std::string& head);
  Artifact attempt(const Request& request, nvrtcResult& result);
  Artifact attempt(const Request& request, const HeaderReuse::Plan& plan, nvrtcResult& result);
  void settle_headers(const Program& program, const HeaderReuse::Plan& plan, Artifact& artifact);
  void take_result(const Program& program, const Request& request, const std::string& log, Artifact& artifact) const;
};

/// After a compile: hands on the precompiled header that it made, or finds out that one was not taken.
void Nvrtc::State::settle_headers(const Program& program, const HeaderReuse::Plan& plan, Artifact& artifact) {
  using Mode = HeaderReuse::Plan::Mode;
  artifact.headers = "plain";
  if (plan.mode == Mode::plain) return;
  const std::string remarks = take_header_remarks(artifact.log);
  if (plan.mode == Mode::make) {
    const nvrtcResult made = f.pch_status(program.handle);
    HeaderReuse::settle(plan, made == NVRTC_SUCCESS);
    artifact.headers =
        made == NVRTC_SUCCESS ? "made" : "not made: " + (remarks.empty() ? f.error_string(made) : remarks);
  } else {
    const bool used = remarks.find(": using precompiled header file") != std::string::npos;
    artifact.headers = used ? "used" : "not used: " + remarks;
    if (!used) reuse.refuse(plan);
  }
}

/// Fills in cubin, symbol and resources after a successful compile.
void Nvrtc::State::take_result(const Program& program, const Request& request, const std::string& log,
                               Artifact& artifact) const {
  const char* lowered = nullptr;
  nvrtcResult result = f.lowered_name(program.handle, request.spec.entry.c_str(), &lowered);
  if (result != NVRTC_SUCCESS || lowered == nullptr) {
    artifact.log += "the kernel '" + request.spec.entry + "' has no symbol: " + f.error_string(result) + "\n";
    return;
  }
  artifact.lowered_name = lowered;
  const bool is_ptx = request.spec.arch.starts_with("compute_");
  size_t size = 0;
  result = (is_ptx ? f.ptx_size : f.cubin_size)(program.handle, &size);
  if (result == NVRTC_SUCCESS) {
    artifact.cubin.resize(size);
    result = (is_ptx ? f.ptx : f.cubin)(program.handle, artifact.cubin.data());
    if (is_ptx) artifact.cubin.resize(artifact.cubin.find_last_not_of('\0') + 1);
  }
  if (result != NVRTC_SUCCESS || size == 0) {
    artifact.cubin.clear();
    artifact.log += "NVRTC gave no cubin for '" + request.spec.arch + "': " + f.error_string(result) +
                    ". The arch must be a real one (sm_NN), not a virtual one.\n";
    return;
  }
  const auto checked = check_cubin(artifact.cubin, artifact.lowered_name);
  if (!checked) {
    artifact.cubin.clear();
    artifact.log += checked.error() + "\n";
    return;
  }
  const PtxasFacts facts = read_ptxas_facts(log, artifact.lowered_name);
  artifact.regs = facts.regs;
  artifact.static_smem_bytes = facts.static_smem_bytes;
  artifact.local_bytes = facts.stack_bytes;
  artifact.spill_bytes = facts.spill_store_bytes + facts.spill_load_bytes;
  artifact.status = Status::ok;
}

std::string Nvrtc::State::header_key(const Request& request, const std::string& head) {
  FieldHasher hasher;
  hasher.field("head", head).field("source_name", request.spec.source_name);
  for (const std::string& option : options_for(request, knows_no_cache)) {
    const std::string_view name =
        std::string_view(option).substr(std::min<size_t>(option.find_first_not_of('-'), option.size()));
    if (!name.starts_with("maxrregcount")) hasher.field("option", option);  // works on the code alone
  }
  for (const HeaderText& header : request.spec.header_texts)
    hasher.field("header", header.name).field("text", header.text);
  for (const MemoryHeader& header : headers_for(request))
    hasher.field("header", header.name).field("text", header.text);
  hasher.field("nvrtc", static_cast<long long>(reinterpret_cast<intptr_t>(f.compile)));
  return hasher.finish();
}

/// With a precompiled header where there is one or one is to be made, and plainly where that brings any trouble.
Artifact Nvrtc::State::attempt(const Request& request, nvrtcResult& result) {
  HeaderReuse::Plan plan;
  if (!request.header_directory.empty() && f.pch_status != nullptr && f.set_pch_heap != nullptr) {
    const std::string head = split_source(request.spec).head;
    if (!head.empty()) plan = reuse.plan(request.header_directory, header_key(request, head));
  }
  Artifact artifact = attempt(request, plan, result);
  if (plan.mode == HeaderReuse::Plan::Mode::plain || result == NVRTC_SUCCESS) return artifact;
  Artifact plainly = attempt(request, HeaderReuse::Plan{}, result);
  if (result == NVRTC_SUCCESS) {
    plainly.headers = "not usable: " + artifact.log;
    reuse.refuse(plan);
  }
  return plainly;
}

Artifact Nvrtc::State::attempt(const Request& request, const HeaderReuse::Plan& plan, nvrtcResult& result) {
  using Mode = HeaderReuse::Plan::Mode;
  Artifact artifact;
  std::string source;
  if (plan.mode == Mode::plain) {
    source = specialise(request.spec);
  } else {
    const SourceParts parts = split_source(request.spec);
    source = parts.head + "#pragma nv_hdrstop\n" + parts.rest;
  }
  std::vector<const char*> names, texts, options;
  for (const HeaderText& header : request.spec.header_texts) {
    names.push_back(header.name.c_str());
    texts.push_back(header.text.c_str());
  }
  for (const MemoryHeader& header : headers_for(request)) {
    if (gives_header(request.spec, header.name)) continue;  // NVRTC crashes on two texts of one name
    names.push_back(header.name.c_str());
    texts.push_back(header.text.c_str());
  }
  std::vector<std::string> option_texts = options_for(request, knows_no_cache);
  // NVRTC warns of the #line after the header stop, which does not touch what it makes.
  if (plan.mode != Mode::plain) option_texts.emplace_back("--diag-suppress=20283");
  if (plan.mode == Mode::make) option_texts.push_back("--create-pch=" + plan.path);
  if (plan.mode == Mode::use) option_texts.push_back("--use-pch=" + plan.path);
  options.reserve(option_texts.size());
  for (const std::string& option : option_texts) options.push_back(option.c_str());

  Program program(f);
  result = f.create(&program.handle, source.c_str(), request.spec.source_name.c_str(), static_cast<int>(names.size()),
                    texts.data(), names.data());
  if (result == NVRTC_SUCCESS) result = f.add_name(program.handle, request.spec.entry.c_str());
  if (result != NVRTC_SUCCESS) {
    artifact.log = std::string("NVRTC does not take the program: ") + f.error_string(result);
    return artifact;
  }
  result = f.compile(program.handle, static_cast<int>(options.size()), options.data());
  const std::string log = program.log();
  artifact.log = without_ptxas_info(log);
  settle_headers(program, plan, artifact);
  if (result == NVRTC_SUCCESS) {
    take_result(program, request, log, artifact);
  } else if (artifact.log.empty()) {
    artifact.log = std::string("NVRTC: ") + f.error_string(result);
  }
  return artifact;
}

Nvrtc::Nvrtc() : state_(std::make_unique<State>()) {}
Nvrtc::~Nvrtc() = default;

Result<std::unique_ptr<Nvrtc>> Nvrtc::load(const std::string& path) {
  std::error_code error;
  const std::filesystem::path file = std::filesystem::canonical(path, error);
  if (error) return Failure{"cannot load NVRTC '" + path + "': " + error.message()};
  preload_builtins(file);
  auto library = DynamicLibrary::open(file.string());
  if (!library) return Failure{"cannot load NVRTC '" + path + "': " + library.error()};
  std::unique_ptr<Nvrtc> nvrtc(new Nvrtc);
  State& state = *nvrtc->state_;
  if (const char* missing = bind_all(*library, state.f); missing != nullptr)
    return Failure{"'" + path + "' is not an NVRTC that jitune can use: it lacks " + missing +
                   " (11.2 or newer is needed)"};
  if (state.f.version(&state.major, &state.minor) != NVRTC_SUCCESS)
    return Failure{"'" + path + "' does not tell its version"};
  // Address space only. The default, 256 MB, is just enough for CUB's block-wide half.
  if (state.f.set_pch_heap != nullptr) state.f.set_pch_heap(kHeaderHeapBytes);
  // Unloading NVRTC is not safe on every version; it stays for the life of the process.
  library->keep();
  return nvrtc;
}

std::string Nvrtc::version() const {
  return std::to_string(state_->major) + "." + std::to_string(state_->minor);
}

std::vector<int> Nvrtc::supported_archs() const {
  int count = 0;
  if (state_->f.arch_count(&count) != NVRTC_SUCCESS || count <= 0) return {};
  std::vector<int> archs(static_cast<size_t>(count));
  if (state_->f.archs(archs.data()) != NVRTC_SUCCESS) return {};
  return archs;
}

Artifact Nvrtc::compile(const Request& asked) {
  const auto start = Clock::now();
  Request request = asked;
  const std::string newest = virtual_arch_for(asked.spec.arch, supported_archs());
  if (!newest.empty()) request.spec.arch = newest;
  nvrtcResult result = NVRTC_SUCCESS;
  Artifact artifact = state_->attempt(request, result);
  if (result == NVRTC_ERROR_INVALID_OPTION && state_->knows_no_cache &&
      artifact.log.find("no-cache") != std::string::npos) {
    state_->knows_no_cache = false;  // before 12.8 or so: it has no cache of its own either
    artifact = state_->attempt(request, result);
  }
  if (result == NVRTC_ERROR_COMPILATION && state_->light_headers && artifact.log.find("std") != std::string::npos) {
    // Perhaps a trait that the light header lacks. Only then do later sources, likely of the same kernel, get the full
    // one.
    state_->light_headers = false;
    artifact = state_->attempt(request, result);
    state_->light_headers = artifact.status != Status::ok;
  }
  if (result == NVRTC_ERROR_INVALID_OPTION) {
    std::string archs;
    for (const int arch : supported_archs()) archs += (archs.empty() ? "sm_" : ", sm_") + std::to_string(arch);
    artifact.log += "NVRTC " + version() + " compiles for " + archs + " (asked: " + request.spec.arch + ")\n";
  }
  if (!newest.empty() && artifact.status == Status::ok)
    artifact.log += "NVRTC " + version() + " does not know " + asked.spec.arch + ": this is PTX for " + newest +
                    ", which the driver compiles when it is loaded\n";
  artifact.log = shorten_log(std::move(artifact.log));
  artifact.compile_ms = ms_since(start);
  return artifact;
}

}  // namespace jitune::compile
