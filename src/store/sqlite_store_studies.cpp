#include <algorithm>

#include "store/sqlite_store_run.hpp"

// Leases and studies. What a running study writes is never lost to a file that others keep locked: see write_or_hold.
namespace jitune::store {
namespace {

constexpr std::chrono::milliseconds kHeldPatience{200};

Failure lost(Database& database, const Lease& lease, int64_t now) {
  return {"the lease on key " + lease.key_sha256.substr(0, 12) + " is not ours any more (held by " +
          lease_holder(database, lease.key_sha256, now) + ")"};
}

}  // namespace

Result<void> SqliteStore::write_or_hold(bool last_chance, std::function<Result<void>(Database&)> work) {
  return plain(run(Wait::work, Access::write, [&](Database& database) -> Result<void> {
    try {
      // Who has waited for long once does not wait so long again, trial after trial.
      if (!held_.empty() && !last_chance)
        database.wait_at_most_ms(static_cast<int>(std::min(kHeldPatience, options_.patience).count()));
      write_held(database);
      return work(database);
    } catch (const SqliteError& error) {
      if (error.trouble() != Trouble::busy || !main_is_file_) throw;
      warnings_.push_back({"database_busy", "",
                           "'" + path_ +
                               "' is kept locked by another process; what studies find is kept in memory and written "
                               "when it is free",
                           path_ + " studies"});
      held_.push_back(std::move(work));
      return {};
    }
  }));
}

void SqliteStore::write_held(Database& database) {
  while (!held_.empty()) {
    try {
      if (const Result<void> written = held_.front()(database); !written) warn("store_write", written.error());
    } catch (const SqliteError& error) {
      if (error.trouble() != Trouble::refused) throw;
      warn("store_write", "what was kept while '" + path_ + "' was locked is refused: " + error.what());
    }
    held_.pop_front();
  }
}

Result<void> SqliteStore::renew(const Lease& lease) {
  return plain(run(Wait::work, Access::write, [&](Database& database) -> Result<void> {
    Transaction transaction(database);
    if (!renew_lease(database, lease, now())) return lost(database, lease, now());
    transaction.commit();
    return {};
  }));
}

Result<void> SqliteStore::release(const Lease& lease) {
  return write_or_hold(true, [this, lease](Database& database) -> Result<void> {
    Transaction transaction(database);
    release_lease(database, lease);
    transaction.commit();
    leases_.erase(lease.key_sha256);
    return {};
  });
}

Result<int64_t> SqliteStore::begin_study(const key::TuningKey& key, const StudyRow& study) {
  return run(Wait::work, Access::write, [&](Database& database) {
    write_held(database);
    Transaction transaction(database);
    const int64_t id = insert_study(database, ensure_key(database, key, now()), study, this_process(), now());
    transaction.commit();
    // After a change of files a number may have been given out before.
    const int64_t number = studies_.empty() ? id : std::max(id, studies_.rbegin()->first + 1);
    studies_[number] = {key, study, id};
    return number;
  });
}

Result<void> SqliteStore::add_trial(int64_t study, const Lease& lease, const TrialRow& trial) {
  return write_or_hold(false, [this, study, lease, trial, at = now()](Database& database) -> Result<void> {
    const auto active = studies_.find(study);
    Transaction transaction(database);
    insert_trial(database, active == studies_.end() ? study : active->second.id, trial, at);
    const bool held = renew_lease(database, lease, now());
    transaction.commit();
    if (held) return {};
    return Failure{"the trial was kept, but " + lost(database, lease, now()).message + ": stop this study"};
  });
}

Result<void> SqliteStore::end_study(int64_t study, const Lease& lease, const StudyEnd& end,
                                    const std::optional<WinnerRow>& winner) {
  if (winner &&
      !(winner->median_us > 0))  // without a time are only those that come from elsewhere; NaN would be stored so
    return Failure{"a study's winner needs a time: the end of study " + std::to_string(study) + " was not stored"};
  Result<void> ended = write_or_hold(true, [this, study, lease, end, winner, at = now()](Database& database) {
    return commit_end(database, study, lease, end, winner, at);
  });
  if (too_large_.exchange(false)) (void)collect(options_.max_bytes);
  return ended;
}

Result<void> SqliteStore::commit_end(Database& database, int64_t study, const Lease& lease, const StudyEnd& end,
                                     const std::optional<WinnerRow>& winner, int64_t at) {
  const auto active = studies_.find(study);
  const int64_t id = active == studies_.end() ? study : active->second.id;
  Result<void> result;
  {
    Transaction transaction(database);
    std::string key_sha256;
    const int64_t key_id = key_of_study(database, id, key_sha256);
    if (key_id == 0) return Failure{"study " + std::to_string(study) + " is not in the database"};
    const Failure theirs = lost(database, lease, now());
    const bool held = lease.key_sha256 == key_sha256 && release_lease(database, lease);
    if (winner && !held) {
      result = Failure{"the result of study " + std::to_string(study) + " was dropped: " + theirs.message};
      close_study(database, id, {"cancelled", theirs.message}, at);
    } else if (winner && !stored_is_better(database, key_id, id, *winner)) {
      put_winner(database, key_id, id, *winner, at);
      close_study(database, id, end, at);
    } else {
      StudyEnd told = end;
      if (winner) told.note += std::string(told.note.empty() ? "" : "; ") + "a better result was stored and stays";
      close_study(database, id, told, at);
    }
    drop_losers_cubins(database, id);
    // A study that its budget ended goes on another time and wants what is left.
    if (winner && held && (end.outcome == "won" || end.outcome == "default_kept")) release_ahead(database, key_id);
    transaction.commit();
  }
  if (active != studies_.end()) studies_.erase(active);
  leases_.erase(lease.key_sha256);
  keep_tidy();
  return result;
}

}  // namespace jitune::store
