#include <algorithm>

#include "store/sqlite_store_run.hpp"

// Leases and studies. What a running study writes is never lost to a file that others keep locked: see write_or_hold.
namespace jitune::store {
namespace {

constexpr std::chrono::milliseconds kHeldPatience{200};
constexpr int64_t kNumbersOfNoFile = int64_t{1} << 62;
constexpr size_t kMostHeldBytes = size_t{64} << 20;  // of cubins

Failure lost(Database& database, const Lease& lease, int64_t now) {
  return {"the lease on key " + lease.key_sha256.substr(0, 12) + " is not ours any more (held by " +
          lease_holder(database, lease.key_sha256, now) + ")"};
}

}  // namespace

bool SqliteStore::may_hold(const SqliteError& error) {
  return error.trouble() == Trouble::busy && main_is_file_ && !may_try_again();
}

void SqliteStore::hold(HeldWork work, size_t bytes) {
  warnings_.push_back({"database_busy", "",
                       "'" + path_ +
                           "' is kept locked by another process; what studies find is kept in memory and written "
                           "when it is free",
                       path_ + " studies"});
  held_.push_back(std::move(work));
  held_bytes_ += bytes;
}

Result<void> SqliteStore::write_or_hold(Hold how, HeldWork work, size_t bytes) {
  const Wait wait = how == Hold::soon ? Wait::brief : Wait::work;
  return plain(run(wait, Access::write, [&](Database& database) -> Result<void> {
    try {
      // Who has waited for long once does not wait so long again, trial after trial.
      if (!held_.empty() && how == Hold::trial)
        database.wait_at_most_ms(static_cast<int>(std::min(kHeldPatience, options_.patience).count()));
      write_held(database);
      return work(database);
    } catch (const SqliteError& error) {
      if (!may_hold(error) || held_bytes_ + bytes > kMostHeldBytes) throw;
      hold(std::move(work), bytes);
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
  held_bytes_ = 0;
}

/// Where the file stays locked, nobody else can claim the key either: the claim is kept with what the study will find,
/// and made good before any of it is written. If another one has the key then, the study's result is dropped.
Result<Claim> SqliteStore::claim(const key::TuningKey& key, std::chrono::milliseconds budget, bool force) {
  return run(Wait::work, Access::write, [&](Database& database) {
    const int below = read_base([&](Database& base) { return winner_state(base, key.sha256); }).value_or(0);
    Claim claim;
    claim.state = Claim::State::answered;
    if (below == 2 || (below == 1 && !force)) return claim;
    const LeaseRequest request{key.sha256, budget, force, this_process()};
    try {
      // No budget is spent on waiting.
      database.wait_at_most_ms(static_cast<int>(std::min(patience_, std::max(budget, kLaunchPatience)).count()));
      write_held(database);
      claim = store::claim(database, request, now());
    } catch (const SqliteError& error) {
      if (!may_hold(error)) throw;
      claim = would_claim(database, request, now());
      if (claim.state != Claim::State::acquired) return claim;
      hold([this, request](Database& later) -> Result<void> {
        const Claim made = store::claim(later, request, now());
        if (made.state == Claim::State::acquired) return {};
        return lost(later, {request.key_sha256, request.token}, now());
      });
    }
    if (claim.state == Claim::State::acquired) leases_[key.sha256] = {claim.lease, request};
    return claim;
  });
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
  return write_or_hold(Hold::last, [this, lease](Database& database) -> Result<void> {
    Transaction transaction(database);
    release_lease(database, lease);
    transaction.commit();
    leases_.erase(lease.key_sha256);
    return {};
  });
}

Result<int64_t> SqliteStore::begin_study(const key::TuningKey& key, const StudyRow& study) {
  const auto insert = [this, key, study, at = now()](Database& database) {
    Transaction transaction(database);
    const int64_t id = insert_study(database, ensure_key(database, key, at), study, this_process(), at);
    transaction.commit();
    return id;
  };
  return run(Wait::work, Access::write, [&](Database& database) {
    int64_t id = 0;  // none yet
    try {
      if (!held_.empty()) database.wait_at_most_ms(static_cast<int>(std::min(kHeldPatience, patience_).count()));
      write_held(database);
      id = insert(database);
    } catch (const SqliteError& error) {
      if (!may_hold(error)) throw;
    }
    // After a change of files a number may have been given out before. What is still without one of the file's own gets
    // one that no file has.
    const int64_t least = id > 0 ? id : kNumbersOfNoFile;
    const int64_t number = studies_.empty() ? least : std::max(least, studies_.rbegin()->first + 1);
    studies_[number] = {key, study, id};
    if (id == 0)
      hold([this, insert, number](Database& later) -> Result<void> {
        const auto active = studies_.find(number);
        if (active != studies_.end() && active->second.id == 0) active->second.id = insert(later);
        return {};
      });
    return number;
  });
}

Result<bool> SqliteStore::add_trial(int64_t study, const Lease& lease, const TrialRow& trial) {
  const auto is_lost = std::make_shared<bool>(false);
  const auto added =
      write_or_hold(Hold::trial, [this, study, lease, trial, at = now(), is_lost](Database& database) -> Result<void> {
        const auto active = studies_.find(study);
        Transaction transaction(database);
        insert_trial(database, active == studies_.end() ? study : active->second.id, trial, at);
        *is_lost = !renew_lease(database, lease, now());
        transaction.commit();
        if (!*is_lost) return {};
        return Failure{"a trial was kept, but " + lost(database, lease, now()).message};
      });
  if (*is_lost) return false;
  if (!added) return added.failure();
  return true;
}

Result<void> SqliteStore::end_study(int64_t study, const Lease& lease, const StudyEnd& end,
                                    const std::optional<WinnerRow>& winner) {
  if (winner &&
      !(winner->median_us > 0))  // without a time are only those that come from elsewhere; NaN would be stored so
    return Failure{"a study's winner needs a time: the end of study " + std::to_string(study) + " was not stored"};
  Result<void> ended = write_or_hold(Hold::last, [this, study, lease, end, winner, at = now()](Database& database) {
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
