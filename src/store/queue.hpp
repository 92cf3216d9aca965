#pragma once

#include <cstdint>
#include <string>

#include "base/fd.hpp"

namespace jitune::store {

/// The order in which writers that wait for one database get their turn. SQLite gives its lock to whoever asks when it
/// is free, so that of many writers that ask now and then some wait for seconds. Whoever waits here holds a lock on the
/// byte of a file that stands for the moment he came; the lowest byte is first. The kernel takes the lock of a process
/// that dies. It is advice, not a lock: who can't have a place, or sees the first in line stand still, goes on without.
/// Safe from one thread at a time.
class WriteQueue {
 public:
  /// `path`: of the file, made (0600) when the first one waits.
  explicit WriteQueue(std::string path) : path_(std::move(path)) {}

  class Place {
   public:
    Place(int fd, int64_t at) : fd_(fd), at_(at) {}
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    ~Place();
    /// How many came before; at most `most` are counted, and 0 without a place.
    int ahead(int most) const;

   private:
    int fd_;
    int64_t at_;  ///< -1: there is no place
  };

  /// Whether anybody waits, as far as this process has ever had to wait itself.
  bool has_waiters() const;
  /// Joins the end of the line, or of the line of those in a hurry, which goes first.
  Place join(bool hurry);

 private:
  std::string path_;
  UniqueFd fd_;
};

}  // namespace jitune::store
