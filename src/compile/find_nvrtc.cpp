#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>

#include "base/fd.hpp"
#include "compile/nvrtc.hpp"

namespace jitune::compile {
namespace {

namespace fs = std::filesystem;

/// `13.0.88` as numbers, for sorting. Words that are no numbers count as zero.
std::array<int, 3> numbers(const std::string& version) {
  std::array<int, 3> out{};
  std::sscanf(version.c_str(), "%d.%d.%d", &out[0], &out[1], &out[2]);
  return out;
}

std::vector<fs::path> sorted_entries(const fs::path& dir) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator at(dir, error), end; !error && at != end; at.increment(error))
    entries.push_back(at->path());
  std::sort(entries.begin(), entries.end());
  return entries;
}

bool read_at(int fd, void* to, size_t size, uint64_t offset) {
  return ::pread(fd, to, size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size);
}

/// The build number within bytes [begin, end) of a library: every NVRTC carries the line that its tools print,
/// "Cuda compilation tools, release 13.0, V13.0.88".
std::string scan_build(int fd, uint64_t begin, uint64_t end) {
  constexpr std::string_view kMark = "Cuda compilation tools, release ";
  constexpr size_t kChunk = 1u << 20, kOverlap = 96;
  std::string chunk;
  for (uint64_t at = begin; at < end; at += kChunk) {
    chunk.resize(static_cast<size_t>(std::min<uint64_t>(kChunk + kOverlap, end - at)));
    if (!read_at(fd, chunk.data(), chunk.size(), at)) return "";
    for (size_t found = 0; (found = chunk.find(kMark, found)) != std::string::npos; ++found) {
      int major = 0, minor = 0, v_major = 0, v_minor = 0, build = 0;
      if (std::sscanf(chunk.c_str() + found + kMark.size(), "%d.%d, V%d.%d.%d", &major, &minor, &v_major, &v_minor,
                      &build) == 5 &&
          major == v_major && minor == v_minor)
        return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(build);
    }
  }
  return "";
}

/// Where .rodata lies in the file: the string is there, and it is a tenth of the file.
std::optional<std::pair<uint64_t, uint64_t>> find_rodata(int fd, uint64_t size) {
  Elf64_Ehdr header{};
  if (!read_at(fd, &header, sizeof header, 0) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shnum == 0 ||
      header.e_shstrndx >= header.e_shnum)
    return std::nullopt;
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  if (!read_at(fd, sections.data(), sections.size() * sizeof(Elf64_Shdr), header.e_shoff)) return std::nullopt;
  const Elf64_Shdr& names_section = sections[header.e_shstrndx];
  if (names_section.sh_size > (1u << 20)) return std::nullopt;
  std::string names(static_cast<size_t>(names_section.sh_size), '\0');
  if (!read_at(fd, names.data(), names.size(), names_section.sh_offset)) return std::nullopt;
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_name >= names.size() || std::strcmp(names.c_str() + section.sh_name, ".rodata") != 0) continue;
    if (section.sh_offset <= size && section.sh_size <= size - section.sh_offset)
      return std::pair{section.sh_offset, section.sh_offset + section.sh_size};
  }
  return std::nullopt;
}

std::string read_build(const std::string& path, uint64_t size) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return "";
  if (const auto rodata = find_rodata(fd.get(), size)) {
    if (std::string build = scan_build(fd.get(), rodata->first, rodata->second); !build.empty()) return build;
  }
  return scan_build(fd.get(), 0, size);
}

/// Fills version and build from the bytes, else from names: `libnvrtc.so.12.4.127`, `libnvrtc-builtins.so.13.0` beside
/// it.
void read_version(NvrtcFile& file) {
  file.build = read_build(file.path, static_cast<uint64_t>(file.size_bytes));
  if (file.build.empty()) {
    constexpr std::string_view kName = "libnvrtc.so.", kBuiltins = "libnvrtc-builtins.so.";
    const fs::path path(file.path);
    std::string name = path.filename().string();
    if (name.starts_with(kName)) file.build = name.substr(kName.size());
    for (const fs::path& entry : sorted_entries(path.parent_path())) {
      name = entry.filename().string();
      if (name.starts_with(kBuiltins) && name.size() - kBuiltins.size() > file.build.size())
        file.build = name.substr(kBuiltins.size());
    }
  }
  const size_t second = file.build.find('.', std::min(file.build.find('.'), file.build.size() - 1) + 1);
  file.version = file.build.substr(0, second);
}

/// Headers that go with a library in `dir`: the toolkit's include beside it, or the folders of the older wheels.
std::vector<std::string> include_dirs(const fs::path& dir) {
  std::vector<std::string> dirs;
  const auto add = [&](const fs::path& candidate) {
    std::error_code error;
    const fs::path real = fs::canonical(candidate, error);
    if (error || !fs::is_directory(real, error)) return;
    if (std::find(dirs.begin(), dirs.end(), real.string()) == dirs.end()) dirs.push_back(real.string());
  };
  const auto add_toolkit = [&](const fs::path& candidate) {
    add(candidate);
    add(candidate / "cccl");
  };
  std::error_code error;
  if (dir.string().starts_with("/usr/lib")) {
    // Distributions put CUDA's headers among the host's; only there, and only when they did.
    if (fs::exists("/usr/lib/cuda/include/cuda_fp16.h", error)) {
      add_toolkit("/usr/lib/cuda/include");
    } else if (fs::exists("/usr/include/cuda_fp16.h", error)) {
      add_toolkit("/usr/include");
    }
    return dirs;
  }
  add_toolkit(dir / ".." / "include");
  add_toolkit(dir / ".." / ".." / "cuda_runtime" / "include");
  add_toolkit(dir / ".." / ".." / "cuda_cccl" / "include");
  add_toolkit(dir / ".." / ".." / "cuda_nvcc" / "include");  // crt/mma.h and the like
  return dirs;
}

/// Gathers libraries from folders, each file once.
class Finder {
 public:
  explicit Finder(ToolchainMemo* memo) : memo_(memo) {}

  void look_at_file(const std::string& path) {
    std::error_code error;
    const fs::path real = fs::canonical(path, error);
    if (error) {
      search_.tried.push_back(path + ": " + error.message());
      return;
    }
    if (!seen_.insert(real.string()).second) return;
    struct stat info {};
    if (::stat(real.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) {
      search_.tried.push_back(path + ": not a file");
      return;
    }
    NvrtcFile file;
    file.path = real.string();
    file.device = static_cast<int64_t>(info.st_dev);
    file.inode = static_cast<int64_t>(info.st_ino);
    file.size_bytes = info.st_size;
    file.mtime_ns = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
    if (memo_ == nullptr || !memo_->recall(file)) {
      read_version(file);
      if (memo_ != nullptr) memo_->remember(file);
    }
    file.include_dirs = include_dirs(real.parent_path());
    search_.tried.push_back(path + ": NVRTC " + file.build);
    search_.found.push_back(std::move(file));
  }

  void look_in(const fs::path& dir) {
    std::error_code error;
    if (!looked_.insert(dir.lexically_normal().string()).second) return;
    if (!fs::is_directory(dir, error)) {
      search_.tried.push_back(dir.string() + ": no such folder");
      return;
    }
    bool any = false;
    for (const fs::path& entry : sorted_entries(dir)) {
      if (!entry.filename().string().starts_with("libnvrtc.so")) continue;
      any = true;
      look_at_file(entry.string());
    }
    if (!any) search_.tried.push_back(dir.string() + ": no libnvrtc.so*");
  }

  /// The places within a toolkit's root.
  void look_below(const fs::path& root) {
    for (const char* dir : {"lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"}) {
      std::error_code error;
      if (fs::is_directory(root / dir, error)) look_in(root / dir);
    }
    std::error_code error;
    if (!fs::is_directory(root / "lib64", error) && !fs::is_directory(root / "lib", error))
      search_.tried.push_back(root.string() + ": neither lib64 nor lib there");
  }

  NvrtcSearch finish() {
    std::stable_sort(search_.found.begin(), search_.found.end(),
                     [](const auto& a, const auto& b) { return numbers(a.build) > numbers(b.build); });
    return std::move(search_);
  }

  NvrtcSearch& search() { return search_; }

 private:
  ToolchainMemo* memo_;
  NvrtcSearch search_;
  std::set<std::string> seen_, looked_;
};

/// NVIDIA's wheels below `root`: unpacked with lib and include at the top, as they are packed (nvidia/cu13,
/// nvidia/cuda_nvrtc), or within the site-packages of a Python environment.
void look_in_wheels(Finder& finder, const fs::path& root) {
  finder.look_below(root);
  std::vector<fs::path> packages{root};
  for (const char* lib : {"lib", "lib64"})
    for (const fs::path& python : sorted_entries(root / lib))
      if (python.filename().string().starts_with("python")) packages.push_back(python / "site-packages");
  for (const fs::path& package : packages)
    for (const fs::path& entry : sorted_entries(package / "nvidia")) {
      std::error_code error;
      if (fs::is_directory(entry / "lib", error)) finder.look_in(entry / "lib");
    }
}

}  // namespace

NvrtcSearch find_nvrtc(const NvrtcSearchOptions& options, ToolchainMemo* memo) {
  Finder finder(memo);
  if (!options.explicit_path.empty()) {
    std::error_code error;
    if (fs::is_directory(options.explicit_path, error)) {
      finder.look_in(options.explicit_path);
      look_in_wheels(finder, options.explicit_path);
    } else {
      finder.look_at_file(options.explicit_path);
    }
    NvrtcSearch search = finder.finish();
    if (search.found.size() > 1) search.found.resize(1);
    return search;
  }
  for (const std::string& root : {options.cuda_home, options.cuda_path})
    if (!root.empty()) finder.look_below(root);
  for (const fs::path& entry : sorted_entries("/usr/local"))
    if (entry.filename().string().starts_with("cuda")) finder.look_below(entry);
  for (const char* dir : {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/opt/cuda/lib64"})
    finder.look_in(dir);
  for (const std::string& root : options.extra_roots) look_in_wheels(finder, root);
  return finder.finish();
}

std::string explain_missing(const NvrtcSearch& search) {
  std::string text = "NVRTC (libnvrtc.so) was not found. Looked at:\n";
  for (const std::string& place : search.tried) text += "  " + place + "\n";
  return text +
         "Install the CUDA Toolkit 12 or 13 or NVIDIA's wheels (nvidia-cuda-nvrtc, nvidia-cuda-runtime, "
         "nvidia-cuda-cccl), or name the library by Options::nvrtc or JITUNE_NVRTC.";
}

}  // namespace jitune::compile
