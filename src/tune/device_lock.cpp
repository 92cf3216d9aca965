#include "tune/device_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cctype>
#include <cerrno>
#include <cstring>
#include <thread>

namespace jitune::tune {

std::string device_lock_path(const std::string& uuid) {
  std::string path = "/tmp/jitune-";
  for (const char c : uuid) path += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' ? c : '_';
  return path + ".lock";
}

bool is_device_locked(const std::string& uuid) {
  const UniqueFd fd(::open(device_lock_path(uuid).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return false;
  // A shared lock, let go of at once: two who look do not see each other.
  return ::flock(fd.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

Result<UniqueFd> lock_device(const std::string& uuid, Clock::time_point deadline, const std::atomic<bool>* give_up) {
  const std::string path = device_lock_path(uuid);
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  // A lock file that another user made is still good to lock, even where it can't be written.
  if (!fd && errno == EACCES) fd = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return Failure{"cannot open the GPU's lock file '" + path + "': " + std::strerror(errno)};
  (void)::fchmod(fd.get(), 0666);  // other users' processes meet here too, whatever our umask; fails where it is theirs
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return Failure{"cannot lock '" + path + "': " + std::strerror(errno)};
    if (Clock::now() >= deadline || (give_up != nullptr && *give_up))
      return Failure{"another process is measuring on this GPU (lock file '" + path + "')"};
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return fd;
}

}  // namespace jitune::tune
