#include <elf.h>

#include <cstring>
#include <random>

#include "compile/artifact.hpp"
#include "compile/ptxas.hpp"
#include "pool/fake_cubin.hpp"
#include "support/support.hpp"
#include "wire/frame.hpp"

using namespace jitune;
using compile::Artifact;
using compile::Request;
using compile::Status;

TEST_CASE("status words are those of the trial table") {
  for (const Status status : {Status::ok, Status::error, Status::timeout, Status::crash})
    CHECK(compile::parse_status(compile::to_string(status)) == status);
  CHECK(std::string(compile::to_string(Status::error)) == "error");
  CHECK(std::string(compile::to_string(Status::timeout)) == "timeout");
  CHECK(std::string(compile::to_string(Status::crash)) == "crash");
  CHECK_FALSE(compile::parse_status("nonsense"));
}

TEST_CASE("a request survives the wire") {
  Request request;
  request.spec.source_text = std::string("a\0b\xff", 4);
  request.spec.source_name = "/x/y.cu";
  request.spec.include_dirs = {"/a b", "/c"};
  request.spec.entry = "ns::k<__half, 128>";
  request.spec.is_template = true;
  request.spec.defines = {{"A", "1"}, {"B", "x + 1"}};
  request.spec.defines_before_includes = true;
  request.spec.headers = {"cuda_fp16.h"};
  request.spec.options = {"--maxrregcount=64", "-DX= a b"};
  request.spec.arch = "sm_90a";
  request.nvrtc_path = "/lib/libnvrtc.so.13";
  request.toolkit_include_dirs = {"/t", "/t/cccl"};
  const auto message = wire::decode(wire::encode(compile::to_json(request)).substr(wire::kHeaderBytes));
  REQUIRE(message.ok());
  const auto back = compile::request_from_json(*message);
  REQUIRE(back.ok());
  CHECK(compile::to_json(*back) == compile::to_json(request));
  CHECK(back->spec.source_text == request.spec.source_text);
  CHECK(back->spec.defines == request.spec.defines);
  CHECK(back->spec.is_template);
  CHECK(back->spec.defines_before_includes);
}

TEST_CASE("broken requests fail by name, never throw") {
  Request request;
  request.spec.entry = "k";
  request.spec.arch = "sm_90";
  const Json good = compile::to_json(request);
  CHECK(compile::request_from_json(good).ok());
  CHECK_FALSE(compile::request_from_json(Json::array()).ok());
  CHECK_FALSE(compile::request_from_json(Json()).ok());
  for (const char* name : {"entry", "arch", "include_dirs", "defines", "options", "headers", "toolkit_include_dirs"}) {
    Json broken = good;
    broken.erase(name);
    const auto result = compile::request_from_json(broken);
    REQUIRE_FALSE(result.ok());
    CHECK(result.error().find(name) != std::string::npos);
  }
  Json broken = good;
  broken["options"] = {1, 2};
  CHECK_FALSE(compile::request_from_json(broken).ok());
  broken = good;
  broken["defines"] = {{"A", 1}};
  CHECK_FALSE(compile::request_from_json(broken).ok());
}

TEST_CASE("an artifact survives the wire, and a damaged one is found out") {
  Artifact artifact;
  artifact.status = Status::ok;
  artifact.lowered_name = "_Z1kv";
  artifact.cubin = test::fake_cubin(artifact.lowered_name);
  artifact.regs = 40;
  artifact.static_smem_bytes = 1024;
  artifact.local_bytes = 16;
  artifact.spill_bytes = 8;
  artifact.compile_ms = 12.5;
  artifact.log = "a warning";
  const Json json = compile::to_json(artifact);
  const auto back = compile::artifact_from_json(json);
  REQUIRE(back.ok());
  CHECK(compile::to_json(*back) == json);
  CHECK(back->cubin == artifact.cubin);

  Json damaged = json;
  std::string cubin = artifact.cubin;
  cubin[cubin.size() / 2] ^= 1;
  damaged["cubin"] = wire::to_binary(cubin);
  REQUIRE_FALSE(compile::artifact_from_json(damaged).ok());
  CHECK(compile::artifact_from_json(damaged).error().find("damaged") != std::string::npos);
  damaged = json;
  damaged["lowered_name"] = "_Z1lv";
  CHECK_FALSE(compile::artifact_from_json(damaged).ok());
  damaged = json;
  damaged.erase("status");
  CHECK_FALSE(compile::artifact_from_json(damaged).ok());

  Artifact failed;
  failed.log = "kernel.cu(1): error";
  const auto failed_back = compile::artifact_from_json(compile::to_json(failed));
  REQUIRE(failed_back.ok());
  CHECK(failed_back->status == Status::error);
  CHECK(failed_back->log == failed.log);
}

TEST_CASE("a long log keeps head and tail and says how much is cut") {
  CHECK(compile::shorten_log("short") == "short");
  const std::string exact(16384, 'x');
  CHECK(compile::shorten_log(exact) == exact);
  const std::string shortened = compile::shorten_log("head" + std::string(1 << 20, 'x') + "tail");
  CHECK(shortened.size() <= 16384);
  CHECK(shortened.rfind("head", 0) == 0);
  CHECK(shortened.substr(shortened.size() - 4) == "tail");
  CHECK(shortened.find("[... 1032584 bytes cut ...]") != std::string::npos);
  CHECK(compile::shorten_log(shortened) == shortened);
}

TEST_CASE("check_cubin takes a CUDA ELF with the symbol and nothing else") {
  const std::string good = test::fake_cubin("kernel_a");
  CHECK(compile::check_cubin(good).ok());
  CHECK(compile::check_cubin(good, "kernel_a").ok());
  for (const char* other : {"kernel_", "kernel_ab", "ernel_a"}) {
    const auto result = compile::check_cubin(good, other);
    REQUIRE_FALSE(result.ok());
    CHECK(result.error().find(other) != std::string::npos);
  }
  for (size_t size = 0; size < good.size(); ++size) CHECK_FALSE(compile::check_cubin(good.substr(0, size)).ok());
  std::string x86 = good;
  x86[offsetof(Elf64_Ehdr, e_machine)] = EM_X86_64;
  CHECK(compile::check_cubin(x86).error().find("machine 62") != std::string::npos);
  CHECK(compile::check_cubin("").error().find("empty") != std::string::npos);
  CHECK(compile::check_cubin(std::string((64 << 20) + 1, 'x')).error().find("64 MiB") != std::string::npos);
}

TEST_CASE("check_cubin survives any damage") {
  const std::string good = test::fake_cubin("kernel_a");
  std::mt19937_64 random(5);
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = good;
    for (int i = 0; i < 4; ++i) damaged[random() % damaged.size()] = static_cast<char>(random());
    (void)compile::check_cubin(damaged, "kernel_a").ok();
  }
}

TEST_CASE("ptxas's words about one kernel among several, in two spellings") {
  const std::string log =
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'other' for 'sm_90'\n"
      "ptxas info    : Function properties for other\n"
      "ptxas         .     8 bytes stack frame, 1 bytes spill stores, 2 bytes spill loads\n"
      "ptxas info    : Used 99 registers, used 1 barriers, 8 bytes cumulative stack size, 4 bytes smem\n"
      "kernel.cu(3): warning #177-D: variable \"x\" was declared but never referenced\n"
      "ptxas info    : Compiling entry function 'mine' for 'sm_90'\n"
      "ptxas info    : Function properties for helper\n"
      "ptxas         .     1 bytes stack frame, 1 bytes spill stores, 1 bytes spill loads\n"
      "ptxas info    : Function properties for mine\n"
      "ptxas         .     304 bytes stack frame, 328 bytes spill stores, 336 bytes spill loads\n"
      "ptxas info    : Used 24 registers, used 1 barriers, 304 bytes cumulative stack size, 1024 bytes smem\n"
      "ptxas info    : Compile time = 46.535 ms\n"
      "ptxas warning : something\n";
  const auto facts = compile::read_ptxas_facts(log, "mine");
  CHECK(facts.found);
  CHECK(facts.regs == 24);
  CHECK(facts.static_smem_bytes == 1024);
  CHECK(facts.stack_bytes == 304);
  CHECK(facts.spill_store_bytes == 328);
  CHECK(facts.spill_load_bytes == 336);
  CHECK(compile::read_ptxas_facts(log, "other").regs == 99);
  CHECK_FALSE(compile::read_ptxas_facts(log, "none").found);
  CHECK(compile::without_ptxas_info(log) ==
        "kernel.cu(3): warning #177-D: variable \"x\" was declared but never referenced\n"
        "ptxas warning : something\n");

  const auto older = compile::read_ptxas_facts(
      "ptxas info    : Compiling entry function 'k' for 'sm_80'\n"
      "ptxas info    : Function properties for k\n"
      "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 8 registers, 352 bytes cmem[0]\n",
      "k");
  CHECK(older.regs == 8);
  CHECK(older.static_smem_bytes == 0);
}
