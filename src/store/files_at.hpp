#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.hpp"

/// What the store does with the database's file besides SQL. Nothing here opens an existing database with open(2): to
/// close it again would drop every lock that this process holds on it (POSIX locks work so); reading goes through
/// SQLite's own file layer, which knows about that.
namespace jitune::store {

/// `path` with its directory's links resolved, so that only the file itself may not be a link. Absolute afterwards.
std::string resolved_path(const std::string& path);

/// Makes the directory of `path` and those above it that are missing, each 0700 whatever the umask.
Result<void> make_directory_for(const std::string& path);

/// Whether the directory of `path` and, where there is one, the file are ours alone to write: a cubin is code, and who
/// can write the file can run code in this process. The failure names the remedy.
Result<void> check_owners(const std::string& path);

/// Creates an empty file, 0600 whatever the umask. Fine when it exists. The caller keeps other openings in this process
/// away.
Result<void> create_empty(const std::string& path);

/// What a file looks like from its first bytes.
struct Looks {
  enum class Kind : uint8_t {
    absent,
    empty,    ///< zero length, or a database without tables and marks: to be made
    ours,     ///< has our application_id
    damaged,  ///< has lost its header but holds our tables
    foreign,  ///< anything else
  };
  Kind kind = Kind::absent;
  int64_t schema = 0;  ///< ours: user_version
};
Looks look_at(const std::string& path);

/// Renames a damaged database with its -wal and -shm to `PATH.corrupt-UTC` and removes earlier ones. Works under a lock
/// of its own beside the file and does nothing when `still_there` says that another process was faster. Returns the new
/// name,
/// "" when nothing was done.
Result<std::string> quarantine(const std::string& path, const std::function<bool()>& still_there);

/// Whether the directory of `path` lies on a network file system, where SQLite's WAL is not allowed.
/// `type_of`: stands in for statfs in tests.
bool on_network_file_system(const std::string& path, uint64_t (*type_of)(const std::string& directory) = nullptr);
bool is_network_file_system(uint64_t statfs_type);

}  // namespace jitune::store
