#include <unistd.h>

#include <thread>

#include "base/clock.hpp"
#include "store/evict.hpp"
#include "store/files_at.hpp"
#include "store/signing.hpp"
#include "store/sqlite_store_run.hpp"

namespace jitune::store {
namespace {

using namespace std::chrono_literals;

constexpr int64_t kTidyFreePages = 2048;

}  // namespace

SqliteStore::SqliteStore(OpenOptions options, std::string path)
    : options_(std::move(options)), path_(std::move(path)), pid_(::getpid()) {}

SqliteStore::~SqliteStore() {
  if (pid_ == ::getpid()) {
    if (!held_.empty()) (void)write_or_hold(Hold::last, [](Database&) { return Result<void>(); });
    return;
  }
  // To close the parent's connection here would disturb its locks and its log.
  if (main_) main_->abandon();
  if (base_) base_->abandon();
}

Result<void> SqliteStore::start() {
  refuses_writes_ = options_.read_only;
  Result<std::string> key = read_signing_key(options_.signing_key);
  if (!key && options_.must_be_file) return key.failure();
  if (!key) {
    // What is stored can't be trusted now, and nothing unsigned should be left there.
    say({{"signing_key", "", key.error() + "; results are kept in memory", ""}});
    path_.clear();
  } else {
    signing_key_ = std::move(*key);
  }
  if (path_.empty()) {
    if (options_.must_be_file) return Failure{"a database file is needed here: name one (JITUNE_DATABASE)"};
    main_ = open_memory();
    state_ = "memory only: no file was asked for";
    return {};
  }
  OpenedFile opened =
      open_file({path_, options_.create, options_.read_only, options_.patience, options_.file_system_type});
  say(opened.warnings);
  if (opened.writable) {
    main_ = std::move(opened.database);
    main_is_file_ = true;
    return {};
  }
  const bool absent = opened.code == std::string_view("database_absent");
  const bool usable = opened.database && options_.read_only;
  if (absent || (options_.must_be_file && !usable)) return Failure{opened.why};
  main_ = open_memory();
  base_ = std::move(opened.database);
  state_ = (base_ ? "read-only: " : "memory only: ") + opened.why;
  if (!usable) say({{opened.code, "", opened.why + "; results are kept in memory", path_}});
  return {};
}

std::string SqliteStore::path() const {
  const std::scoped_lock lock(mutex_);
  return main_is_file_ || base_ ? path_ : std::string();
}

bool SqliteStore::in_memory() const {
  const std::scoped_lock lock(mutex_);
  return !main_is_file_;
}

int64_t SqliteStore::now() const {
  return options_.now == nullptr ? unix_now() : options_.now();
}

void SqliteStore::warn(const char* code, const std::string& text) {
  warnings_.push_back({code, "", text, ""});
}

void SqliteStore::say(const std::vector<Warning>& warnings) {
  if (options_.log == nullptr) return;
  for (const Warning& warning : warnings)
    options_.log->warning(warning.code, warning.kernel, warning.text, warning.once_per);
}

bool SqliteStore::lock_within(Wait wait, Access access, std::unique_lock<std::mutex>& lock) {
  const Clock::time_point deadline = Clock::now() + kLaunchPatience;
  if (wait == Wait::work && access == Access::write) {
    // Launches go first: they only look again and again, and who is woken by the lock would always be there before
    // them.
    while (waiting_ > 0 && Clock::now() < deadline) std::this_thread::sleep_for(50us);
    lock.lock();
    return true;
  }
  if (lock.try_lock()) return true;
  ++waiting_;
  if (wait != Wait::launch) lock.lock();
  while (!lock.owns_lock() && !lock.try_lock() && Clock::now() < deadline) std::this_thread::sleep_for(100us);
  --waiting_;
  return lock.owns_lock();
}

std::chrono::milliseconds SqliteStore::brief() const {
  return held_.empty() ? std::min(kLaunchPatience, options_.patience) : 0ms;
}

bool SqliteStore::may_try_again() const {
  return main_ && main_->gave_way() && Clock::now() < deadline_;
}

std::string SqliteStore::why_not_usable(Access access) const {
  if (pid_ != ::getpid())
    return "the database was opened by the process that this one was forked from (pid " + std::to_string(pid_) +
           "): open another store here";
  if (access == Access::write && refuses_writes_) return "'" + path_ + "' was opened for reading only";
  return "";
}

Failure SqliteStore::failure(const SqliteError& error) const {
  const std::string name = main_is_file_ ? "database '" + path_ + "'" : std::string("database in memory");
  const char* remedy = error.trouble() == Trouble::busy ? ": another process keeps it locked; try again" : "";
  return {name + ": " + error.what() + remedy};
}

bool SqliteStore::recover(const SqliteError& error) {
  if (!main_is_file_) return false;
  const std::string why = "'" + path_ + "': " + error.what();
  try {
    switch (error.trouble()) {
      case Trouble::full:
        if (make_room()) return true;
        return go_to_memory("database_full", why);
      case Trouble::read_only:
        return go_to_memory("database_read_only", why);
      case Trouble::io:
        return go_to_memory("database_unavailable", why);
      case Trouble::corrupt:
        return meet_damage(error);
      default:
        return false;
    }
  } catch (const SqliteError&) {
    return false;
  }
}

bool SqliteStore::meet_damage(const SqliteError& error) {
  const Result<std::string> moved = quarantine(path_, [&] { return main_ && !main_->has_moved(); });
  if (!moved) return go_to_memory("database_corrupt", "'" + path_ + "': " + error.what() + "; " + moved.error());
  if (!moved->empty()) warn("database_corrupt", corrupt_text(path_, *moved, error.what()));
  return replace_file();
}

bool SqliteStore::make_room() {
  // Never in a launch; and no winner goes for it: who starts again and again on a full disk would lose them all.
  if (in_launch_ || std::exchange(made_room_, true)) return false;
  Evicted dropped;
  try {
    main_->execute("PRAGMA wal_checkpoint(TRUNCATE)");
    const std::vector<std::string> losers = loser_cubins(*main_);
    for (size_t at = 0; at < losers.size();) drop_loser_cubins(*main_, losers, at, INT64_MAX, dropped);
    main_->execute("PRAGMA incremental_vacuum");
    main_->execute("PRAGMA wal_checkpoint(TRUNCATE)");
  } catch (const SqliteError& error) {
    if (error.trouble() != Trouble::busy && dropped.cubins == 0) return false;
  }
  forget_found();
  return true;
}

bool SqliteStore::replace_file() {
  main_.reset();
  OpenedFile opened = open_file({path_, true, false, patience_, options_.file_system_type});
  warnings_.insert(warnings_.end(), opened.warnings.begin(), opened.warnings.end());
  if (opened.writable) {
    main_ = std::move(opened.database);
    main_is_file_ = true;
    carry_over();
    return true;
  }
  if (options_.must_be_file) {
    state_ = opened.why;
    return false;
  }
  main_ = std::move(opened.database);
  return go_to_memory(opened.code, opened.why);
}

bool SqliteStore::go_to_memory(const char* code, const std::string& why) {
  if (options_.must_be_file) return false;
  Database memory = open_memory();
  base_ = std::move(main_);
  main_ = std::move(memory);
  main_is_file_ = false;
  state_ = "memory only: " + why;
  warn(code, why + "; results are kept in memory from here on");
  carry_over();
  return true;
}

void SqliteStore::carry_over() {
  Transaction transaction(*main_);
  for (auto& [number, study] : studies_)
    study.id = insert_study(*main_, ensure_key(*main_, study.key, now()), study.row, this_process(), now());
  for (const auto& [key, active] : leases_) adopt_lease(*main_, active.lease, active.request, now());
  transaction.commit();
}

Result<void> SqliteStore::keep_until_tuned(const std::string& build_sha256, const std::string& problem) {
  return plain(run(Wait::work, Access::write, [&](Database& database) {
    Transaction transaction(database);
    keep_ahead(database, build_sha256, problem);
    transaction.commit();
    return Done{};
  }));
}

void SqliteStore::keep_tidy() {
  if (!main_is_file_) return;
  try {
    main_->wait_at_most_ms(0);
    // The file is never smaller than its cubins, and to ask for its size costs nothing.
    too_large_ = main_->integer("PRAGMA page_count") * main_->integer("PRAGMA page_size") > options_.max_bytes;
    if (main_->integer("PRAGMA freelist_count") > kTidyFreePages) main_->execute("PRAGMA incremental_vacuum");
    main_->execute("PRAGMA wal_checkpoint(TRUNCATE)");
  } catch (const SqliteError&) {
    // Best effort: whoever is next does it.
  }
}

}  // namespace jitune::store
