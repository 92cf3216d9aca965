#pragma once

#include <unistd.h>

#include "store/sqlite_store.hpp"

// The templates of SqliteStore, for its own two .cpp files.
namespace jitune::store {

/// Stands for the result of work that has none.
struct Done {};

template <class Work>
auto SqliteStore::run(Wait wait, Access access, Work work) -> Result<decltype(work(std::declval<Database&>()))> {
  std::unique_lock<std::mutex> lock(mutex_, std::defer_lock);
  if (pid_ != ::getpid()) return Failure{why_not_usable(access)};
  if (!lock_within(wait, lock)) return Failure{"the database is busy with another thread's work"};
  if (std::string why = why_not_usable(access); !why.empty()) return Failure{std::move(why)};
  for (int attempt = 0;; ++attempt) {
    try {
      if (access == Access::write && main_is_file_ && main_->has_moved()) replace_file();
      main_->wait_at_most_ms(wait == Wait::launch ? 200 : 5000);
      return work(*main_);
    } catch (const SqliteError& error) {
      if (attempt == 3 || !recover(error)) return failure(error);
    }
  }
}

template <class Work>
auto SqliteStore::read_base(Work work) -> std::optional<decltype(work(std::declval<Database&>()))> {
  if (!base_) return std::nullopt;
  try {
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
