#pragma once

#include <unistd.h>

#include "store/sqlite_store.hpp"

// The templates of SqliteStore, for its own .cpp files.
namespace jitune::store {

/// Stands for the result of work that has none.
struct Done {};

inline Result<void> plain(Result<Done> result) {
  return result ? Result<void>() : Result<void>(result.failure());
}
inline Result<void> plain(Result<Result<void>> result) {
  return result ? std::move(*result) : Result<void>(result.failure());
}

template <class Work>
auto SqliteStore::run(Wait wait, Access access, Work work) -> Result<decltype(work(std::declval<Database&>()))> {
  if (pid_ != ::getpid()) return Failure{why_not_usable(access)};
  std::unique_lock<std::mutex> lock(mutex_, std::defer_lock);
  if (!lock_within(wait, lock)) return Failure{"the database is busy with another thread's work"};
  auto result = run_locked(wait, access, work);
  std::vector<Warning> warnings;
  warnings.swap(warnings_);
  lock.unlock();
  say(warnings);
  return result;
}

template <class Work>
auto SqliteStore::run_locked(Wait wait, Access access, Work work) -> Result<decltype(work(std::declval<Database&>()))> {
  if (std::string why = why_not_usable(access); !why.empty()) return Failure{std::move(why)};
  patience_ = wait == Wait::work ? options_.patience : std::chrono::milliseconds(locked_ ? 0 : 200);
  for (int attempt = 0;; ++attempt) {
    try {
      const bool moved = main_ && access == Access::write && main_is_file_ && main_->has_moved();
      if ((moved || !main_) && !replace_file()) return Failure{state_};
      main_->wait_at_most_ms(static_cast<int>(patience_.count()), wait == Wait::launch);
      if (access == Access::write) found_.clear();
      if (!signing_key_.empty() && main_->signing_key().empty()) main_->sign_with(signing_key_);
      auto result = work(*main_);
      if (access == Access::write && held_.empty()) locked_ = false;
      return result;
    } catch (const SqliteError& error) {
      if (wait == Wait::launch && main_is_file_ && error.trouble() == Trouble::busy) {
        if (!locked_)
          warnings_.push_back({"database_busy", "",
                               "'" + path_ +
                                   "' is kept locked by another process; what launches would write is left out "
                                   "until it is free",
                               path_});
        locked_ = true;
      }
      if (attempt == 3 || !recover(error)) return failure(error);
    }
  }
}

template <class Work>
auto SqliteStore::read_base(Work work) -> std::optional<decltype(work(std::declval<Database&>()))> {
  if (!base_) return std::nullopt;
  try {
    if (!signing_key_.empty()) base_->sign_with(signing_key_);
    return work(*base_);
  } catch (const SqliteError&) {
    base_.reset();  // there was one warning about the file already
    return std::nullopt;
  }
}

template <class Work, class Merge>
auto SqliteStore::read(Wait wait, Work work, Merge merge) -> Result<decltype(work(std::declval<Database&>()))> {
  return run(wait, Access::read, [&](Database& database) {
    auto found = work(database);
    if (auto below = read_base(work)) merge(found, std::move(*below));
    return found;
  });
}

}  // namespace jitune::store
