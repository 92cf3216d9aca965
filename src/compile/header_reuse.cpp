#include "compile/header_reuse.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/files.hpp"

namespace jitune::compile {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "jitune-headers-";
constexpr int kMostFiles = 8;                       // of one host: a kernel whose options vary would make one for each
constexpr uint64_t kRoomBytes = uint64_t{2} << 30;  // left free on the file system: a file takes up to 512 MB

std::string temporary_directory() {
  const char* variable = std::getenv("TMPDIR");
  return variable != nullptr && variable[0] == '/' ? variable : "/tmp";
}

/// The directory's lock, or nothing while its host lives.
UniqueFd lock_directory(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) fd = UniqueFd();
  return fd;
}

void remove_abandoned(const std::string& parent) {
  std::error_code error;
  std::vector<std::string> abandoned;
  for (fs::directory_iterator at(parent, error), end; !error && at != end; at.increment(error)) {
    const std::string path = at->path().string();
    struct stat info {};
    if (at->path().filename().string().starts_with(kPrefix) && ::lstat(path.c_str(), &info) == 0 &&
        S_ISDIR(info.st_mode) && info.st_uid == ::geteuid())
      abandoned.push_back(path);
  }
  for (const std::string& path : abandoned)
    if (const UniqueFd lock = lock_directory(path)) fs::remove_all(path, error);
}

bool has_room(const std::string& directory) {
  struct statvfs info {};
  if (::statvfs(directory.c_str(), &info) != 0 || uint64_t{info.f_bavail} * info.f_frsize < kRoomBytes) return false;
  int files = 0;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error))
    files += at->path().extension() == ".made" ? 1 : 0;
  return !error && files < kMostFiles;
}

/// Until the file at `path` is there or `mark` says that it won't come.
void wait_for_maker(const std::string& path, const std::string& mark, std::chrono::milliseconds patience) {
  struct stat info {};
  for (const auto end = Clock::now() + patience; Clock::now() < end;) {
    if (::stat(path.c_str(), &info) == 0 || ::stat(mark.c_str(), &info) != 0 || info.st_size > 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace

HeaderDirectory::HeaderDirectory(std::string path, UniqueFd lock)
    : path_(std::move(path)), owner_(::getpid()), lock_(std::move(lock)) {}

std::unique_ptr<HeaderDirectory> HeaderDirectory::make() {
  const std::string parent = temporary_directory();
  remove_abandoned(parent);
  std::string path = parent + "/" + std::string(kPrefix) + "XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) return nullptr;
  UniqueFd lock = lock_directory(path);
  if (!lock) {  // a file system without locks: nobody could tell later whether it is in use
    ::rmdir(path.c_str());
    return nullptr;
  }
  return std::unique_ptr<HeaderDirectory>(new HeaderDirectory(std::move(path), std::move(lock)));
}

HeaderDirectory::~HeaderDirectory() {
  if (::getpid() != owner_) return;
  std::error_code error;
  fs::remove_all(path_, error);
}

HeaderReuse::Plan HeaderReuse::plan(const std::string& directory, const std::string& key) {
  Plan plan;
  plan.path = directory + "/" + key + ".pch";
  if (refused_.contains(plan.path)) return plan;
  const std::string mark_path = directory + "/" + key + ".made";
  if (plain_[plan.path] == 1) wait_for_maker(plan.path, mark_path, kPatience);
  struct stat info {};
  if (::stat(plan.path.c_str(), &info) == 0) {
    // NVRTC maps the file and trusts it: one that lost its end would be a bus error.
    const auto size = read_file(directory + "/" + key + ".size");
    if (size && *size == std::to_string(info.st_size)) plan.mode = Plan::Mode::use;
    return plan;
  }
  if (!has_room(directory)) return plan;
  // Whoever makes this mark makes the file. It stays when that fails, or kills the worker: once is enough.
  const UniqueFd mark(::open(mark_path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!mark) {
    ++plain_[plan.path];
    return plan;
  }
  plan.mode = Plan::Mode::make;
  plan.path = directory + "/" + key + ".new.pch";
  return plan;
}

void HeaderReuse::settle(const Plan& plan, bool made) {
  constexpr std::string_view kNew = ".new.pch";
  const std::string stem = plan.path.substr(0, plan.path.size() - kNew.size());
  struct stat info {};
  const bool kept = made && ::stat(plan.path.c_str(), &info) == 0 &&
                    write_file_atomically(stem + ".size", std::to_string(info.st_size)).ok() &&
                    std::rename(plan.path.c_str(), (stem + ".pch").c_str()) == 0;
  if (kept) return;
  ::unlink(plan.path.c_str());
  (void)write_file_atomically(stem + ".made", "no");
}

}  // namespace jitune::compile
