#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "base/fd.hpp"

namespace jitune::compile {

/// A directory of one host for the precompiled headers of its compile workers: 0700, below TMPDIR, gone with the
/// object. Directories of hosts that died are removed when a new one is made.
class HeaderDirectory {
 public:
  /// Null when there is no place for one; compiling goes on without.
  static std::unique_ptr<HeaderDirectory> make();
  ~HeaderDirectory();
  HeaderDirectory(const HeaderDirectory&) = delete;
  HeaderDirectory& operator=(const HeaderDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  HeaderDirectory(std::string path, UniqueFd lock);
  std::string path_;
  int owner_;      ///< pid: a forked child leaves the directory alone
  UniqueFd lock_;  ///< locked as long as the host lives: this is how others know
};

/// The worker's side: which compile makes a precompiled header and which ones use it.
///
/// Measured with NVRTC 13.0 (CPU seconds of one config: plain / the one that makes the header / those that use it):
/// cub::BlockReduce + fp16 1.53 / 2.18 / 0.30, cooperative_groups 1.33 / 1.90 / 0.27, fp16 + mma 0.150 / 0.210 / 0.110,
/// fp16 alone 0.041 / 0.076 / 0.031; files of 170, 133, 12 and 8 MB; a worker's resident memory stays the same.
/// NVRTC takes such a file only where its heap lies at the address of the process that made it. Workers run without
/// address randomisation, so that one of them makes it for all; where that is forbidden, each makes its own.
class HeaderReuse {
 public:
  struct Plan {
    enum class Mode : unsigned char { plain, make, use };
    Mode mode = Mode::plain;
    std::string path;  ///< of the file to make or to use
  };

  /// What a compile whose headers hash to `key` is to do. The first to ask in `directory` makes the file; until it is
  /// there, and for good when it could not be made, the others compile plainly. Who has done so once for this key waits
  /// the next time, at most kPatience and once a key: by then the file is nearly there.
  Plan plan(const std::string& directory, const std::string& key);

  /// After a compile that was to make the file: hands it to all when it was `made`.
  static void settle(const Plan& plan, bool made);

  /// This process can't use the file of `plan`: it is not tried again.
  void refuse(const Plan& plan) { refused_.insert(plan.path); }

 private:
  static constexpr std::chrono::milliseconds kPatience{1500};
  std::set<std::string> refused_;
  std::map<std::string, int> plain_;  ///< by path: compiled plainly while another made the file
};

}  // namespace jitune::compile
