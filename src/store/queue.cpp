#include "store/queue.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "base/clock.hpp"

namespace jitune::store {
namespace {

/// Those in a hurry have bytes below it. Microseconds since the machine's start reach it after 73,000 years.
constexpr int64_t kUnhurried = int64_t{1} << 61;

// Locks of the open file, not of the process: to close another descriptor of the file does not drop them.
bool lock_byte(int fd, int64_t at, int16_t type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = at;
  lock.l_len = 1;
  return ::fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

/// A byte in [begin, end) that another one has locked; -1 when there is none. `end` 0: no end.
int64_t locked_byte(int fd, int64_t begin, int64_t end) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = begin;
  lock.l_len = end == 0 ? 0 : end - begin;
  if (::fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return -1;
  return lock.l_start;
}

}  // namespace

WriteQueue::Place::~Place() {
  if (at_ >= 0) lock_byte(fd_, at_, F_UNLCK);
}

int WriteQueue::Place::ahead(int most) const {
  int count = 0;
  // The kernel tells locks in the order in which they came, which is that of the bytes within each line.
  for (int64_t from = 0; count < most && from < at_;) {
    const int64_t end = from < kUnhurried ? std::min(at_, kUnhurried) : at_;
    const int64_t found = locked_byte(fd_, from, end);
    count += found < 0 ? 0 : 1;
    from = found < 0 ? end : found + 1;
  }
  return count;
}

bool WriteQueue::has_waiters() const {
  return fd_ && locked_byte(fd_.get(), 0, 0) >= 0;
}

WriteQueue::Place WriteQueue::join(bool hurry) {
  if (!fd_) fd_ = UniqueFd(::open(path_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd_) return {-1, -1};
  const auto since_start = Clock::now().time_since_epoch();
  int64_t at = std::chrono::duration_cast<std::chrono::microseconds>(since_start).count() + (hurry ? 0 : kUnhurried);
  for (int tries = 0; tries < 64; ++tries, ++at) {
    if (lock_byte(fd_.get(), at, F_WRLCK)) return {fd_.get(), at};
    if (errno != EAGAIN && errno != EACCES) break;  // no locks here
  }
  return {-1, -1};
}

}  // namespace jitune::store
