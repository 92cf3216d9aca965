#include "store/files_at.hpp"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <initializer_list>
#include <vector>

#include "base/fd.hpp"
#include "store/schema.hpp"

namespace jitune::store {
namespace {

namespace fs = std::filesystem;

Failure because(const std::string& what) {
  return {what + ": " + std::strerror(errno)};
}

std::string directory_of(const std::string& path) {
  return fs::path(path).parent_path().string();
}

std::string octal(mode_t mode) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%04o", static_cast<unsigned>(mode & 07777));
  return text.data();
}

/// Whether others than the owner may write. A group of the same number as its user is that user's alone.
bool others_write(const struct stat& info) {
  const bool private_group = info.st_gid == ::getegid() && info.st_gid == ::geteuid();
  return (info.st_mode & S_IWOTH) != 0 || ((info.st_mode & S_IWGRP) != 0 && !private_group);
}

/// A file opened through SQLite's file layer for reading.
class PlainFile {
 public:
  explicit PlainFile(const std::string& path) {
    sqlite3_vfs* vfs = sqlite3_vfs_find(nullptr);
    memory_.resize(static_cast<size_t>(vfs->szOsFile));
    file_ = reinterpret_cast<sqlite3_file*>(memory_.data());
    // SQLite's layer wants names to end in two NULs, as its own do.
    name_ = path + std::string(3, '\0');
    int flags = 0;
    code_ = vfs->xOpen(vfs, name_.c_str(), file_, SQLITE_OPEN_READONLY | SQLITE_OPEN_MAIN_DB, &flags);
  }
  ~PlainFile() {
    if (file_->pMethods != nullptr) file_->pMethods->xClose(file_);
  }
  PlainFile(const PlainFile&) = delete;
  PlainFile& operator=(const PlainFile&) = delete;

  bool ok() const { return code_ == SQLITE_OK; }

  std::string head(size_t limit) {
    sqlite3_int64 size = 0;
    if (file_->pMethods->xFileSize(file_, &size) != SQLITE_OK) return {};
    std::string bytes(std::min(limit, static_cast<size_t>(size)), '\0');
    const int code = file_->pMethods->xRead(file_, bytes.data(), static_cast<int>(bytes.size()), 0);
    return code == SQLITE_OK || code == SQLITE_IOERR_SHORT_READ ? bytes : std::string();
  }

 private:
  std::vector<char> memory_;
  sqlite3_file* file_;
  std::string name_;
  int code_;
};

int64_t big_endian_32(const std::string& bytes, size_t at) {
  int64_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

std::string utc_stamp() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y%m%dT%H%M%SZ", &parts);
  return text.data();
}

void remove_earlier(const std::string& path, const std::string& kept) {
  const std::string prefix = fs::path(path).filename().string() + ".corrupt-";
  const std::string keep = fs::path(kept).filename().string();
  std::error_code ignored;
  std::vector<fs::path> old;
  for (fs::directory_iterator entry(directory_of(path), ignored), end; !ignored && entry != end;
       entry.increment(ignored))
    if (const std::string name = entry->path().filename().string(); name.starts_with(prefix) && !name.starts_with(keep))
      old.push_back(entry->path());
  for (const fs::path& file : old) fs::remove(file, ignored);
}

}  // namespace

std::string resolved_path(const std::string& path) {
  std::error_code ignored;
  const fs::path whole = fs::absolute(path, ignored).lexically_normal();
  const fs::path directory = fs::weakly_canonical(whole.parent_path(), ignored);
  return ((directory.empty() ? whole.parent_path() : directory) / whole.filename()).string();
}

Result<void> make_directory_for(const std::string& path) {
  std::vector<std::string> missing;
  for (fs::path directory = directory_of(path); !directory.empty() && ::access(directory.c_str(), F_OK) != 0;
       directory = directory.parent_path()) {
    missing.push_back(directory.string());
    if (directory == directory.parent_path()) break;
  }
  for (auto directory = missing.rbegin(); directory != missing.rend(); ++directory) {
    if (::mkdir(directory->c_str(), 0700) == 0) {
      if (::chmod(directory->c_str(), 0700) != 0) return because("cannot set the mode of '" + *directory + "'");
    } else if (errno != EEXIST) {
      return because("cannot make the directory '" + *directory + "'");
    }
  }
  return {};
}

Result<void> check_owners(const std::string& path) {
  const uid_t me = ::geteuid();
  const std::string directory = directory_of(path);
  struct stat info {};
  if (::stat(directory.c_str(), &info) != 0) return because("cannot look at the directory '" + directory + "'");
  if (!S_ISDIR(info.st_mode)) return Failure{"'" + directory + "' is not a directory"};
  // Root may work in any user's directory, as it does in a container with a mounted tree; the file must be its own.
  if (me != 0 && info.st_uid != me && info.st_uid != 0)
    return Failure{"the directory '" + directory + "' belongs to another user (uid " + std::to_string(info.st_uid) +
                   "), who could change what is run: use a directory of your own (JITUNE_DATABASE)"};
  if (others_write(info) && (info.st_mode & S_ISVTX) == 0)
    return Failure{"the directory '" + directory + "' may be written by others (mode " + octal(info.st_mode) +
                   "), who could change what is run: chmod go-w '" + directory + "', or use another directory"};
  if (::lstat(path.c_str(), &info) != 0)
    return errno == ENOENT ? Result<void>() : Result<void>(because("cannot look at '" + path + "'"));
  if (S_ISLNK(info.st_mode)) return Failure{"'" + path + "' is a symbolic link: name the file itself"};
  if (!S_ISREG(info.st_mode)) return Failure{"'" + path + "' is not a regular file"};
  if (info.st_uid != me && info.st_uid != 0)
    return Failure{"'" + path + "' belongs to another user (uid " + std::to_string(info.st_uid) +
                   "), and its cubins would be run: copy it, or use another file"};
  if (others_write(info))
    return Failure{"'" + path + "' may be written by others (mode " + octal(info.st_mode) +
                   "), and its cubins would be run: chmod go-w '" + path + "'"};
  return {};
}

Result<void> create_empty(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return errno == EEXIST ? Result<void>() : Result<void>(because("cannot create '" + path + "'"));
  if (::fchmod(fd.get(), 0600) != 0) return because("cannot set the mode of '" + path + "'");
  return {};
}

Looks look_at(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return {};
  if (info.st_size == 0) return {Looks::Kind::empty, 0};
  PlainFile file(path);
  if (!file.ok()) return {Looks::Kind::ours, 0};  // the real opening will say what is the matter
  std::string head = file.head(512);
  if (head.empty()) return {Looks::Kind::empty, 0};
  if (head.size() >= 512 && head.starts_with(std::string("SQLite format 3\0", 16))) {
    const int64_t application = big_endian_32(head, 68);
    if (application == kApplicationId) return {Looks::Kind::ours, big_endian_32(head, 60)};
    // A file that is being made, or whose maker was killed, has a first page without tables: a leaf of no cells.
    const bool no_tables = head[100] == 13 && head[103] == 0 && head[104] == 0;
    const bool has_log = ::stat((path + "-wal").c_str(), &info) == 0 && info.st_size > 0;
    return {application == 0 && no_tables && !has_log ? Looks::Kind::empty : Looks::Kind::foreign, 0};
  }
  head = file.head(size_t{256} << 10);
  const bool our_tables =
      head.find("CREATE TABLE keys") != std::string::npos && head.find("key_sha256") != std::string::npos;
  return {our_tables ? Looks::Kind::damaged : Looks::Kind::foreign, 0};
}

Result<std::string> quarantine(const std::string& path, const std::function<bool()>& still_there) {
  const std::string lock_path = path + ".lock";
  const UniqueFd lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!lock || ::flock(lock.get(), LOCK_EX) != 0) return because("cannot lock '" + lock_path + "'");
  if (!still_there()) return std::string();
  const std::string target = path + ".corrupt-" + utc_stamp();
  // The log first: a fresh file must never find the old one's beside it.
  for (const char* suffix : {"-wal", "-shm", ""})
    if (::rename((path + suffix).c_str(), (target + suffix).c_str()) != 0 && errno != ENOENT)
      return because("cannot move '" + path + suffix + "' away");
  remove_earlier(path, target);
  return target;
}

bool is_network_file_system(uint64_t statfs_type) {
  // From statfs(2): NFS, SMB and its successors, Ceph, AFS, Coda, 9p, Lustre, GPFS, FUSE (which may be anything).
  for (const uint64_t type : {0x6969U, 0x517BU, 0xFF534D42U, 0xFE534D42U, 0x00C36400U, 0x5346414FU, 0x73757245U,
                              0x01021997U, 0x0BD00BD0U, 0x47504653U, 0x65735546U})
    if (statfs_type == type) return true;
  return false;
}

bool on_network_file_system(const std::string& path, uint64_t (*type_of)(const std::string& directory)) {
  if (type_of != nullptr) return is_network_file_system(type_of(directory_of(path)));
  struct statfs info {};
  if (::statfs(directory_of(path).c_str(), &info) != 0) return false;
  return is_network_file_system(static_cast<uint64_t>(info.f_type) & 0xFFFFFFFFU);
}

}  // namespace jitune::store
