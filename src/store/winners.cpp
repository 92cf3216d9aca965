#include "store/rows.hpp"

namespace jitune::store {
namespace {

const char* const kWinnerTables =
    " FROM keys k JOIN winners w ON w.key_id = k.key_id JOIN configs c ON c.config_id = w.config_id "
    "LEFT JOIN artifacts a ON a.artifact_id = w.artifact_id LEFT JOIN configs ac ON ac.config_id = a.config_id "
    "LEFT JOIN cubins b ON b.cubin_sha256 = a.cubin_sha256 ";

}  // namespace

std::string winner_columns(bool with_bytes) {
  return "w.key_id, k.key_sha256, c.params, w.median_us, w.default_us, w.pinned, w.decided_at, w.study_id, k.nvrtc, "
         "k.last_used_at, " +
         artifact_columns(with_bytes);
}

std::optional<FoundWinner> read_winner(Statement& row) {
  FoundWinner found;
  const bool any = row.optional_integer().has_value();
  WinnerRow& winner = found.row;
  winner.key_sha256 = row.text();
  winner.config = row.text();
  winner.median_us = row.real();
  winner.default_us = row.real();
  winner.pinned = row.integer() != 0;
  winner.decided_at = row.integer();
  winner.study = row.integer();
  winner.nvrtc = row.text();
  found.last_used_at = row.integer();
  winner.artifact = read_artifact(row);
  if (!any) return std::nullopt;
  return found;
}

std::optional<FoundWinner> find_winner(Database& database, const std::string& key_sha256) {
  static const std::string sql = "SELECT " + winner_columns(true) + kWinnerTables + "WHERE k.key_sha256 = ?";
  Statement row = database.prepare(sql.c_str());
  if (!row.bind(key_sha256).next()) return std::nullopt;
  return read_winner(row);
}

std::optional<FoundWinner> find_compatible(Database& database, const key::TuningKey& key) {
  static const std::string sql =
      "SELECT " + winner_columns(true) + kWinnerTables +
      "WHERE k.source_sha256 = ? AND k.problem = ? AND k.kernel = ? AND k.variant = ? AND k.entry = ? AND k.options = "
      "? AND "
      "k.launch_sha256 = ? AND k.arch = ? AND k.cc = ? AND k.sm_count = ? AND k.memory_gib = ? AND k.l2_bytes = ? AND "
      "k.max_clock_mhz = ? AND k.max_memory_clock_mhz = ? AND k.policy = ? AND k.environment = ? AND k.callables = ? "
      "AND "
      "k.schema = ? AND k.nvrtc <> ? ORDER BY w.decided_at DESC, w.key_id DESC LIMIT 1";
  Statement row = database.prepare(sql.c_str());
  row.bind(key.source_sha256, key.problem, key.kernel, key.variant, key.entry, key.options, key.launch_sha256, key.arch,
           key.cc, key.sm_count, key.memory_gib, key.l2_bytes, key.max_clock_mhz, key.max_memory_clock_mhz, key.policy,
           key.environment, key.callables, key.schema, key.nvrtc);
  if (!row.next()) return std::nullopt;
  return read_winner(row);
}

int winner_state(Database& database, const std::string& key_sha256) {
  Statement row =
      database.prepare("SELECT w.pinned FROM keys k JOIN winners w ON w.key_id = k.key_id WHERE k.key_sha256 = ?");
  if (!row.bind(key_sha256).next()) return 0;
  return row.integer() == 0 ? 1 : 2;
}

bool stored_is_better(Database& database, int64_t key_id, int64_t study, const WinnerRow& winner) {
  Statement row = database.prepare(
      "SELECT c.params, w.median_us, w.default_us, EXISTS (SELECT 1 FROM trials t WHERE t.study_id = ? AND t.config_id "
      "= w.config_id) FROM winners w JOIN configs c ON c.config_id = w.config_id WHERE w.key_id = ?");
  if (!row.bind(study, key_id).next()) return false;
  const std::string config = row.text();
  const double stored_us = row.real(), stored_default_us = row.real();
  // What the study tried itself has lost to its winner under the same conditions.
  if (config == winner.config || row.integer() != 0 || stored_us <= 0) return false;
  if (stored_default_us > 0 && winner.default_us > 0)
    return stored_us / stored_default_us < winner.median_us / winner.default_us;
  return stored_us < winner.median_us;
}

void put_winner(Database& database, int64_t key_id, int64_t study, const WinnerRow& winner, int64_t now) {
  std::optional<int64_t> artifact_id;
  Statement source = database.prepare("SELECT source_sha256 FROM keys WHERE key_id = ?");
  source.bind(key_id).next();
  if (winner.artifact) artifact_id = keep_artifact(database, *winner.artifact, source.text(), now);
  database
      .prepare(
          "INSERT INTO winners (key_id, study_id, config_id, artifact_id, median_us, default_us, pinned, decided_at) "
          "VALUES (?,?,?,?,nullif(?, 0),nullif(?, 0),?,?) ON CONFLICT (key_id) DO UPDATE SET study_id = "
          "excluded.study_id, "
          "config_id = excluded.config_id, artifact_id = excluded.artifact_id, median_us = excluded.median_us, "
          "default_us = excluded.default_us, pinned = excluded.pinned, decided_at = excluded.decided_at WHERE pinned = "
          "0")
      .bind(key_id, study, ensure_config(database, winner.config), artifact_id, winner.median_us, winner.default_us,
            winner.pinned, now)
      .run();
  database.prepare("DELETE FROM misses WHERE key_sha256 = (SELECT key_sha256 FROM keys WHERE key_id = ?)")
      .bind(key_id)
      .run();
}

}  // namespace jitune::store
