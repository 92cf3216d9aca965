#include <dirent.h>
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

/// Names in `dir` that start with `prefix`, sorted. Library folders hold thousands of others: to make paths of them all
/// took a warm process longer than anything else.
std::vector<std::string> sorted_names(const fs::path& dir, std::string_view prefix) {
  std::vector<std::string> names;
  DIR* open = ::opendir(dir.c_str());
  if (open == nullptr) return names;
  while (const dirent* entry = ::readdir(open))
    if (std::string_view(entry->d_name).starts_with(prefix) && entry->d_name[0] != '.')
      names.emplace_back(entry->d_name);
  ::closedir(open);
  std::sort(names.begin(), names.end());
  return names;
}

bool is_directory(const struct stat& info) {
  return S_ISDIR(info.st_mode);
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
    for (const std::string& entry : sorted_names(path.parent_path(), kBuiltins))
      if (entry.size() - kBuiltins.size() > file.build.size()) file.build = entry.substr(kBuiltins.size());
  }
  const size_t second = file.build.find('.', std::min(file.build.find('.'), file.build.size() - 1) + 1);
  file.version = file.build.substr(0, second);
}

/// Headers that go with a library in `dir`, a path without links: the toolkit's include beside it, or the folders of
/// the older wheels.
std::vector<std::string> include_dirs(const fs::path& dir) {
  std::vector<std::string> dirs;
  const auto add = [&](const fs::path& candidate) {
    const std::string path = candidate.lexically_normal().string();
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0 || !is_directory(info)) return;
    if (std::find(dirs.begin(), dirs.end(), path) == dirs.end()) dirs.push_back(path);
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
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) {
      search_.tried.push_back(path + ": " + std::strerror(errno));
      return;
    }
    if (!S_ISREG(info.st_mode)) {
      search_.tried.push_back(path + ": not a file");
      return;
    }
    if (!seen_.emplace(info.st_dev, info.st_ino).second) return;
    std::error_code error;
    const fs::path real = fs::canonical(path, error);
    if (error) {
      search_.tried.push_back(path + ": " + error.message());
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

  /// False when there is no such folder. The links of a toolkit lead to one folder by several names: it is read once.
  bool look_in(const fs::path& dir, bool must_exist = true) {
    const Folder folder = enter(dir, must_exist);
    if (folder != Folder::fresh) return folder != Folder::absent;
    const auto names = sorted_names(dir, "libnvrtc.so");
    for (const std::string& name : names) look_at_file((dir / name).string());
    if (names.empty()) search_.tried.push_back(dir.string() + ": no libnvrtc.so*");
    return true;
  }

  /// As look_in, for folders of a distribution with all its libraries: asks for the names that packages give NVRTC
  /// (its soname, from 12 on the major version alone) instead of reading the folder.
  void look_in_distribution(const fs::path& dir) {
    if (enter(dir, true) != Folder::fresh) return;
    bool any = false;
    for (const char* suffix : {"", ".11.2", ".12", ".13", ".14", ".15", ".16", ".17", ".18", ".19"}) {
      const std::string path = (dir / "libnvrtc.so").string() + suffix;
      struct stat info {};
      if (::lstat(path.c_str(), &info) != 0) continue;
      any = true;
      look_at_file(path);
    }
    if (!any) search_.tried.push_back(dir.string() + ": no libnvrtc.so*");
  }

  /// The places within a toolkit's root.
  void look_below(const fs::path& root) {
    bool any = false;
    for (const char* dir : {"lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"})
      any = look_in(root / dir, false) || any;
    if (!any) search_.tried.push_back(root.string() + ": neither lib64 nor lib there");
  }

  NvrtcSearch finish() {
    std::stable_sort(search_.found.begin(), search_.found.end(),
                     [](const auto& a, const auto& b) { return numbers(a.build) > numbers(b.build); });
    return std::move(search_);
  }

  NvrtcSearch& search() { return search_; }

 private:
  enum class Folder : uint8_t { absent, seen, fresh };
  Folder enter(const fs::path& dir, bool must_exist) {
    struct stat info {};
    if (::stat(dir.c_str(), &info) != 0 || !is_directory(info)) {
      if (must_exist) search_.tried.push_back(dir.string() + ": no such folder");
      return Folder::absent;
    }
    return looked_.emplace(info.st_dev, info.st_ino).second ? Folder::fresh : Folder::seen;
  }

  using Identity = std::pair<dev_t, ino_t>;
  ToolchainMemo* memo_;
  NvrtcSearch search_;
  std::set<Identity> seen_, looked_;
};

/// NVIDIA's wheels below `root`: unpacked with lib and include at the top, as they are packed (nvidia/cu13,
/// nvidia/cuda_nvrtc), or within the site-packages of a Python environment.
void look_in_wheels(Finder& finder, const fs::path& root) {
  finder.look_below(root);
  std::vector<fs::path> packages{root};
  for (const char* lib : {"lib", "lib64"})
    for (const std::string& python : sorted_names(root / lib, "python"))
      packages.push_back(root / lib / python / "site-packages");
  for (const fs::path& package : packages)
    for (const std::string& name : sorted_names(package / "nvidia", ""))
      finder.look_in(package / "nvidia" / name / "lib", false);
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
  for (const std::string& name : sorted_names("/usr/local", "cuda")) finder.look_below(fs::path("/usr/local") / name);
  for (const char* dir : {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"})
    finder.look_in_distribution(dir);
  finder.look_in("/opt/cuda/lib64");
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
