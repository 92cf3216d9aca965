// Precompiled headers: made once, used by all, never seen in a result.
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/files.hpp"
#include "compile/header_reuse.hpp"
#include "compile/nvrtc_support.hpp"
#include "pool/pool.hpp"
#include "support/support.hpp"

using namespace jitune;
using namespace jitune::test;
using namespace std::chrono_literals;
using compile::Artifact;
using compile::HeaderDirectory;
using compile::HeaderReuse;
using compile::Nvrtc;
using compile::NvrtcFile;
using compile::Request;
using compile::Status;
using Mode = compile::HeaderReuse::Plan::Mode;

namespace {

const char* const kSource =
    "#include <cuda_fp16.h>\n#include \"mine.h\"\n"
    "template <class T, int N> __global__ void k(T* x) {\n"
    "  __shared__ T s[BLOCK];\n  s[threadIdx.x] = mine(x[threadIdx.x]);\n  __syncthreads();\n"
    "#pragma unroll\n  for (int i = 0; i < N; ++i) x[threadIdx.x + i * BLOCK] = s[BLOCK - 1 - threadIdx.x] + "
    "T(i);\n}\n";

struct Tree {
  explicit Tree(const NvrtcFile& nvrtc) : file(nvrtc) {
    write_file(dir / "include/mine.h", "template <class T> __device__ T mine(T x) { return x * x; }\n");
  }
  Request request(int block, int n, const std::string& headers) const {
    Request request = request_for(file, kSource, "k<__half, " + std::to_string(n) + ">");
    request.spec.include_dirs = {dir / "include"};
    request.spec.defines = {{"BLOCK", std::to_string(block)}};
    request.header_directory = headers;
    return request;
  }
  NvrtcFile file;
  TempDir dir;
};

std::optional<NvrtcFile> pch_or_skip() {
  auto file = find_nvrtc_or_skip();
  if (!file) return std::nullopt;
  int major = 0, minor = 0;
  std::sscanf(file->version.c_str(), "%d.%d", &major, &minor);
  if (major > 12 || (major == 12 && minor >= 8)) return file;
  skip("nvrtc", "NVRTC " + file->version + " has no precompiled headers; 12.8 has");
  return std::nullopt;
}

std::unique_ptr<Nvrtc> load(const NvrtcFile& file) {
  auto loaded = Nvrtc::load(file.path);
  REQUIRE_MESSAGE(loaded.ok(), loaded.error());
  return *std::move(loaded);
}

Artifact ok(Artifact artifact) {
  REQUIRE_MESSAGE(artifact.status == Status::ok, artifact.log);
  return artifact;
}

void check_alike(const Artifact& a, const Artifact& b) {
  CHECK(a.cubin == b.cubin);
  CHECK(a.lowered_name == b.lowered_name);
  CHECK(a.regs == b.regs);
  CHECK(a.static_smem_bytes == b.static_smem_bytes);
  CHECK_MESSAGE(a.log == b.log, "[" << a.log << "] [" << b.log << "]");
}

int files_in(const std::string& dir, const std::string& extension) {
  return static_cast<int>(std::count_if(std::filesystem::directory_iterator(dir), {},
                                        [&](const auto& entry) { return entry.path().extension() == extension; }));
}

}  // namespace

TEST_CASE("the first makes, the others use, and what comes out is the same as without") {
  const auto file = pch_or_skip();
  if (!file) return;
  const Tree tree(*file);
  const auto headers = HeaderDirectory::make();
  REQUIRE(headers);
  const auto nvrtc = load(*file);
  const int blocks[] = {64, 128, 256, 128}, counts[] = {1, 2, 4, 8};
  for (int i = 0; i < 4; ++i) {
    const Artifact plain = ok(nvrtc->compile(tree.request(blocks[i], counts[i], "")));
    const Artifact with = ok(nvrtc->compile(tree.request(blocks[i], counts[i], headers->path())));
    CHECK(plain.headers == "plain");
    CHECK(with.headers == (i == 0 ? "made" : "used"));
    check_alike(plain, with);
  }
  CHECK(files_in(headers->path(), ".pch") == 1);
}

TEST_CASE("an option or a header that differs gets a precompiled header of its own; a register cap does not") {
  const auto file = pch_or_skip();
  if (!file) return;
  const Tree tree(*file);
  const auto headers = HeaderDirectory::make();
  REQUIRE(headers);
  const auto nvrtc = load(*file);
  const auto headers_of = [&](const Request& request) { return ok(nvrtc->compile(request)).headers; };
  Request request = tree.request(64, 1, headers->path());
  CHECK(headers_of(request) == "made");
  request.spec.options = {"--maxrregcount=32"};
  CHECK(headers_of(request) == "used");
  request.spec.options = {"-DOTHER=1"};
  CHECK(headers_of(request) == "made");
  request.spec.options = {"--use_fast_math"};
  CHECK(headers_of(request) == "made");
  request = tree.request(64, 1, headers->path());
  request.spec.headers = {"cuda_bf16.h"};
  CHECK(headers_of(request) == "made");
  request = tree.request(64, 1, headers->path());
  request.spec.arch = "sm_80";
  CHECK(headers_of(request) == "made");
  CHECK(files_in(headers->path(), ".pch") == 5);
}

TEST_CASE("errors are those of a plain compile, with the author's lines") {
  const auto file = pch_or_skip();
  if (!file) return;
  const Tree tree(*file);
  const auto headers = HeaderDirectory::make();
  REQUIRE(headers);
  const auto nvrtc = load(*file);
  for (int i = 0; i < 3; ++i) {
    Request request = tree.request(64, 1, headers->path());
    request.spec.source_text += "static_assert(BLOCK == 0, \"no such block\");\n";
    const Artifact with = nvrtc->compile(request);
    request.header_directory.clear();
    const Artifact plain = nvrtc->compile(request);
    CHECK(with.status == Status::error);
    CHECK(with.log == plain.log);
    CHECK(with.log.find("kernel.cu(10): error") != std::string::npos);
  }
}

TEST_CASE("any trouble with a precompiled header ends in a plain compile") {
  const auto file = pch_or_skip();
  if (!file) return;
  const Tree tree(*file);
  const auto headers = HeaderDirectory::make();
  REQUIRE(headers);
  const auto nvrtc = load(*file);
  const Artifact plain = ok(nvrtc->compile(tree.request(64, 2, "")));
  CHECK(ok(nvrtc->compile(tree.request(64, 2, headers->path()))).headers == "made");
  std::string path;
  for (const auto& entry : std::filesystem::directory_iterator(headers->path()))
    if (entry.path().extension() == ".pch") path = entry.path().string();
  const std::string good = *read_file(path);

  SUBCASE("cut short") {
    write_file(path, good.substr(0, good.size() / 2));
  }
  SUBCASE("empty") {
    write_file(path, "");
  }
  SUBCASE("something else") {
    write_file(path, std::string(100'000, 'x'));
  }
  for (int i = 0; i < 2; ++i) {
    const Artifact with = ok(nvrtc->compile(tree.request(64, 2, headers->path())));
    CHECK(with.headers != "used");
    check_alike(plain, with);
  }
}

TEST_CASE("a directory that is gone, a header stop within an include guard, no include at all") {
  const auto file = pch_or_skip();
  if (!file) return;
  const Tree tree(*file);
  const auto nvrtc = load(*file);
  check_alike(ok(nvrtc->compile(tree.request(64, 2, "/nonexistent/headers"))),
              ok(nvrtc->compile(tree.request(64, 2, ""))));
  const auto headers = HeaderDirectory::make();
  REQUIRE(headers);
  Request guarded = tree.request(64, 2, headers->path());
  guarded.spec.source_text = "#ifndef K_CU\n#define K_CU\n" + guarded.spec.source_text + "#endif\n";
  for (int i = 0; i < 2; ++i) check_alike(ok(nvrtc->compile(guarded)), ok(nvrtc->compile(tree.request(64, 2, ""))));
  Request bare = request_for(*file, "extern \"C\" __global__ void k(float* x) { *x = 1; }\n", "k");
  bare.header_directory = headers->path();
  CHECK(ok(nvrtc->compile(bare)).headers == "plain");
}

TEST_CASE("workers share one precompiled header") {
  const auto file = pch_or_skip();
  if (!file) return;
  const Tree tree(*file);
  const auto headers = HeaderDirectory::make();
  REQUIRE(headers);
  pool::PoolOptions options;
  options.program.path = std::filesystem::absolute(JITUNE_BINARY_DIR "/bin/jitune-worker").string();
  options.program.args = {"compile", "--nvrtc=" + file->path};
  options.program.environment = pool::worker_environment(false);
  std::vector<std::string> seen;
  std::vector<std::string> cubins;
  for (int i = 0; i < 3; ++i) {  // one after the other, each in a process of its own
    pool::Pool pool(options);
    const pool::Reply reply = pool.call(compile::to_json(tree.request(64, 2, headers->path())), 60s);
    const auto artifact = compile::artifact_from_json(reply.message);
    REQUIRE_MESSAGE(artifact.ok(), artifact.error());
    seen.push_back(ok(*artifact).headers);
    cubins.push_back(artifact->cubin);
  }
  MESSAGE("workers' headers: " << seen[0] << ", " << seen[1] << ", " << seen[2]);
  CHECK(seen[0] == "made");
  // Where the system forbids processes without address randomisation, later ones can't use it and make their own.
  for (size_t i = 1; i < 3; ++i) {
    CHECK((seen[i] == "used" || seen[i] == "made"));
    CHECK(cubins[i] == cubins[0]);
  }
}

TEST_CASE("who makes it, who waits for nothing, and what is left after a death") {
  const auto headers = HeaderDirectory::make();
  REQUIRE(headers);
  HeaderReuse first, second;
  const auto make = first.plan(headers->path(), "key");
  CHECK(make.mode == Mode::make);
  CHECK(second.plan(headers->path(), "key").mode == Mode::plain);
  CHECK(second.plan(headers->path(), "other").mode == Mode::make);
  // Who has compiled plainly once waits for the file, a bounded time and once.
  const auto begin = std::chrono::steady_clock::now();
  CHECK(second.plan(headers->path(), "key").mode == Mode::plain);
  CHECK(std::chrono::steady_clock::now() - begin > 1s);
  const auto again = std::chrono::steady_clock::now();
  CHECK(second.plan(headers->path(), "key").mode == Mode::plain);
  CHECK(std::chrono::steady_clock::now() - again < 1s);
  write_file(make.path, "header");
  HeaderReuse::settle(make, true);
  const auto use = second.plan(headers->path(), "key");
  CHECK(use.mode == Mode::use);
  CHECK(*read_file(use.path) == "header");
  second.refuse(use);
  CHECK(second.plan(headers->path(), "key").mode == Mode::plain);
  CHECK(first.plan(headers->path(), "key").mode == Mode::use);
  // Made in vain: nobody tries again.
  HeaderReuse::settle({Mode::make, headers->path() + "/other.new.pch"}, false);
  CHECK(first.plan(headers->path(), "other").mode == Mode::plain);
  for (int i = 0; i < 20; ++i) (void)first.plan(headers->path(), "key" + std::to_string(i));
  CHECK(first.plan(headers->path(), "one more").mode == Mode::plain);
}

TEST_CASE("a host's directory is private, goes with it, and is cleared away when the host was killed") {
  TempDir temporary;
  const ScopedEnv where("TMPDIR", temporary.path().c_str());
  std::string path;
  {
    const auto headers = HeaderDirectory::make();
    REQUIRE(headers);
    path = headers->path();
    CHECK(path.rfind(temporary.path() + "/", 0) == 0);
    CHECK(std::filesystem::status(path).permissions() == std::filesystem::perms::owner_all);
    write_file(path + "/x.pch", "x");
    const auto other = HeaderDirectory::make();  // leaves that of a living host alone
    CHECK(std::filesystem::exists(path + "/x.pch"));
  }
  CHECK_FALSE(std::filesystem::exists(path));
  std::filesystem::create_directory(temporary / "jitune-headers-dead");
  write_file(temporary / "jitune-headers-dead/x.pch", "x");
  std::filesystem::create_directory(temporary / "else");
  const auto headers = HeaderDirectory::make();
  CHECK_FALSE(std::filesystem::exists(temporary / "jitune-headers-dead"));
  CHECK(std::filesystem::exists(temporary / "else"));
  const std::string gone = temporary / "gone";
  const ScopedEnv nowhere("TMPDIR", gone.c_str());
  CHECK_FALSE(HeaderDirectory::make());
}
