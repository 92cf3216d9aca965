#pragma once

#include <unistd.h>

#include <algorithm>

#include "store/sqlite_store.hpp"

// The templates of SqliteStore, for its own .cpp files.
namespace jitune::store {

inline constexpr std::chrono::milliseconds kLaunchPatience{200};

/// How much of the time is left.
inline std::chrono::milliseconds until(Clock::time_point deadline) {
  return std::max(std::chrono::milliseconds(0), std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()));
}

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
  auto deadline = Clock::now() + kLaunchPatience;  // of anybody else it counts from when he has our lock
  for (bool first = true;; first = false) {
    std::unique_lock<std::mutex> lock(mutex_, std::defer_lock);
    if (!lock_within(wait, access, lock)) return Failure{"the database is busy with another thread's work"};
    if (first && wait != Wait::launch) deadline = Clock::now() + (wait == Wait::work ? options_.patience : brief());
    deadline_ = deadline;
    auto result = run_locked(wait, access, work);
    std::vector<Warning> warnings;
    warnings.swap(warnings_);
    lock.unlock();
    say(warnings);
    if (result) return std::move(*result);
  }
}

template <class Work>
auto SqliteStore::run_locked(Wait wait, Access access, Work work)
    -> std::optional<Result<decltype(work(std::declval<Database&>()))>> {
  using Answer = Result<decltype(work(std::declval<Database&>()))>;
  if (std::string why = why_not_usable(access); !why.empty()) return Answer(Failure{std::move(why)});
  in_launch_ = wait == Wait::launch;
  patience_ = in_launch_ && locked_ ? std::chrono::milliseconds(0) : until(deadline_);
  for (int attempt = 0;; ++attempt) {
    try {
      const bool moved = main_ && access == Access::write && main_is_file_ && main_->has_moved();
      if ((moved || !main_) && !replace_file()) return Answer(Failure{state_});
      main_->give_way_to(&waiting_);
      main_->wait_at_most_ms(static_cast<int>(patience_.count()), in_launch_);
      if (access == Access::write) forget_found();
      if (!signing_key_.empty() && main_->signing_key().empty()) main_->sign_with(signing_key_);
      auto result = work(*main_);
      if (access == Access::write && held_.empty()) locked_ = false;
      return Answer(std::move(result));
    } catch (const SqliteError& error) {
      if (error.trouble() == Trouble::busy && may_try_again()) return std::nullopt;
      if (in_launch_ && main_is_file_ && error.trouble() == Trouble::busy) {
        if (!locked_)
          warnings_.push_back({"database_busy", "",
                               "'" + path_ +
                                   "' is kept locked by another process; what launches would write is left out "
                                   "until it is free",
                               path_});
        locked_ = true;
      }
      if (attempt == 3 || !recover(error)) return Answer(failure(error));
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
