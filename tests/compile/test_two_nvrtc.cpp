// Two NVRTC versions side by side: that of this machine and 12.9, which scripts/setup --ci unpacks into .deps.
#include <algorithm>
#include <filesystem>

#include "compile/choose_nvrtc.hpp"
#include "compile/header_reuse.hpp"
#include "compile/nvrtc_support.hpp"
#include "key/key.hpp"
#include "pool/pool.hpp"
#include "support/support.hpp"

using namespace jitune;
using namespace jitune::test;
using namespace std::chrono_literals;
using compile::Artifact;
using compile::NvrtcFile;
using compile::Request;
using compile::Status;

namespace {

struct Two {
  NvrtcFile newer, older;
};

/// Nothing, and the test case is skipped, where there are no two.
std::optional<Two> two_or_skip() {
  const auto newer = find_nvrtc_or_skip();
  if (!newer) return std::nullopt;
  const auto older = compile::find_nvrtc({JITUNE_SOURCE_DIR "/.deps/cuda-12.9", "", "", {}});
  if (older.found.empty()) {
    skip("nvrtc-12.9", "there is no .deps/cuda-12.9; scripts/setup --ci unpacks NVRTC 12.9 there");
    return std::nullopt;
  }
  if (newer->build != older.found.front().build) return Two{*newer, older.found.front()};
  skip("nvrtc-12.9", "this machine's NVRTC is 12.9 too");
  return std::nullopt;
}

/// A worker for one NVRTC, whose environment names no folder of libraries.
class Service {
 public:
  explicit Service(const NvrtcFile& file) : file_(file), pool_(options(file)) {}

  Artifact compile(const std::string& source, const std::string& entry, const std::string& arch = "sm_90",
                   const std::string& headers = {}) {
    Request request = request_for(file_, source, entry);
    request.spec.arch = arch;
    request.header_directory = headers;
    const pool::Reply reply = pool_.call(compile::to_json(request), 120s);
    REQUIRE_MESSAGE(reply.outcome == pool::Outcome::ok, reply.detail);
    auto artifact = compile::artifact_from_json(reply.message);
    REQUIRE_MESSAGE(artifact.ok(), artifact.error());
    return *std::move(artifact);
  }

 private:
  static pool::PoolOptions options(const NvrtcFile& file) {
    pool::PoolOptions options;
    options.program.path = std::filesystem::absolute(JITUNE_BINARY_DIR "/bin/jitune-worker").string();
    options.program.args = {"compile", "--nvrtc=" + file.path};
    options.program.environment = {"LANG=C"};
    return options;
  }
  NvrtcFile file_;
  pool::Pool pool_;
};

// Headers of the standard library, in groups, and CUDA's own. Each group is a compile.
const std::vector<std::vector<const char*>> kMatrix{
    {"array", "atomic", "bit", "bitset", "cassert", "cfloat", "climits"},
    {"cmath", "complex", "concepts", "cstddef", "cstdint", "cstdlib", "cstring"},
    {"functional", "initializer_list", "iterator", "limits", "memory", "numbers", "numeric"},
    {"optional", "span", "tuple", "type_traits", "utility", "variant"},
    {"assert.h", "float.h", "limits.h", "math.h", "stddef.h", "stdint.h", "stdlib.h", "string.h", "cstdio", "stdio.h"},
    {"cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h", "mma.h", "cuda_pipeline.h"},
    {"cooperative_groups.h", "cooperative_groups/reduce.h"},
    {"cub/block/block_reduce.cuh", "cuda/std/type_traits", "cuda/barrier"},
};

}  // namespace

TEST_CASE("both are found, each by its own version, and driver and device decide which is used") {
  const auto two = two_or_skip();
  if (!two) return;
  CHECK(two->older.version == "12.9");
  CHECK_FALSE(two->older.include_dirs.empty());
  const std::vector<NvrtcFile> found{two->newer, two->older};
  const auto chosen = [&](const std::string& arch, int driver) {
    return compile::choose_nvrtc(found, {{arch}, driver}).index;
  };
  const int major = std::atoi(two->newer.version.c_str());
  CHECK(chosen("sm_90", major * 1000) == 0);
  CHECK(chosen("sm_90", 12090) == (major > 12 ? 1 : 0));
  CHECK(chosen("sm_90", 12040) == (major > 12 ? 1 : 0));
  CHECK(chosen("sm_70", major * 1000) == (major > 12 ? 1 : 0));
  CHECK(chosen("sm_90", 11080) == -1);
}

TEST_CASE("equal sources have different keys under each") {
  const auto two = two_or_skip();
  if (!two) return;
  const Request request = request_for(two->newer, "extern \"C\" __global__ void k(float* x) { *x = 1; }\n", "k");
  const auto source = key::hash_source(request.spec.source_text, "", {});
  REQUIRE(source.ok());
  const auto newer = key::make_build_key(*source, request.spec, {}, two->newer.build);
  const auto older = key::make_build_key(*source, request.spec, {}, two->older.build);
  CHECK(newer.sha256 != older.sha256);
  CHECK(newer.nvrtc == two->newer.build);
  CHECK(older.nvrtc == "12.9.86");
}

TEST_CASE("both compile the matrix of headers with nothing but their own folders to go by") {
  const auto two = two_or_skip();
  if (!two) return;
  for (const NvrtcFile& file : {two->newer, two->older}) {
    CAPTURE(file.build);
    Service service(file);
    for (const auto& group : kMatrix) {
      std::string source;
      for (const char* header : group) source += std::string("#include <") + header + ">\n";
      CAPTURE(source);
      const Artifact artifact = service.compile(source + "extern \"C\" __global__ void k(float* x) { *x = 1; }\n", "k");
      CHECK_MESSAGE(artifact.status == Status::ok, artifact.log);
    }
  }
}

TEST_CASE("what 12.9 has no header for is there all the same") {
  const auto two = two_or_skip();
  if (!two) return;
  for (const NvrtcFile& file : {two->newer, two->older}) {
    CAPTURE(file.build);
    const Artifact artifact = Service(file).compile(
        "#include <numbers>\n#include <cstring>\n#include <string.h>\n#include <cstddef>\n#include <type_traits>\n"
        "static_assert(std::numbers::pi > 3.14159265358979 && std::numbers::e_v<float> < 2.72f, \"\");\n"
        "extern \"C\" __global__ void k(float* x) { std::size_t n = 4; std::memcpy(x, x + 1, n); std::memset(x, 0, n); "
        "memcpy(x, x + 2, n); }\n",
        "k");
    CHECK_MESSAGE(artifact.status == Status::ok, artifact.log);
  }
}

TEST_CASE("precompiled headers work in both") {
  const auto two = two_or_skip();
  if (!two) return;
  for (const NvrtcFile& file : {two->newer, two->older}) {
    CAPTURE(file.build);
    const auto headers = compile::HeaderDirectory::make();
    REQUIRE(headers);
    Service service(file);
    const std::string source =
        "#include <cuda_fp16.h>\ntemplate <int N> __global__ void k(__half* x) { *x = __hadd(x[N], x[1]); }\n";
    for (int i = 0; i < 3; ++i) {
      const std::string entry = "k<" + std::to_string(i) + ">";
      const Artifact with = service.compile(source, entry, "sm_90", headers->path());
      const Artifact plain = service.compile(source, entry);
      REQUIRE_MESSAGE(with.status == Status::ok, with.log);
      CHECK(with.headers == (i == 0 ? "made" : "used"));
      CHECK(with.cubin == plain.cubin);
      CHECK(with.log == plain.log);
    }
  }
}

TEST_CASE("a device newer than NVRTC gets PTX of the newest arch that both know, or a clear error") {
  const auto two = two_or_skip();
  if (!two) return;
  for (const NvrtcFile& file : {two->newer, two->older}) {
    CAPTURE(file.build);
    Service service(file);
    const std::string source = "template <int N> __global__ void k(float* x) { *x = N; }\n";
    const Artifact ptx = service.compile(source, "k<4>", "sm_990");
    REQUIRE_MESSAGE(ptx.status == Status::ok, ptx.log);
    CHECK(ptx.cubin.find(".target sm_121") != std::string::npos);
    CHECK(ptx.lowered_name == "_Z1kILi4EEvPf");
    CHECK(ptx.log.find("does not know sm_990: this is PTX for compute_121") != std::string::npos);
    CHECK(compile::check_cubin(ptx.cubin, ptx.lowered_name).ok());
    CHECK_FALSE(compile::check_cubin(ptx.cubin, "other").ok());
    CHECK_FALSE(compile::check_cubin(ptx.cubin.substr(0, 200), ptx.lowered_name).ok());
    for (const char* arch : {"sm_990a", "sm_91"}) {
      const Artifact none = service.compile(source, "k<4>", arch);
      CHECK(none.status == Status::error);
      CHECK(none.log.find(std::string("asked: ") + arch) != std::string::npos);
      CHECK(none.log.find("sm_90") != std::string::npos);
    }
  }
}

TEST_CASE("what is known of versions is what they say themselves") {
  const auto two = two_or_skip();
  if (!two) return;
  for (const NvrtcFile& file : {two->newer, two->older}) {
    CAPTURE(file.build);
    // In a process of its own each: two NVRTCs in one would share the builtins loaded first.
    Service service(file);
    const Artifact none = service.compile("extern \"C\" __global__ void k() {}\n", "k", "sm_17");
    for (const char* arch :
         {"sm_50", "sm_70", "sm_75", "sm_80", "sm_90", "sm_100", "sm_101", "sm_103", "sm_110", "sm_120", "sm_121"}) {
      const std::string list = none.log.substr(0, none.log.find("(asked")) + ",";
      std::string known = list;
      std::replace(known.begin(), known.end(), ' ', ',');
      CAPTURE(arch);
      CHECK((known.find(std::string(",") + arch + ",") != std::string::npos) ==
            compile::knows_arch(file.version, arch));
    }
  }
}
