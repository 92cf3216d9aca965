#include "store/travel.hpp"

#include "store/record.hpp"
#include "store/rows.hpp"
#include "store/sqlite_store_run.hpp"
#include "store/text.hpp"

namespace jitune::store {
namespace {

const char* const kImport = "import";  // the strategy of a study that stands for an import

std::string records_sql(bool with_bytes, const std::string& rest) {
  return "SELECT " + winner_columns(with_bytes) + ", " + key_columns() +
         ", coalesce(s.device_name, ''), coalesce(s.driver, ''), CASE s.strategy WHEN 'import' THEN s.note ELSE '' END"
         ", coalesce(o.text, ''), coalesce(o.headers, '[]')"
         " FROM winners w JOIN keys k ON k.key_id = w.key_id JOIN configs c ON c.config_id = w.config_id "
         "LEFT JOIN artifacts a ON a.artifact_id = w.artifact_id LEFT JOIN configs ac ON ac.config_id = a.config_id "
         "LEFT JOIN cubins b ON b.cubin_sha256 = a.cubin_sha256 LEFT JOIN studies s ON s.study_id = w.study_id "
         "LEFT JOIN sources o ON o.source_sha256 = k.source_sha256 " +
         rest;
}

WinnerRecord read_record(Statement& row, const std::string& signing_key) {
  WinnerRecord record;
  if (auto found = read_winner(row)) record.winner = std::move(found->row);
  record.winner.study = 0;
  record.key = read_key(row);
  record.device = row.text();
  record.driver = row.text();
  record.origin = row.text();
  record.source = row.text();
  record.headers = row.text();
  if (record.winner.artifact)
    record.cubin_damaged = clear_if_bad(*record.winner.artifact, signing_key) != CubinFault::none;
  return record;
}

std::optional<WinnerRecord> stored_record(Database& database, const std::string& key_sha256) {
  static const std::string sql = records_sql(true, "WHERE k.key_sha256 = ?");
  Statement row = database.prepare(sql.c_str());
  if (!row.bind(key_sha256).next()) return std::nullopt;
  return read_record(row, database.signing_key());
}

/// A study that says where a winner came from.
int64_t insert_import(Database& database, int64_t key_id, const WinnerRecord& record, int64_t at) {
  database
      .prepare(
          "INSERT INTO studies (key_id, started_at, ended_at, outcome, note, strategy, seed, budget_ms, space, "
          "default_config, device_name, device_uuid, driver, host, pid, jitune, artifacts_before) "
          "VALUES (?1,?2,?2,'won',?3,?4,0,0,'{}','{}',?5,'',?6,'',0,?7,(SELECT coalesce(max(artifact_id), 0) FROM "
          "artifacts))")
      .bind(key_id, at, clean_text(record.origin), kImport, clean_text(record.device), clean_text(record.driver),
            JITUNE_VERSION)
      .run();
  return database.last_id();
}

void keep_text(Database& database, const WinnerRecord& record, int64_t at) {
  if (record.source.empty()) return;
  database.prepare("INSERT OR IGNORE INTO sources (source_sha256, text, headers, first_seen_at) VALUES (?,?,?,?)")
      .bind(record.key.source_sha256, record.source, record.headers.empty() ? "[]" : record.headers, at)
      .run();
}

}  // namespace

std::vector<WinnerRecord> read_records(Database& database, bool with_bytes) {
  static const std::string with = records_sql(true, "ORDER BY k.kernel, k.variant, k.problem, k.arch, k.nvrtc, 2");
  static const std::string without = records_sql(false, "ORDER BY k.kernel, k.variant, k.problem, k.arch, k.nvrtc, 2");
  Statement row = database.prepare(with_bytes ? with.c_str() : without.c_str());
  std::vector<WinnerRecord> records;
  while (row.next()) records.push_back(read_record(row, database.signing_key()));
  return records;
}

void take_in(Database& database, const WinnerRecord& record, int64_t now, Store::TakenIn& counts) {
  const auto stored = stored_record(database, record.key.sha256);
  if (stored && !beats(record, *stored)) {
    ++(stored->winner.pinned && !record.winner.pinned ? counts.kept_pinned : counts.kept_better);
    return;
  }
  const int64_t at = now > 0 ? now : record.winner.decided_at;
  const int64_t key_id = ensure_key(database, record.key, at);
  if (stored) database.prepare("UPDATE winners SET pinned = 0 WHERE key_id = ?").bind(key_id).run();
  const int64_t study = insert_import(database, key_id, record, at);
  put_winner(database, key_id, study, record.winner, record.winner.decided_at);
  keep_text(database, record, at);
  ++(stored ? counts.replaced : counts.added);
}

Result<std::vector<WinnerRecord>> SqliteStore::records(bool with_bytes) {
  return read(
      Wait::work, [&](Database& database) { return read_records(database, with_bytes); },
      [](std::vector<WinnerRecord>& found, std::vector<WinnerRecord> below) {
        found.insert(found.end(), std::make_move_iterator(below.begin()), std::make_move_iterator(below.end()));
        found = reduce(std::move(found));
      });
}

Result<Store::TakenIn> SqliteStore::take_in(const std::vector<WinnerRecord>& records) {
  return run(Wait::work, Access::write, [&](Database& database) {
    TakenIn counts;
    Transaction transaction(database);
    for (const WinnerRecord& record : records) store::take_in(database, record, now(), counts);
    transaction.commit();
    return counts;
  });
}

Result<bool> SqliteStore::set_pinned(const std::string& key_sha256, bool pinned) {
  return run(Wait::work, Access::write, [&](Database& database) {
    Transaction transaction(database);
    database.prepare("UPDATE winners SET pinned = ? WHERE key_id = (SELECT key_id FROM keys WHERE key_sha256 = ?)")
        .bind(pinned, key_sha256)
        .run();
    const bool changed = database.changes() > 0;
    transaction.commit();
    return changed;
  });
}

}  // namespace jitune::store
