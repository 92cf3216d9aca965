#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "compile/artifact.hpp"

namespace jitune::compile {

/// An NVRTC library on this machine, as far as its file tells.
struct NvrtcFile {
  std::string path;     ///< absolute, links resolved
  std::string version;  ///< major.minor, from the file's name or strings
  std::string build;    ///< major.minor.build, `13.0.88`; equals version when the build number is not in the file
  std::vector<std::string> include_dirs;  ///< toolkit headers that go with it: include, include/cccl
  int64_t device = 0, inode = 0, size_bytes = 0, mtime_ns = 0;  ///< the file's stat tuple
};

/// What looking for NVRTC found.
struct NvrtcSearch {
  std::vector<NvrtcFile> found;    ///< best first: newest version; an explicit choice is the only one
  std::vector<std::string> tried;  ///< every place looked at with what was there, for doctor and messages
};

/// Where to look and in which order: `explicit_path` (Options::nvrtc or JITUNE_NVRTC), CUDA_HOME, CUDA_PATH,
/// /usr/local/cuda*, distribution paths, the layout of NVIDIA's Python wheels below `extra_roots`.
/// Loads nothing: versions come from the file's bytes (a stat tuple known to `memo` saves reading them).
struct NvrtcSearchOptions {
  std::string explicit_path;
  std::string cuda_home, cuda_path;
  std::vector<std::string> extra_roots;
};

/// A memo of builds by stat tuple, so that a warm process reads no library. Kept by the store.
class ToolchainMemo {
 public:
  virtual ~ToolchainMemo() = default;
  /// Fills version and build of `file` (whose path and stat tuple are set) when the memo knows that tuple.
  virtual bool recall(NvrtcFile& file) = 0;
  virtual void remember(const NvrtcFile& file) = 0;
};

NvrtcSearch find_nvrtc(const NvrtcSearchOptions& options, ToolchainMemo* memo = nullptr);

/// The failure's message: what was tried and what to install or set.
std::string explain_missing(const NvrtcSearch& search);

/// NVRTC loaded into this process. Meant for the worker; the host uses it only when there is no worker at all.
class Nvrtc {
 public:
  /// Loads the library and, from its own directory, its builtins (found by NVRTC by bare name otherwise).
  static Result<std::unique_ptr<Nvrtc>> load(const std::string& path);
  ~Nvrtc();

  std::string version() const;               ///< major.minor
  std::vector<int> supported_archs() const;  ///< 75, 80, ...

  /// Compiles one config. Always passes --no-cache. Never throws; everything that goes wrong is in the Artifact.
  Artifact compile(const Request& request);

 private:
  Nvrtc();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace jitune::compile
