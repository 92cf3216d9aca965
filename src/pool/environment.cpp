#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/files.hpp"
#include "pool/pool.hpp"

namespace jitune::pool {
namespace {

/// Says why `path` can't be a worker, or "".
std::string why_not(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return std::strerror(errno);
  if (!S_ISREG(info.st_mode)) return "not a file";
  if (::access(path.c_str(), X_OK) != 0) return std::strerror(errno);
  return "";
}

std::string absolute(const std::string& path) {
  std::error_code error;
  const auto real = std::filesystem::canonical(path, error);
  return error ? path : real.string();
}

}  // namespace

Result<std::string> find_worker(const std::string& option, const std::string& environment) {
  struct Place {
    std::string path, from;
  };
  std::vector<Place> places;
  // A choice that somebody made is the only one: falling back on another worker would hide the mistake.
  if (!option.empty()) {
    places.push_back({option, "Options::worker"});
  } else if (!environment.empty()) {
    places.push_back({environment, "JITUNE_WORKER"});
  } else {
    const std::string module = own_module_path();
    if (!module.empty()) {
      const auto dir = std::filesystem::path(module).parent_path();
      places.push_back({(dir / "jitune-worker").string(), "beside the program or library"});
      places.push_back({(dir.parent_path() / "libexec/jitune/jitune-worker").string(), "libexec beside it"});
    }
#ifdef JITUNE_BUILT_WORKER
    places.push_back({JITUNE_BUILT_WORKER, "the build tree"});
#endif
    places.push_back({JITUNE_INSTALLED_WORKER, "the install path"});
  }
  std::string tried;
  for (const Place& place : places) {
    const std::string wrong = why_not(place.path);
    if (wrong.empty()) return absolute(place.path);
    tried += "\n  " + place.path + " (" + place.from + "): " + wrong;
  }
  return Failure{"jitune-worker was not found. Tried:" + tried +
                 "\nInstall it beside the program, or name it by Options::worker or JITUNE_WORKER."};
}

std::vector<std::string> worker_environment(bool sees_gpu) {
  std::vector<std::string> environment{"LANG=C"};
  const auto pass = [&](const char* name) {
    if (const char* value = std::getenv(name); value != nullptr) environment.push_back(std::string(name) + "=" + value);
  };
  for (const char* name : {"PATH", "HOME", "TMPDIR", "USER"}) pass(name);
  // Where the driver and its libraries lie on machines that don't have them on the loader's own path.
  pass("LD_LIBRARY_PATH");
  if (!sees_gpu) {
    environment.emplace_back("CUDA_VISIBLE_DEVICES=");
    return environment;
  }
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_MODULE_LOADING", "NVIDIA_VISIBLE_DEVICES",
                           "NVIDIA_DRIVER_CAPABILITIES"})
    pass(name);
  // Settings of jitune's own, which a driver that stands in for the real one in tests reads too.
  for (char** each = environ; *each != nullptr; ++each)
    if (std::strncmp(*each, "JITUNE_", 7) == 0) environment.emplace_back(*each);
  return environment;
}

}  // namespace jitune::pool
