// Names of kernels, options and paths: from the source to the store and back in a process that needs no NVRTC.
#include <filesystem>
#include <map>

#include "compile/nvrtc_support.hpp"
#include "pool/pool.hpp"
#include "support/support.hpp"
#include "tune/compiler.hpp"

using namespace jitune;
using namespace jitune::test;
using compile::NvrtcFile;
using tune::Compiled;
using tune::CompileJob;
using tune::Compiler;

namespace {

const char* const kSource =
    "#include <cstddef>\n#include <cuda_fp16.h>\n"
    "enum class Mode { slow, fast };\nenum Plain { one = 1, two = 2 };\nstruct Tag {};\n"
    "namespace a { namespace b {\n"
    "template <class T, int N, bool Flag> __global__ void k(T* x) { if (Flag) x[0] = T(N); }\n}\n"
    "template <Mode M> __global__ void by_mode(float* x) { *x = M == Mode::fast; }\n}\n"
    "template <Plain P> __global__ void by_plain(float* x) { *x = P; }\n"
    "template <class T> __global__ void by_type(T* x) { *x = T(1); }\n"
    "template <std::size_t N> __global__ void by_size(float* x) { *x = N; }\n"
    "template <class T> __global__ void by_tag(float* x) { *x = sizeof(T); }\n"
    "__global__ void plain(float* x) { *x = 2; }\n"
    "extern \"C\" __global__ void c_name(float* x) { *x = 3; }\n";

// Mangled by the Itanium C++ ABI's rules.
const std::map<std::string, std::string> kNames{
    {"a::b::k<float, 4, true>", "_ZN1a1b1kIfLi4ELb1EEEvPT_"},
    {"a::b::k<__half, -1, false>", "_ZN1a1b1kI6__halfLin1ELb0EEEvPT_"},
    {"a::by_mode<Mode::fast>", "_ZN1a7by_modeIL4Mode1EEEvPf"},
    {"a::by_mode<(Mode)0>", "_ZN1a7by_modeIL4Mode0EEEvPf"},
    {"by_plain<two>", "_Z8by_plainIL5Plain2EEvPf"},
    {"by_type<unsigned long>", "_Z7by_typeImEvPT_"},
    {"by_type<size_t>", "_Z7by_typeImEvPT_"},
    {"by_type<unsigned long long>", "_Z7by_typeIyEvPT_"},
    {"by_type<unsigned char>", "_Z7by_typeIhEvPT_"},
    {"by_size<128>", "_Z7by_sizeILm128EEvPf"},
    {"by_tag<Tag>", "_Z6by_tagI3TagEvPf"},
    {"plain", "_Z5plainPf"},
    {"c_name", "c_name"},
};

struct Process {
  Process(const std::string& database, const NvrtcFile& nvrtc, bool has_worker) {
    store::Store::OpenOptions open;
    open.path = database;
    open.log = &log;
    auto opened = store::Store::open(open);
    REQUIRE(opened.ok());
    store = *std::move(opened);
    Compiler::Options options;
    if (has_worker) options.worker = std::string(JITUNE_BINARY_DIR "/bin/jitune-worker");
    options.nvrtc = nvrtc;
    options.store = store.get();
    options.log = &log;
    compiler = std::make_unique<Compiler>(options);
  }
  Log log;
  std::unique_ptr<store::Store> store;
  std::unique_ptr<Compiler> compiler;
};

CompileJob job_for(const NvrtcFile& nvrtc, const std::string& source, const std::string& entry,
                   const std::vector<std::string>& options = {}, const std::vector<std::string>& include = {}) {
  CompileJob job;
  job.kernel = "names";
  job.spec = request_for(nvrtc, source, entry).spec;
  job.spec.options = options;
  job.spec.include_dirs = include;
  auto hash = key::hash_source(source, "", include);
  REQUIRE(hash.ok());
  job.source = *hash;
  job.build = key::make_build_key(*hash, job.spec, {}, nvrtc.build);
  return job;
}

}  // namespace

TEST_CASE("lowered names are stored, and a process without NVRTC finds them") {
  const auto file = find_nvrtc_or_skip();
  if (!file) return;
  TempDir dir;
  {
    Process first(dir / "x.db", *file, true);
    Compiler::Stream stream(*first.compiler, true);
    for (const auto& [entry, name] : kNames) stream.submit(job_for(*file, kSource, entry));
    while (auto compiled = stream.next(Clock::now() + std::chrono::minutes(2))) {
      CAPTURE(compiled->job.spec.entry);
      CHECK_MESSAGE(compiled->artifact.status == "ok", compiled->artifact.log);
      CHECK(compiled->artifact.lowered_name == kNames.at(compiled->job.spec.entry));
      CHECK_FALSE(compiled->from_store);
    }
  }
  NvrtcFile gone = *file;  // known by the database alone
  gone.path = "/nonexistent/libnvrtc.so.13";
  Process second(dir / "x.db", gone, false);
  for (const auto& [entry, name] : kNames) {
    CAPTURE(entry);
    const Compiled compiled = second.compiler->compile(job_for(gone, kSource, entry));
    CHECK(compiled.from_store);
    CHECK(compiled.artifact.status == "ok");
    CHECK(compiled.artifact.lowered_name == name);
    CHECK(compile::check_cubin(compiled.artifact.cubin, name).ok());
  }
  CHECK(second.compiler->compilations() == 0);
}

TEST_CASE("a config that does not compile is remembered with its reason and not compiled again") {
  const auto file = find_nvrtc_or_skip();
  if (!file) return;
  TempDir dir;
  const std::string source = "extern \"C\" __global__ void k(float* x) { *x = nowhere; }\n";
  {
    Process first(dir / "x.db", *file, true);
    const Compiled compiled = first.compiler->compile(job_for(*file, source, "k"));
    CHECK(compiled.artifact.status == "error");
    CHECK_FALSE(compiled.from_store);
  }
  Process second(dir / "x.db", *file, true);
  const Compiled compiled = second.compiler->compile(job_for(*file, source, "k"));
  CHECK(compiled.from_store);
  CHECK(compiled.artifact.status == "error");
  CHECK(compiled.artifact.log.find("\"nowhere\" is undefined") != std::string::npos);
  CHECK(second.compiler->spawned() == 0);
}

TEST_CASE("options with spaces stay whole, and folders with spaces and letters beyond ASCII are found") {
  const auto file = find_nvrtc_or_skip();
  if (!file) return;
  TempDir dir;
  const std::string folder = dir / "with space/Ka\xc3\xa4rn\xc3\xa8l -I x";
  write_file(folder + "/m\xc3\xa4.h", "#define FROM_HEADER 1\n");
  const std::string source =
      "#include <m\xc3\xa4.h>\n#define STR2(x) #x\n#define STR(x) STR2(x)\n"
      "constexpr bool same(const char* a, const char* b) { return *a == *b && (*a == 0 || same(a + 1, b + 1)); }\n"
      "static_assert(same(STR(TEXT), \"a b -DOTHER=1\"), \"the option was split\");\n"
      "#ifdef OTHER\n#error the option was split\n#endif\n"
      "extern \"C\" __global__ void k(float* x) { *x = FROM_HEADER; }\n";
  Process process(dir / "x.db", *file, true);
  const Compiled compiled = process.compiler->compile(job_for(*file, source, "k", {"-DTEXT=a b -DOTHER=1"}, {folder}));
  CHECK_MESSAGE(compiled.artifact.status == "ok", compiled.artifact.log);
}

TEST_CASE("headers given as text are found before files, and an edited one is compiled again") {
  const auto file = find_nvrtc_or_skip();
  if (!file) return;
  TempDir dir;
  write_file(dir / "inc/tile.h", "#error the file was taken\n");
  const std::string source =
      "#include \"tile.h\"\n#include <cstdint>\n"
      "extern \"C\" __global__ void k(float* x) { static_assert(sizeof(std::uint8_t) == WIDTH, \"\"); *x = TILE; }\n";
  Process process(dir / "x.db", *file, true);
  const auto with = [&](const std::string& tile, const std::string& unused) {
    CompileJob job = job_for(*file, source, "k", {}, {dir / "inc"});
    job.spec.header_texts = {{"tile.h", "#include \"deeper/value.h\"\n"},
                             {"deeper/value.h", "#define TILE " + tile + "\n"},
                             {"cstdint", "#define WIDTH 1\nnamespace std { typedef unsigned char uint8_t; }\n"},
                             {"unused.h", unused}};
    auto hash = key::hash_source(source, "", {dir / "inc"}, job.spec.header_texts);
    REQUIRE(hash.ok());
    job.source = *hash;
    job.build = key::make_build_key(*hash, job.spec, {}, file->build);
    return process.compiler->compile(std::move(job));
  };
  const Compiled first = with("16", "");
  CHECK_MESSAGE(first.artifact.status == "ok", first.artifact.log);
  CHECK_FALSE(first.from_store);
  CHECK(with("16", "never included").from_store);
  CHECK_FALSE(with("32", "").from_store);
}

TEST_CASE("options that only change messages have no part in the key") {
  const auto file = find_nvrtc_or_skip();
  if (!file) return;
  TempDir dir;
  const std::string source = "extern \"C\" __global__ void k(float* x) { int unused; *x = 1; }\n";
  Process process(dir / "x.db", *file, true);
  CHECK_FALSE(process.compiler->compile(job_for(*file, source, "k", {"--use_fast_math"})).from_store);
  for (const char* silent : {"-w", "--disable-warnings", "--diag-suppress=177", "--ptxas-options=-v"})
    CHECK(process.compiler->compile(job_for(*file, source, "k", {silent, "--use_fast_math"})).from_store);
  const Compiled accepted =
      process.compiler->compile(job_for(*file, source + "// changed\n", "k",
                                        {"-w", "--diag-suppress=177", "--diag-warn=178", "--ptxas-options=-v",
                                         "--display-error-number", "--brief-diagnostics=true"}));
  CHECK_MESSAGE(accepted.artifact.status == "ok", accepted.artifact.log);
  CHECK_FALSE(process.compiler->compile(job_for(*file, source, "k", {"-lineinfo", "--use_fast_math"})).from_store);
}

TEST_CASE("a precompiled header that went bad costs a worker, not a config") {
  const auto file = find_nvrtc_or_skip();
  if (!file) return;
  TempDir dir, temporary;
  const ScopedEnv where("TMPDIR", temporary.path().c_str());
  Process process(dir / "x.db", *file, true);
  const std::string source =
      "#include <cuda_fp16.h>\ntemplate <int N> __global__ void k(__half* x) { x[0] = __hadd(x[N], x[1]); }\n";
  Compiler::Stream stream(*process.compiler, true);
  std::string spoilt;
  for (int i = 0; i < 3; ++i) {
    stream.submit(job_for(*file, source, "k<" + std::to_string(i) + ">"));
    const auto compiled = stream.next(Clock::now() + std::chrono::minutes(1));
    REQUIRE(compiled);
    CHECK_MESSAGE(compiled->artifact.status == "ok", compiled->artifact.log);
    for (const auto& entry : std::filesystem::recursive_directory_iterator(temporary.path()))
      if (spoilt.empty() && entry.path().extension() == ".pch") {
        spoilt = entry.path().string();
        write_file(spoilt, std::string(entry.file_size(), 'x'));
      }
  }
  CHECK((!spoilt.empty() || file->version < "12.8"));
  CHECK(process.store->known_failure(job_for(*file, source, "k<1>").build.sha256, "")->has_value() == false);
}
