#include <algorithm>

#include "store/rows.hpp"

namespace jitune::store {
namespace {

/// Longer than any wait for the file, and what clocks of several hosts may be apart.
constexpr int64_t kClockSlackSeconds = 60;

struct Holder {
  std::string token;
  ProcessId process;
  int64_t budget_ms = 0, claimed_at = 0, expires_at = 0;

  std::string text(int64_t now) const {
    return "pid " + std::to_string(process.pid) + " on " + process.host + ", " +
           std::to_string(std::max<int64_t>(now - claimed_at, 0)) + " s ago";
  }
};

std::optional<Holder> read_holder(Database& database, const std::string& key_sha256) {
  Statement row = database.prepare(
      "SELECT holder, host, boot_id, pid_namespace, pid, pid_start, budget_ms, claimed_at, expires_at FROM leases "
      "WHERE key_sha256 = ?");
  if (!row.bind(key_sha256).next()) return std::nullopt;
  Holder holder;
  holder.token = row.text();
  holder.process.host = row.text();
  holder.process.boot_id = row.text();
  holder.process.pid_namespace = row.integer();
  holder.process.pid = row.integer();
  holder.process.start = row.integer();
  holder.budget_ms = row.integer();
  holder.claimed_at = row.integer();
  holder.expires_at = row.integer();
  return holder;
}

/// Twice the budget, in whole seconds that are never too few.
int64_t life_seconds(int64_t budget_ms) {
  return std::max<int64_t>(1, (2 * budget_ms + 999) / 1000);
}

bool is_honoured(const Holder& holder, const ProcessId& here, int64_t now) {
  if (now > holder.expires_at) return false;
  // A clock that has been set back must not lend a lease more life than it can have been given. `now` was read before
  // the wait for the file's lock, in which the holder may have got or renewed its lease: that is no clock set back.
  if (holder.expires_at - now > life_seconds(holder.budget_ms) + kClockSlackSeconds) return false;
  return liveness(holder.process, here) != Liveness::dead;
}

void write_lease(Database& database, const char* sql, const Lease& lease, const LeaseRequest& request, int64_t now) {
  const int64_t budget_ms = request.budget.count();
  database.prepare(sql)
      .bind(lease.key_sha256, lease.holder, request.process.host, request.process.boot_id,
            request.process.pid_namespace, request.process.pid, request.process.start, budget_ms, now, now,
            now + life_seconds(budget_ms))
      .run();
}

}  // namespace

Claim would_claim(Database& database, const LeaseRequest& request, int64_t now) {
  Claim claim;
  const int winner = winner_state(database, request.key_sha256);
  if (winner == 2 || (winner == 1 && !request.force)) {
    claim.state = Claim::State::answered;
    return claim;
  }
  if (const std::optional<Holder> holder = read_holder(database, request.key_sha256);
      holder && holder->token != request.token && is_honoured(*holder, request.process, now)) {
    claim.state = Claim::State::held;
    claim.holder_text = holder->text(now);
    return claim;
  }
  claim.lease = {request.key_sha256, request.token};
  return claim;
}

Claim claim(Database& database, const LeaseRequest& request, int64_t now) {
  Transaction transaction(database);
  Claim claim = would_claim(database, request, now);
  if (claim.state != Claim::State::acquired) return claim;
  write_lease(database, "INSERT OR REPLACE INTO leases VALUES (?,?,?,?,?,?,?,?,?,?,?)", claim.lease, request, now);
  transaction.commit();
  return claim;
}

bool renew_lease(Database& database, const Lease& lease, int64_t now) {
  Statement row = database.prepare("SELECT budget_ms FROM leases WHERE key_sha256 = ? AND holder = ?");
  if (!row.bind(lease.key_sha256, lease.holder).next()) return false;
  database.prepare("UPDATE leases SET renewed_at = ?, expires_at = ? WHERE key_sha256 = ? AND holder = ?")
      .bind(now, now + life_seconds(row.integer()), lease.key_sha256, lease.holder)
      .run();
  return database.changes() == 1;
}

bool release_lease(Database& database, const Lease& lease) {
  database.prepare("DELETE FROM leases WHERE key_sha256 = ? AND holder = ?").bind(lease.key_sha256, lease.holder).run();
  return database.changes() == 1;
}

void adopt_lease(Database& database, const Lease& lease, const LeaseRequest& request, int64_t now) {
  write_lease(database, "INSERT OR IGNORE INTO leases VALUES (?,?,?,?,?,?,?,?,?,?,?)", lease, request, now);
}

std::string lease_holder(Database& database, const std::string& key_sha256, int64_t now) {
  const std::optional<Holder> holder = read_holder(database, key_sha256);
  return holder ? holder->text(now) : std::string("nobody");
}

}  // namespace jitune::store
