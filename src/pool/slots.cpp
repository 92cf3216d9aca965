#include "pool/slots.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

namespace jitune::pool {
namespace {

constexpr int kMaxSlots = 4096, kMaxHolders = 1024;
constexpr int64_t kHereRegion = 8192, kHungryRegion = 16384;

/// A forked child shares our file description, so our locks would live as long as it does. It closes its copy. Plain
/// atomics, because only async-signal-safe calls are allowed there.
struct OpenFile {
  std::atomic<int> fd{-1};
  std::atomic<uint64_t> device{0}, inode{0};
};
std::array<OpenFile, 64> open_files;
std::mutex open_files_mutex;

void close_in_child() {
  for (OpenFile& file : open_files) {
    const int fd = file.fd;
    struct stat info {};
    // The number may be the host's by now, when it has closed all of ours.
    if (fd >= 0 && ::fstat(fd, &info) == 0 && info.st_dev == file.device && info.st_ino == file.inode) ::close(fd);
  }
}

void remember(int fd) {
  static std::once_flag once;
  std::call_once(once, [] { ::pthread_atfork(nullptr, nullptr, close_in_child); });
  struct stat info {};
  if (::fstat(fd, &info) != 0) return;
  const std::lock_guard lock(open_files_mutex);
  for (OpenFile& file : open_files) {
    if (file.fd >= 0) continue;
    file.device = info.st_dev;
    file.inode = info.st_ino;
    file.fd = fd;
    return;
  }
}

void forget(int fd) {
  const std::lock_guard lock(open_files_mutex);
  for (OpenFile& file : open_files)
    if (file.fd == fd) file.fd = -1;
}

struct flock one_byte(short type, int64_t byte) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return lock;
}

Failure trouble(const std::string& path, const std::string& what) {
  return {"compile slots are not shared with other processes: '" + path + "' " + what};
}

}  // namespace

std::string runtime_directory(const std::string& chosen) {
  if (chosen == "off") return "";
  return chosen.empty() ? "/tmp/jitune-" + std::to_string(::geteuid()) : chosen;
}

Result<std::unique_ptr<Slots>> Slots::open(const SlotOptions& options) {
  const std::string& dir = options.directory;
  if (::mkdir(dir.c_str(), 0700) != 0 && errno != EEXIST)
    return trouble(dir, std::string("can't be made: ") + std::strerror(errno));
  const UniqueFd folder(::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder) return trouble(dir, std::string("can't be opened: ") + std::strerror(errno));
  struct stat info {};
  if (::fstat(folder.get(), &info) != 0) return trouble(dir, std::strerror(errno));
  if (info.st_uid != ::geteuid()) return trouble(dir, "belongs to another user");
  if ((info.st_mode & 022) != 0) return trouble(dir, "can be written by others; make its mode 0700");
  UniqueFd file(::openat(folder.get(), "compile-slots", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return trouble(dir + "/compile-slots", std::string("can't be opened: ") + std::strerror(errno));
  struct flock probe = one_byte(F_WRLCK, 0);
  if (::fcntl(file.get(), F_OFD_GETLK, &probe) != 0)
    return trouble(dir + "/compile-slots", std::string("can't be locked: ") + std::strerror(errno));
  return std::unique_ptr<Slots>(new Slots(std::move(file), options));
}

Slots::Slots(UniqueFd file, const SlotOptions& options)
    : file_(std::move(file)),
      count_(std::clamp(options.count, 1, kMaxSlots)),
      patience_(options.patience),
      own_(static_cast<size_t>(count_)) {
  remember(file_.get());
}

Slots::~Slots() {
  forget(file_.get());
}

bool Slots::lock(int64_t byte) {
  struct flock lock = one_byte(F_WRLCK, byte);
  return ::fcntl(file_.get(), F_OFD_SETLK, &lock) == 0;
}

void Slots::unlock(int64_t byte) {
  struct flock lock = one_byte(F_UNLCK, byte);
  (void)::fcntl(file_.get(), F_OFD_SETLK, &lock);
}

/// The first byte from `begin` on that another holder has locked.
std::optional<int64_t> Slots::first_locked(int64_t begin, int64_t end) const {
  struct flock lock = one_byte(F_WRLCK, begin);
  lock.l_len = end - begin;
  if (begin >= end || ::fcntl(file_.get(), F_OFD_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return std::nullopt;
  return std::max<int64_t>(lock.l_start, begin);
}

/// Locks some byte of a region that has kMaxHolders, or none: then we only count for less.
int64_t Slots::lock_any(int64_t region) {
  const int64_t first = ::getpid() % kMaxHolders;
  for (int64_t i = 0; i < kMaxHolders; ++i)
    if (const int64_t byte = region + (first + i) % kMaxHolders; lock(byte)) return byte;
  return -1;
}

int Slots::share() const {
  int holders = 1;
  int64_t byte = kHereRegion;
  while (const auto next = first_locked(byte, kHereRegion + kMaxHolders)) {
    ++holders;
    byte = *next + 1;
  }
  return std::max(1, count_ / holders);
}

void Slots::set_hungry(bool hungry) {
  if (hungry == (hungry_byte_ >= 0)) return;
  if (hungry) {
    hungry_byte_ = lock_any(kHungryRegion);
  } else {
    unlock(hungry_byte_);
    hungry_byte_ = -1;
  }
}

/// Writes down that a slot was taken, for those who wait.
void Slots::stamp(int slot, Clock::time_point now) {
  const int64_t ticks = now.time_since_epoch().count();
  (void)!::pwrite(file_.get(), &ticks, sizeof ticks, slot * static_cast<int64_t>(sizeof ticks));
}

/// Whether any slot has been taken since this was last asked.
bool Slots::others_moved() {
  std::vector<int64_t> now(static_cast<size_t>(count_));
  (void)!::pread(file_.get(), now.data(), now.size() * sizeof now[0], 0);
  if (now == stamps_) return false;
  stamps_ = std::move(now);
  return true;
}

int Slots::take(Clock::time_point now) {
  if (here_byte_ < 0) here_byte_ = lock_any(kHereRegion);
  if (held_ >= count_) return kNone;
  if (!waiting_since_) waiting_since_ = now;
  if (first_locked(kHungryRegion, kHungryRegion + kMaxHolders)) {
    if (held_ >= share()) return kNone;
    if (hungry_byte_ < 0) {
      set_hungry(true);
      newcomer_until_ = now + kSlotPoll;
    }
    if (now < newcomer_until_) return kNone;
  }
  // From the top: processes that were told of fewer cores find theirs at the bottom.
  for (int slot = count_ - 1; slot >= 0; --slot) {
    if (own_[static_cast<size_t>(slot)] || !lock(slot)) continue;
    own_[static_cast<size_t>(slot)] = true;
    ++held_;
    overdue_ = false;
    waiting_since_.reset();
    set_hungry(false);
    stamp(slot, now);
    return slot;
  }
  if (held_ == 0 && others_moved()) {
    waiting_since_ = now;
    overdue_ = false;
  }
  if (held_ == 0 && (overdue_ || now - *waiting_since_ >= patience_)) {
    overdue_ = true;
    ++held_;
    return kBorrowed;
  }
  set_hungry(held_ < share());
  return kNone;
}

void Slots::give_back(int slot) {
  if (slot == kNone) return;
  --held_;
  if (slot == kBorrowed) return;
  own_[static_cast<size_t>(slot)] = false;
  unlock(slot);
}

void Slots::want_nothing() {
  set_hungry(false);
  waiting_since_.reset();
  if (held_ > 0 || here_byte_ < 0) return;
  unlock(here_byte_);
  here_byte_ = -1;
}

}  // namespace jitune::pool
