#include "store/evict.hpp"

#include "store/sqlite_store_run.hpp"

namespace jitune::store {
namespace {

constexpr int64_t kOldSeconds = 90 * 86400;

// What of a cubin `b` holds it back.
const char* const kFreeCubin =
    " NOT EXISTS (SELECT 1 FROM artifacts a JOIN winners w ON w.artifact_id = a.artifact_id WHERE a.cubin_sha256 = "
    "b.cubin_sha256) AND NOT EXISTS (SELECT 1 FROM artifacts a JOIN ahead h ON h.build_sha256 = a.build_sha256 WHERE "
    "a.cubin_sha256 = b.cubin_sha256) AND NOT EXISTS (SELECT 1 FROM artifacts a JOIN trials t ON t.artifact_id = "
    "a.artifact_id JOIN studies s ON s.study_id = t.study_id JOIN keys k ON k.key_id = s.key_id JOIN leases l ON "
    "l.key_sha256 = k.key_sha256 WHERE a.cubin_sha256 = b.cubin_sha256 AND s.ended_at IS NULL) ";

const char* const kFreeKey =
    " NOT EXISTS (SELECT 1 FROM winners w WHERE w.key_id = k.key_id AND w.pinned = 1) "
    "AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.key_sha256 = k.key_sha256) ";

int64_t bytes_of(Database& database, const std::string& cubin_sha256) {
  Statement row = database.prepare("SELECT length(cubin) FROM cubins WHERE cubin_sha256 = ?");
  return row.bind(cubin_sha256).next() ? row.integer() : 0;
}

/// Drops a cubin if nothing holds it back (any more).
int64_t drop_free_cubin(Database& database, const std::string& cubin_sha256, Store::Evicted& counts) {
  static const std::string sql = std::string("DELETE FROM cubins AS b WHERE b.cubin_sha256 = ? AND") + kFreeCubin;
  const int64_t bytes = bytes_of(database, cubin_sha256);
  database.prepare(sql.c_str()).bind(cubin_sha256).run();
  if (database.changes() == 0) return 0;
  ++counts.cubins;
  return bytes;
}

int64_t drop_key(Database& database, int64_t key_id, Store::Evicted& counts) {
  static const std::string sql = std::string("DELETE FROM keys AS k WHERE k.key_id = ? AND") + kFreeKey;
  std::string cubin;
  {
    Statement row = database.prepare(
        "SELECT a.cubin_sha256 FROM winners w JOIN artifacts a ON a.artifact_id = w.artifact_id WHERE w.key_id = ?");
    if (row.bind(key_id).next()) cubin = row.text();
  }
  database.prepare(sql.c_str()).bind(key_id).run();
  if (database.changes() == 0) return 0;
  ++counts.keys;
  return cubin.empty() ? 0 : drop_free_cubin(database, cubin, counts);
}

int64_t count_run(Database& database, const char* sql, int64_t before) {
  database.prepare(sql).bind(before, kEvictionBatch).run();
  return database.changes();
}

int64_t count_run(Database& database, const char* sql) {
  database.prepare(sql).bind(kEvictionBatch).run();
  return database.changes();
}

}  // namespace

int64_t cubin_bytes(Database& database) {
  return database.integer("SELECT coalesce(sum(length(cubin)), 0) FROM cubins");
}

std::vector<std::string> loser_cubins(Database& database) {
  static const std::string sql = std::string("SELECT b.cubin_sha256 FROM cubins b WHERE") + kFreeCubin +
                                 "ORDER BY (SELECT coalesce(max(a.last_used_at), 0) FROM artifacts a WHERE "
                                 "a.cubin_sha256 = b.cubin_sha256), b.cubin_sha256";
  Statement row = database.prepare(sql.c_str());
  std::vector<std::string> cubins;
  while (row.next()) cubins.push_back(row.text());
  return cubins;
}

int64_t drop_loser_cubins(Database& database, const std::vector<std::string>& cubins, size_t& at, int64_t excess_bytes,
                          Store::Evicted& counts) {
  Transaction transaction(database);
  int64_t freed = 0;
  for (int i = 0; i < kEvictionBatch && at < cubins.size() && freed < excess_bytes; ++i)
    freed += drop_free_cubin(database, cubins[at++], counts);
  transaction.commit();
  return freed;
}

std::vector<int64_t> evictable_keys(Database& database) {
  static const std::string sql =
      std::string(
          "SELECT k.key_id FROM keys k JOIN winners w ON w.key_id = k.key_id JOIN artifacts a ON a.artifact_id = "
          "w.artifact_id JOIN cubins b ON b.cubin_sha256 = a.cubin_sha256 WHERE") +
      kFreeKey + "ORDER BY k.last_used_at, k.key_id";
  Statement row = database.prepare(sql.c_str());
  std::vector<int64_t> keys;
  while (row.next()) keys.push_back(row.integer());
  return keys;
}

int64_t drop_keys(Database& database, const std::vector<int64_t>& keys, size_t& at, int64_t excess_bytes,
                  Store::Evicted& counts) {
  Transaction transaction(database);
  int64_t freed = 0;
  for (int i = 0; i < kEvictionBatch && at < keys.size() && freed < excess_bytes; ++i)
    freed += drop_key(database, keys[at++], counts);
  transaction.commit();
  return freed;
}

bool drop_aged(Database& database, int64_t now, Store::Evicted& counts) {
  const int64_t before = now - kOldSeconds;
  Transaction transaction(database);
  const int64_t studies = count_run(
      database,
      "DELETE FROM studies WHERE study_id IN (SELECT s.study_id FROM studies s WHERE s.started_at < ? AND NOT EXISTS "
      "(SELECT 1 FROM winners w WHERE w.study_id = s.study_id) AND (SELECT count(*) FROM studies n WHERE n.key_id = "
      "s.key_id AND (n.started_at, n.study_id) > (s.started_at, s.study_id)) >= 3 LIMIT ?)",
      before);
  const int64_t failures = count_run(
      database,
      "DELETE FROM failures_seen WHERE (build_sha256, problem_sha256) IN (SELECT build_sha256, problem_sha256 FROM "
      "failures_seen WHERE last_at < ? LIMIT ?)",
      before);
  // A compilation whose trial is not written yet is a fresh one.
  const int64_t artifacts = count_run(
      database,
      "DELETE FROM artifacts WHERE artifact_id IN (SELECT a.artifact_id FROM artifacts a WHERE a.last_used_at < ? AND "
      "NOT EXISTS (SELECT 1 FROM winners w WHERE w.artifact_id = a.artifact_id) AND NOT EXISTS (SELECT 1 FROM trials t "
      "WHERE t.artifact_id = a.artifact_id) AND NOT EXISTS (SELECT 1 FROM cubins b WHERE b.cubin_sha256 = "
      "a.cubin_sha256) LIMIT ?)",
      now - 86400);
  int64_t rest = count_run(
      database,
      "DELETE FROM configs WHERE config_id IN (SELECT c.config_id FROM configs c WHERE NOT EXISTS (SELECT 1 FROM "
      "trials t WHERE t.config_id = c.config_id) AND NOT EXISTS (SELECT 1 FROM artifacts a WHERE a.config_id = "
      "c.config_id) AND NOT EXISTS (SELECT 1 FROM winners w WHERE w.config_id = c.config_id) LIMIT ?)");
  rest += count_run(database,
                    "DELETE FROM sources WHERE source_sha256 IN (SELECT o.source_sha256 FROM sources o WHERE "
                    "o.first_seen_at < ? AND NOT EXISTS (SELECT 1 FROM keys k WHERE k.source_sha256 = o.source_sha256) "
                    "AND o.source_sha256 NOT IN (SELECT source_sha256 FROM artifacts) LIMIT ?)",
                    before);
  rest += count_run(database,
                    "DELETE FROM definitions WHERE definition_sha256 IN (SELECT d.definition_sha256 FROM definitions d "
                    "WHERE d.first_seen_at < ? AND d.definition_sha256 NOT IN (SELECT definition_sha256 FROM misses) "
                    "LIMIT ?)",
                    before);
  transaction.commit();
  counts.studies += studies;
  counts.failures += failures;
  counts.artifacts += artifacts;
  return studies + failures + artifacts + rest > 0;
}

Result<Store::Evicted> SqliteStore::collect(int64_t max_cubin_bytes) {
  Evicted counts;
  int64_t excess = 0;
  std::vector<std::string> losers;
  // The lock is free between the pieces: launches come in.
  auto begun = run(Wait::work, Access::write, [&](Database& database) {
    while (drop_aged(database, now(), counts)) {
    }
    counts.file_bytes_before = database.integer("PRAGMA page_count") * database.integer("PRAGMA page_size");
    counts.cubin_bytes_before = cubin_bytes(database);
    excess = counts.cubin_bytes_before - max_cubin_bytes;
    if (excess > 0) losers = loser_cubins(database);
    return Done{};
  });
  if (!begun) return begun.failure();
  for (size_t at = 0; excess > 0 && at < losers.size();) {
    auto freed = run(Wait::work, Access::write,
                     [&](Database& database) { return drop_loser_cubins(database, losers, at, excess, counts); });
    if (!freed) return freed.failure();
    excess -= *freed;
  }
  std::vector<int64_t> keys;
  if (excess > 0) {
    auto found = run(Wait::work, Access::read, [](Database& database) { return evictable_keys(database); });
    if (!found) return found.failure();
    keys = std::move(*found);
  }
  for (size_t at = 0; excess > 0 && at < keys.size();) {
    auto freed = run(Wait::work, Access::write,
                     [&](Database& database) { return drop_keys(database, keys, at, excess, counts); });
    if (!freed) return freed.failure();
    excess -= *freed;
  }
  auto ended = run(Wait::work, Access::write, [&](Database& database) {
    while (drop_aged(database, now(), counts)) {
    }
    counts.cubin_bytes_after = cubin_bytes(database);
    if (main_is_file_) {
      database.execute("PRAGMA incremental_vacuum");
      // Best effort: a reader in the way only puts it off.
      database.execute("PRAGMA wal_checkpoint(TRUNCATE)");
    }
    counts.file_bytes_after = database.integer("PRAGMA page_count") * database.integer("PRAGMA page_size");
    return Done{};
  });
  if (!ended) return ended.failure();
  return counts;
}

}  // namespace jitune::store
