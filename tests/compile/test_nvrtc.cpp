// Real NVRTC, in this process.
#include <filesystem>

#include "base/files.hpp"
#include "compile/nvrtc_support.hpp"
#include "gpu/lean_cubin.hpp"
#include "support/support.hpp"

using namespace jitune;
using namespace jitune::test;
using compile::Artifact;
using compile::Nvrtc;
using compile::NvrtcFile;
using compile::Request;
using compile::Status;

namespace {

Nvrtc& nvrtc_of(const NvrtcFile& file) {
  static auto* loaded = new Result<std::unique_ptr<Nvrtc>>(Nvrtc::load(file.path));
  REQUIRE_MESSAGE(loaded->ok(), loaded->error());
  return ***loaded;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Artifact compile_or_fail(const NvrtcFile& file, const Request& request) {
  Artifact artifact = nvrtc_of(file).compile(request);
  REQUIRE_MESSAGE(artifact.status == Status::ok, artifact.log);
  CHECK(compile::check_cubin(artifact.cubin, artifact.lowered_name).ok());
  CHECK(artifact.compile_ms > 0);
  CHECK(artifact.regs > 0);
  CHECK_FALSE(contains(artifact.log, "ptxas info"));
  return artifact;
}

}  // namespace

TEST_CASE("the file found tells the version that the library tells") {
  const auto file = find_nvrtc_or_skip();
  if (!file) return;
  CHECK(nvrtc_of(*file).version() == file->version);
  CHECK(file->build.rfind(file->version + ".", 0) == 0);
  CHECK_FALSE(nvrtc_of(*file).supported_archs().empty());
  CHECK_FALSE(file->include_dirs.empty());
}

TEST_CASE("loading what is no NVRTC fails with the path") {
  TempDir dir;
  write_file(dir / "libnvrtc.so.13", "not a library");
  for (const std::string& path :
       {dir / "libnvrtc.so.13", dir / "missing.so", std::string("/lib/x86_64-linux-gnu/libm.so.6")}) {
    const auto result = Nvrtc::load(path);
    REQUIRE_FALSE(result.ok());
    CHECK(contains(result.error(), path));
  }
}

TEST_CASE("entries: a template, one in a namespace, extern C, a plain function, an anonymous namespace") {
  const auto file = find_nvrtc_or_skip();
  if (!file) return;
  const std::string source =
      "template <class T, int N> __global__ void k(T* x) { x[threadIdx.x] = T(N); }\n"
      "namespace a { namespace b { template <int N> __global__ void k(float* x) { *x = N; } } }\n"
      "extern \"C\" __global__ void c_kernel(float* x) { *x = 1; }\n"
      "__global__ void plain(float* x) { *x = 2; }\n"
      "namespace { template <int N> __global__ void hidden(float* x) { *x = N; } }\n";
  CHECK(compile_or_fail(*file, request_for(*file, source, "k<float, 4>")).lowered_name == "_Z1kIfLi4EEvPT_");
  CHECK(compile_or_fail(*file, request_for(*file, source, "a::b::k<4>")).lowered_name == "_ZN1a1b1kILi4EEEvPf");
  CHECK(compile_or_fail(*file, request_for(*file, source, "c_kernel")).lowered_name == "c_kernel");
  CHECK(compile_or_fail(*file, request_for(*file, source, "plain")).lowered_name == "_Z5plainPf");
  CHECK(contains(compile_or_fail(*file, request_for(*file, source, "hidden<2>")).lowered_name, "hidden"));
  const Artifact missing = nvrtc_of(*file).compile(request_for(*file, source, "nowhere<2>"));
  CHECK(missing.status == Status::error);
  CHECK(contains(missing.log, "nowhere"));
}

TEST_CASE("a macro named B does not reach into headers, only into the source") {
  const auto file = find_nvrtc_or_skip();
  if (!file) return;
  TempDir dir;
  write_file(dir / "lib/header.h", "template <typename B> struct Box { B value; };\n");
  Request request = request_for(*file,
                                "#include <header.h>\n"
                                "extern \"C\" __global__ void k(float* x) { Box<int> box{B}; x[0] = box.value; "
                                "static_assert(B == 256, \"the config's value\"); }\n",
                                "k");
  request.spec.include_dirs = {dir / "lib"};
  request.spec.defines = {{"B", "256"}};
  compile_or_fail(*file, request);
  request.spec.defines_before_includes = true;
  CHECK(nvrtc_of(*file).compile(request).status == Status::error);  // what the default protects from
}

TEST_CASE("the config's value wins over a default in the source") {
  const auto file = find_nvrtc_or_skip();
  if (!file) return;
  Request request = request_for(
      *file,
      "#define TILE 16\n#include <cuda_fp16.h>\n#ifndef STAGES\n#define STAGES 1\n#endif\n"
      "extern \"C\" __global__ void k(float* x) { static_assert(TILE == 64 && STAGES == 3, \"\"); *x = 1; }\n",
      "k");
  request.spec.defines = {{"STAGES", "3"}, {"TILE", "64"}};
  compile_or_fail(*file, request);
}

TEST_CASE("errors name the author's file and line") {
  const auto file = find_nvrtc_or_skip();
  if (!file) return;
  Request request = request_for(*file,
                                "// one\n#include <cuda_fp16.h>\n\n"
                                "extern \"C\" __global__ void k(float* x) {\n  *x = undefined_name;\n}\n",
                                "k");
  request.spec.defines = {{"A", "1"}, {"B", "2"}};
  request.spec.headers = {"cuda_bf16.h"};
  const Artifact artifact = nvrtc_of(*file).compile(request);
  CHECK(artifact.status == Status::error);
  CHECK(artifact.cubin.empty());
  CHECK_MESSAGE(contains(artifact.log, "kernel.cu(5): error"), artifact.log);
  CHECK(contains(artifact.log, "undefined_name"));

  Request before = request_for(*file, "#include <nowhere.h>\nextern \"C\" __global__ void k() {}\n", "k");
  const Artifact no_header = nvrtc_of(*file).compile(before);
  CHECK(no_header.status == Status::error);
  CHECK_MESSAGE(contains(no_header.log, "kernel.cu(1)"), no_header.log);
}

TEST_CASE("standard headers work without any path of the author's") {
  const auto file = find_nvrtc_or_skip();
  if (!file) return;
  for (const char* header :
       {"cstdint", "stdint.h", "type_traits", "cstddef", "limits", "climits", "cuda/std/array", "cuda_fp16.h",
        "cuda_bf16.h", "cuda_runtime.h", "cassert", "cstdio", "cooperative_groups.h", "cmath", "utility"}) {
    INFO(std::string(header));
    compile_or_fail(*file, request_for(*file,
                                       std::string("#include <") + header +
                                           ">\nextern \"C\" __global__ void k(float* x) { *x = 1; }\n",
                                       "k"));
  }
  compile_or_fail(
      *file, request_for(*file,
                         "#include <cstdint>\n#include <type_traits>\n#include <limits>\n#include <cuda/std/array>\n"
                         "#include <cuda_fp16.h>\n"
                         "template <class T> __global__ void k(T* x, std::uint32_t n, uint64_t m) {\n"
                         "  static_assert(sizeof(std::int16_t) == 2 && std::is_same_v<T, __half>, \"\");\n"
                         "  using U = std::conditional_t<(sizeof(T) > 2), float, std::remove_cv_t<const T>>;\n"
                         "  static_assert(std::numeric_limits<int>::max() == 2147483647, \"\");\n"
                         "  static_assert(std::numeric_limits<float>::infinity() > 0, \"\");\n"
                         "  cuda::std::array<U, 4> a{};\n  x[n + m] = a[0];\n}\n",
                         "k<__half>"));
}

TEST_CASE("the light <type_traits> says what the full one says") {
  const auto file = find_nvrtc_or_skip();
  if (!file) return;
  const std::string code = R"cpp(
    enum E : short { one };
    struct S {
      int a;
    };
    struct D : S {};
    static_assert(std::is_same_v<std::conditional_t<true, int, float>, int>, "");
    static_assert(std::is_same_v<std::decay_t<const int&>, int> && std::is_same_v<std::decay_t<int[3]>, int*> &&
                      std::is_same_v<std::decay_t<void(int)>, void (*)(int)>,
                  "");
    static_assert(std::is_integral_v<const unsigned> && !std::is_integral_v<float> && std::is_signed_v<int> &&
                      std::is_unsigned_v<unsigned> && !std::is_signed_v<S>,
                  "");
    static_assert(std::is_pointer_v<int* const> && !std::is_pointer_v<int> && std::is_reference_v<int&>, "");
    static_assert(std::is_same_v<std::remove_pointer_t<int* const>, int> &&
                      std::is_same_v<std::remove_cvref_t<const volatile int&&>, int>,
                  "");
    static_assert(std::is_same_v<std::underlying_type_t<E>, short> && std::is_enum_v<E> && std::is_base_of_v<S, D> &&
                      !std::is_base_of_v<D, S>,
                  "");
    static_assert(std::is_convertible_v<int, double> && !std::is_convertible_v<S, int> &&
                      std::is_trivially_copyable_v<S> && std::is_constructible_v<S>,
                  "");
    static_assert(std::is_same_v<std::common_type_t<int, float, double>, double> &&
                      std::is_same_v<std::make_unsigned_t<int>, unsigned>,
                  "");
    static_assert(std::rank_v<int[2][3]> == 2 && std::extent_v<int[2][3], 1> == 3 && std::extent_v<int[][4], 1> == 4 &&
                      std::extent_v<int[]> == 0,
                  "");
    static_assert(std::conjunction_v<std::is_integral<int>, std::true_type> &&
                      !std::disjunction_v<std::is_integral<float>, std::false_type> && std::negation_v<std::false_type>,
                  "");
    static_assert(std::is_function_v<void(int)> && !std::is_function_v<int> && std::is_void_v<void> &&
                      std::is_same_v<std::add_lvalue_reference_t<void>, void>,
                  "");
    template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
    __device__ T f(T x) {
      return x;
    }
    template <class T, std::enable_if_t<std::is_floating_point_v<T>, int> = 0>
    __device__ T f(T x) {
      return x * 2;
    }
    template <class T>
    __global__ void k(T* x) {
      if constexpr (std::is_same_v<T, float>)
        *x = f(*x);
      else
        *x = f(*x) + std::move(*x);
      std::true_type t;
      if (t) x[1] = std::integral_constant<int, 3>{};
    }
  )cpp";
  for (const char* head :
       {"#include <type_traits>", "#include <type_traits>\n#include <utility>\n#include <cuda/std/type_traits>"})
    compile_or_fail(*file, request_for(*file, head + code, "k<float>"));
}

TEST_CASE("a trait that the light <type_traits> lacks is found in the full one") {
  const auto file = find_nvrtc_or_skip();
  if (!file) return;
  const auto own = Nvrtc::load(file->path);
  REQUIRE(own.ok());
  const Request rare =
      request_for(*file,
                  "#include <type_traits>\nextern \"C\" __global__ void k(float* x) {\n"
                  "  static_assert(std::is_same_v<std::remove_all_extents_t<int[2][3]>, int>, \"\"); *x = 1; }\n",
                  "k");
  for (int i = 0; i < 2; ++i) {
    const Artifact artifact = (*own)->compile(rare);
    CHECK_MESSAGE(artifact.status == Status::ok, artifact.log);
  }
  const Artifact wrong = (*own)->compile(request_for(*file, "using T = std::no_such_trait<int>;\n", "k"));
  CHECK(wrong.status == Status::error);
  CHECK(contains(wrong.log, "kernel.cu(1)"));
}

TEST_CASE("a source in a file finds its neighbours by quotes") {
  const auto file = find_nvrtc_or_skip();
  if (!file) return;
  TempDir dir;
  write_file(dir / "src/near.h", "#include \"nearer.h\"\n");
  write_file(dir / "src/nearer.h", "#define NEAR 5\n");
  Request request =
      request_for(*file, "#include \"near.h\"\nextern \"C\" __global__ void k(float* x) { *x = NEAR; }\n", "k");
  request.spec.source_name = dir / "src/kernel.cu";
  compile_or_fail(*file, request);
}

TEST_CASE("arch: the suffix reaches the code, and an unknown one is told with those that are known") {
  const auto file = find_nvrtc_or_skip();
  if (!file) return;
  Request request = request_for(*file,
                                "extern \"C\" __global__ void k(float* x) {\n"
                                "#ifdef __CUDA_ARCH_FEAT_SM90_ALL\n  *x = 1;\n#else\n#error plain\n#endif\n}\n",
                                "k");
  request.spec.arch = "sm_90a";
  compile_or_fail(*file, request);
  request.spec.arch = "sm_90";
  CHECK(contains(nvrtc_of(*file).compile(request).log, "plain"));
  request.spec.arch = "sm_17";
  const Artifact unknown = nvrtc_of(*file).compile(request);
  CHECK(unknown.status == Status::error);
  CHECK(contains(unknown.log, "sm_90"));
  CHECK(contains(unknown.log, "sm_17"));
}

TEST_CASE("registers, shared memory, stack and spills") {
  const auto file = find_nvrtc_or_skip();
  if (!file) return;
  const std::string source =
      "template <int N> __global__ void k(float* x) {\n"
      "  __shared__ float s[300];\n  float a[N];\n"
      "  for (int i = 0; i < N; i++) a[i] = x[i * threadIdx.x];\n"
      "  s[threadIdx.x] = a[0];\n  __syncthreads();\n"
      "  for (int i = 0; i < N; i++) x[i] = a[N - 1 - i] * s[i];\n}\n"
      "extern \"C\" __global__ void small(float* x) { *x = 1; }\n";
  const Artifact free = compile_or_fail(*file, request_for(*file, source, "k<64>"));
  CHECK(free.static_smem_bytes == 1200);
  CHECK(free.spill_bytes == 0);
  CHECK(free.regs > 24);
  Request capped = request_for(*file, source, "k<64>");
  capped.spec.options = {"--maxrregcount=24"};
  const Artifact spilled = compile_or_fail(*file, capped);
  CHECK(spilled.regs <= 24);
  CHECK(spilled.spill_bytes > 0);
  CHECK(spilled.local_bytes > 0);
  CHECK(spilled.static_smem_bytes == 1200);
  const Artifact small = compile_or_fail(*file, request_for(*file, source, "small"));
  CHECK(small.static_smem_bytes == 0);
  CHECK(small.local_bytes == 0);
}

TEST_CASE("options: the author's own standard, definitions with spaces, unknown ones") {
  const auto file = find_nvrtc_or_skip();
  if (!file) return;
  Request request = request_for(
      *file, "extern \"C\" __global__ void k(float* x) { static_assert(__cplusplus == VERSION, \"\"); *x = 1; }\n",
      "k");
  request.spec.options = {"-DVERSION=201703L"};
  compile_or_fail(*file, request);
  for (const char* standard : {"--std=c++20", "-std=c++20"}) {
    request.spec.options = {"-DVERSION= 202002L ", standard};
    compile_or_fail(*file, request);
  }
  request.spec.options = {"--no-such-option"};
  const Artifact unknown = nvrtc_of(*file).compile(request);
  CHECK(unknown.status == Status::error);
  CHECK(contains(unknown.log, "no-such-option"));
}

TEST_CASE("strange sources: byte order mark, CRLF, bytes that are not UTF-8, nothing at all") {
  const auto file = find_nvrtc_or_skip();
  if (!file) return;
  const std::string code = "extern \"C\" __global__ void k(float* x) { *x = 1; }\r\n";
  compile_or_fail(*file, request_for(*file, "\xEF\xBB\xBF" + code, "k"));
  compile_or_fail(*file, request_for(*file, "// caf\xe9\r\n#include <cuda_fp16.h>\r\n" + code, "k"));
  CHECK(nvrtc_of(*file).compile(request_for(*file, "", "k")).status == Status::error);
}

TEST_CASE("a real cubin cut anywhere is found out") {
  const auto file = find_nvrtc_or_skip();
  if (!file) return;
  const Artifact artifact =
      compile_or_fail(*file, request_for(*file, "extern \"C\" __global__ void k(float* x) { *x = 1; }\n", "k"));
  for (size_t size = 0; size < artifact.cubin.size(); size += 37)
    CHECK_FALSE(compile::check_cubin(artifact.cubin.substr(0, size), "k").ok());
  CHECK_FALSE(compile::check_cubin(artifact.cubin, "other").ok());
}

TEST_CASE("of a header library's constants in a cubin only those go that no instruction reads") {
  const auto file = find_nvrtc_or_skip();
  if (!file) return;
  const std::string constants =
      "namespace NAME { namespace std {\n"
      "template <int N> struct count { static constexpr int value = count<N - 1>::value + 1; };\n"
      "template <> struct count<0> { static constexpr int value = 0; };\n} }\n"
      "__device__ int own = 5;\n";
  const auto compiled = [&](const std::string& name, const std::string& body) {
    std::string source = constants + "extern \"C\" __global__ void k(const int** p, int* x, int n) { " + body + " }";
    for (size_t at = 0; (at = source.find("NAME")) != std::string::npos;) source.replace(at, 4, name);
    return compile_or_fail(*file, request_for(*file, source, "k")).cubin;
  };
  const std::string cubin = compiled("cuda", "*x = NAME::std::count<150>::value;");
  if (!contains(cubin, ".rela.nv.constant4")) {
    MESSAGE("this NVRTC keeps no table of addresses: nothing to drop");
    return;
  }
  const std::string lean = gpu::without_unread_variables(cubin);
  REQUIRE(lean.size() == cubin.size());
  CHECK(compile::check_cubin(lean, "k").ok());
  CHECK(gpu::without_unread_variables(lean).empty());  // nothing is left to drop
  CHECK(contains(lean, "own"));
  // Another library's, a table that is read, and what is no cubin stay as they are.
  CHECK(gpu::without_unread_variables(compiled("mine", "*x = NAME::std::count<150>::value;")).empty());
  CHECK(gpu::without_unread_variables(
            compiled("cuda", "*p = n ? &NAME::std::count<150>::value : &NAME::std::count<149>::value;"))
            .empty());
  CHECK(gpu::without_unread_variables("").empty());
  for (size_t size = 0; size < cubin.size(); size += 97)
    CHECK(gpu::without_unread_variables(std::string_view(cubin).substr(0, size)).size() <= cubin.size());
}
