#include "base/files.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/fd.hpp"

namespace jitune {
namespace {

Failure system_failure(const std::string& what, const std::string& path) {
  return {what + " '" + path + "': " + std::strerror(errno)};
}

}  // namespace

Result<std::string> read_file(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return system_failure("cannot open", path);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return system_failure("cannot stat", path);
  if (S_ISDIR(info.st_mode)) return Failure{"'" + path + "' is a directory, a file was expected"};
  std::string bytes;
  bytes.reserve(static_cast<size_t>(info.st_size));
  char chunk[65536];
  for (;;) {
    const ssize_t got = ::read(fd.get(), chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_failure("cannot read", path);
    if (got == 0) return bytes;
    bytes.append(chunk, static_cast<size_t>(got));
  }
}

Result<void> write_file_atomically(const std::string& path, std::string_view bytes) {
  static std::atomic<unsigned> serial{0};
  const std::string temporary = path + "." + std::to_string(::getpid()) + "-" + std::to_string(serial++) + ".tmp";
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd) return system_failure("cannot create a file beside", path);
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t put = ::write(fd.get(), bytes.data() + done, bytes.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      Failure failure = system_failure("cannot write", temporary);
      ::unlink(temporary.c_str());
      return failure;
    }
    done += static_cast<size_t>(put);
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    Failure failure = system_failure("cannot replace", path);
    ::unlink(temporary.c_str());
    return failure;
  }
  return {};
}

std::string own_module_path() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&own_module_path), &info) == 0 || info.dli_fname == nullptr) return "";
  char resolved[PATH_MAX];
  // A program started through $PATH reports its bare name here; /proc knows the file.
  if (::realpath(info.dli_fname, resolved) != nullptr) return resolved;
  const ssize_t length = ::readlink("/proc/self/exe", resolved, sizeof resolved - 1);
  return length > 0 ? std::string(resolved, static_cast<size_t>(length)) : "";
}

}  // namespace jitune
