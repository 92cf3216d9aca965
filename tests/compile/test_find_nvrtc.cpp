#include <filesystem>
#include <map>

#include "compile/nvrtc.hpp"
#include "compile/std_headers.hpp"
#include "support/support.hpp"

using namespace jitune;
using namespace jitune::test;
using compile::find_nvrtc;
using compile::NvrtcFile;

namespace fs = std::filesystem;

namespace {

/// A file that tells its build as an NVRTC does, somewhere within other bytes.
std::string fake_library(const std::string& release, const std::string& build, size_t before = 1000) {
  return std::string(before, '\x7f') + "Cuda compilation tools, release " + release + ", V" + build +
         std::string(500, '\0');
}

class Memo : public compile::ToolchainMemo {
 public:
  bool recall(NvrtcFile& file) override {
    ++recalls;
    const auto at = known.find({file.path, file.size_bytes, file.mtime_ns});
    if (at == known.end()) return false;
    file.version = at->second.version;
    file.build = at->second.build;
    return true;
  }
  void remember(const NvrtcFile& file) override { known[{file.path, file.size_bytes, file.mtime_ns}] = file; }

  int recalls = 0;
  std::map<std::tuple<std::string, int64_t, int64_t>, NvrtcFile> known;
};

std::string real(const std::string& path) {
  return fs::canonical(path).string();
}

/// Only what lies below the given roots: this machine's own toolkits are not the test's business.
std::vector<NvrtcFile> found_below(const compile::NvrtcSearch& search, const std::string& root) {
  std::vector<NvrtcFile> list;
  for (const NvrtcFile& file : search.found)
    if (file.path.rfind(real(root), 0) == 0) list.push_back(file);
  return list;
}

}  // namespace

TEST_CASE("a toolkit by CUDA_HOME: links resolved, one entry a file, build from the bytes") {
  TempDir dir;
  write_file(dir / "tk/targets/x86_64-linux/lib/libnvrtc.so.12.4.127",
             fake_library("12.4", "12.4.127", (1u << 20) - 20));
  write_file(dir / "tk/targets/x86_64-linux/lib/libnvrtc-builtins.so.12.4", "x");
  write_file(dir / "tk/targets/x86_64-linux/include/cuda_fp16.h", "");
  fs::create_directories(dir / "tk/targets/x86_64-linux/include/cccl");
  fs::create_symlink("libnvrtc.so.12.4.127", dir / "tk/targets/x86_64-linux/lib/libnvrtc.so.12");
  fs::create_symlink("libnvrtc.so.12", dir / "tk/targets/x86_64-linux/lib/libnvrtc.so");
  fs::create_symlink("targets/x86_64-linux/lib", dir / "tk/lib64");
  const auto search =
      find_nvrtc({.explicit_path = "", .cuda_home = dir / "tk", .cuda_path = dir / "tk", .extra_roots = {}});
  const auto found = found_below(search, dir.path());
  REQUIRE(found.size() == 1);
  CHECK(found[0].path == real(dir / "tk/targets/x86_64-linux/lib/libnvrtc.so.12.4.127"));
  CHECK(found[0].version == "12.4");
  CHECK(found[0].build == "12.4.127");
  CHECK(found[0].size_bytes > 1 << 20);
  CHECK(found[0].inode != 0);
  CHECK(found[0].mtime_ns != 0);
  const std::string include = real(dir / "tk/targets/x86_64-linux/include");
  CHECK(found[0].include_dirs == std::vector<std::string>{include, include + "/cccl"});
}

TEST_CASE("newest first; without a build number the names must do") {
  TempDir dir;
  write_file(dir / "a/lib/libnvrtc.so.12", fake_library("12.9", "12.9.86"));
  write_file(dir / "b/lib64/libnvrtc.so.13", fake_library("13.10", "13.10.2"));
  write_file(dir / "c/lib64/libnvrtc.so.11.8.89", "no such string");
  write_file(dir / "d/lib/libnvrtc.so.13", "no such string");
  write_file(dir / "d/lib/libnvrtc-builtins.so.13.2", "");
  write_file(dir / "e/lib/libnvrtc.so.13", fake_library("13.2", "13.9.1"));  // does not agree with itself
  write_file(dir / "a/lib/libnvrtc-builtins.so.12.9", "");
  write_file(dir / "a/lib/libnvrtc_static.a", "");
  const auto search = find_nvrtc({.explicit_path = "",
                                  .cuda_home = "",
                                  .cuda_path = "",
                                  .extra_roots = {dir / "a", dir / "b", dir / "c", dir / "d", dir / "e"}});
  const auto found = found_below(search, dir.path());
  REQUIRE(found.size() == 5);
  CHECK(found[0].build == "13.10.2");
  CHECK(found[1].build == "13.2");
  CHECK(found[1].version == "13.2");
  CHECK(found[2].build == "13");
  CHECK(found[3].build == "12.9.86");
  CHECK(found[4].build == "11.8.89");
  CHECK(found[4].version == "11.8");
}

TEST_CASE("NVIDIA's wheels: unpacked as they are, within a Python environment, and the older layout") {
  TempDir dir;
  write_file(dir / "raw/nvidia/cu13/lib/libnvrtc.so.13", fake_library("13.5", "13.5.37"));
  write_file(dir / "raw/nvidia/cu13/include/cccl/cuda/std/cstdint", "");
  const std::string packages = dir / "env/lib/python3.11/site-packages/nvidia";
  write_file(packages + "/cuda_nvrtc/lib/libnvrtc.so.12", fake_library("12.6", "12.6.77"));
  write_file(packages + "/cuda_nvrtc/include/nvrtc.h", "");
  write_file(packages + "/cuda_runtime/include/cuda_fp16.h", "");
  write_file(packages + "/cuda_cccl/include/cuda/std/cstdint", "");
  const auto search = find_nvrtc({.explicit_path = "",
                                  .cuda_home = "",
                                  .cuda_path = "",
                                  .extra_roots = {dir / "raw", dir / "env", dir / "nothing"}});
  const auto found = found_below(search, dir.path());
  REQUIRE(found.size() == 2);
  CHECK(found[0].build == "13.5.37");
  CHECK(found[0].include_dirs ==
        std::vector<std::string>{real(dir / "raw/nvidia/cu13/include"), real(dir / "raw/nvidia/cu13/include/cccl")});
  CHECK(found[1].build == "12.6.77");
  CHECK(found[1].include_dirs == std::vector<std::string>{real(packages + "/cuda_nvrtc/include"),
                                                          real(packages + "/cuda_runtime/include"),
                                                          real(packages + "/cuda_cccl/include")});
}

TEST_CASE("an explicit choice is the only one, a file or a folder") {
  TempDir dir;
  write_file(dir / "a/lib/libnvrtc.so.12", fake_library("12.9", "12.9.86"));
  write_file(dir / "b/lib/libnvrtc.so.13", fake_library("13.0", "13.0.88"));
  const auto search_for = [&](const std::string& path) {
    return find_nvrtc({.explicit_path = path, .cuda_home = dir / "b", .cuda_path = "", .extra_roots = {dir / "b"}});
  };
  for (const char* path : {"a/lib/libnvrtc.so.12", "a/lib", "a"}) {
    const auto search = search_for(dir / path);
    REQUIRE(search.found.size() == 1);
    CHECK(search.found[0].build == "12.9.86");
  }
  const auto none = search_for(dir / "missing.so");
  CHECK(none.found.empty());
  const std::string text = compile::explain_missing(none);
  CHECK(text.find(dir / "missing.so") != std::string::npos);
  CHECK(text.find("No such file") != std::string::npos);
  CHECK(text.find("JITUNE_NVRTC") != std::string::npos);
  CHECK(text.find("nvidia-cuda-nvrtc") != std::string::npos);
}

TEST_CASE("a memo saves reading the bytes as long as the file is the same") {
  TempDir dir;
  write_file(dir / "tk/lib/libnvrtc.so.13", fake_library("13.0", "13.0.88"));
  const compile::NvrtcSearchOptions options{
      .explicit_path = dir / "tk/lib/libnvrtc.so.13", .cuda_home = "", .cuda_path = "", .extra_roots = {}};
  Memo memo;
  CHECK(find_nvrtc(options, &memo).found.at(0).build == "13.0.88");
  REQUIRE(memo.known.size() == 1);
  memo.known.begin()->second.build = "from the memo";
  CHECK(find_nvrtc(options, &memo).found.at(0).build == "from the memo");
  write_file(dir / "tk/lib/libnvrtc.so.13", fake_library("13.1", "13.1.5", 2000));
  CHECK(find_nvrtc(options, &memo).found.at(0).build == "13.1.5");
}

TEST_CASE("stand-ins for standard headers give way to the author's own") {
  TempDir dir;
  write_file(dir / "toolkit/cuda/std/cstdint", "");
  write_file(dir / "toolkit/cuda/std/limits", "");
  write_file(dir / "mine/limits", "");
  const auto names = [](const std::vector<compile::MemoryHeader>& headers) {
    std::map<std::string, std::string> map;
    for (const auto& header : headers) map[header.name] = header.text;
    return map;
  };
  const auto all = names(compile::std_headers({}, {dir / "toolkit"}, false));
  CHECK(all.count("cstdint") == 1);
  CHECK(all.count("stdint.h") == 1);
  CHECK(all.count("limits") == 1);
  CHECK(all.count("tuple") == 0);  // this toolkit has no counterpart
  CHECK(all.at("stdint.h").find("<cuda/std/cstdint>") != std::string::npos);
  CHECK(all.count("type_traits") == 0);
  CHECK(names(compile::std_headers({}, {}, true)).count("type_traits") == 1);  // the light one needs no toolkit
  write_file(dir / "mine/type_traits", "");
  CHECK(names(compile::std_headers({dir / "mine"}, {}, true)).count("type_traits") == 0);
  CHECK(names(compile::std_headers({dir / "mine"}, {dir / "toolkit"}, false)).count("limits") == 0);
}
