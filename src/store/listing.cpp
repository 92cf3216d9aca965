#include "store/rows.hpp"

namespace jitune::store {
namespace {

std::string list_sql(const std::string& rest) {
  return "SELECT " + winner_columns(false) + ", " + key_columns() +
         ", (SELECT count(*) FROM trials t WHERE t.key_id = k.key_id)"
         ", (SELECT count(*) FROM trials t WHERE t.key_id = k.key_id AND t.status = 'ok')"
         ", (SELECT coalesce(s.outcome, '') FROM studies s WHERE s.key_id = k.key_id ORDER BY s.study_id DESC LIMIT 1)"
         ", (SELECT s.device_name FROM studies s WHERE s.key_id = k.key_id ORDER BY s.study_id DESC LIMIT 1)"
         " FROM keys k LEFT JOIN winners w ON w.key_id = k.key_id LEFT JOIN configs c ON c.config_id = w.config_id "
         "LEFT JOIN artifacts a ON a.artifact_id = w.artifact_id LEFT JOIN configs ac ON ac.config_id = a.config_id " +
         rest;
}

std::vector<KeyRow> read_all(Statement& row) {
  std::vector<KeyRow> rows;
  while (row.next()) {
    KeyRow key;
    if (std::optional<FoundWinner> found = read_winner(row)) key.winner = std::move(found->row);
    key.key = read_key(row);
    key.trials = row.integer();
    key.ok_trials = row.integer();
    key.last_outcome = row.text();
    key.device_name = row.text();
    rows.push_back(std::move(key));
  }
  return rows;
}

}  // namespace

std::vector<KeyRow> list_keys(Database& database, const std::string& kernel) {
  static const std::string sql =
      list_sql("WHERE ?1 = '' OR k.kernel = ?1 ORDER BY k.kernel, k.variant, k.problem, k.arch, k.nvrtc, k.key_id");
  Statement row = database.prepare(sql.c_str());
  return read_all(row.bind(kernel));
}

std::vector<KeyRow> keys_by_prefix(Database& database, const std::string& prefix) {
  static const std::string sql = list_sql("WHERE substr(k.key_sha256, 1, length(?1)) = ?1 ORDER BY k.key_sha256");
  Statement row = database.prepare(sql.c_str());
  return read_all(row.bind(prefix));
}

std::vector<KeyRow> related_keys(Database& database, const key::TuningKey& key) {
  static const std::string sql = list_sql(
      "WHERE w.key_id IS NOT NULL AND k.source_sha256 = ? AND k.problem <> ? AND k.kernel = ? AND k.variant = ? AND "
      "k.entry = ? AND k.arch = ? AND k.cc = ? AND k.sm_count = ? AND k.memory_gib = ? AND k.l2_bytes = ? AND "
      "k.max_clock_mhz = ? AND k.max_memory_clock_mhz = ? ORDER BY w.decided_at DESC, k.key_id DESC LIMIT 1000");
  Statement row = database.prepare(sql.c_str());
  row.bind(key.source_sha256, key.problem, key.kernel, key.variant, key.entry, key.arch, key.cc, key.sm_count,
           key.memory_gib, key.l2_bytes, key.max_clock_mhz, key.max_memory_clock_mhz);
  return read_all(row);
}

std::optional<Store::NearKey> nearest_key(Database& database, const key::TuningKey& key) {
  static const std::string candidates =
      "SELECT k.key_id, w.key_id IS NOT NULL, " + key_columns() +
      " FROM keys k LEFT JOIN winners w ON w.key_id = k.key_id WHERE k.kernel = ? ORDER BY k.key_id DESC";
  static const std::string one = list_sql("WHERE k.key_id = ?");
  std::optional<Store::NearKey> nearest;
  int64_t nearest_id = 0;
  bool nearest_has_winner = false;
  {
    Statement row = database.prepare(candidates.c_str());
    row.bind(key.kernel);
    while (row.next()) {
      const int64_t id = row.integer();
      const bool has_winner = row.integer() != 0;
      std::vector<std::string> differences = key::differences(key, read_key(row));
      const bool better = !nearest || differences.size() < nearest->differences.size() ||
                          (differences.size() == nearest->differences.size() && has_winner && !nearest_has_winner);
      if (!better) continue;
      nearest = {{}, std::move(differences)};
      nearest_id = id;
      nearest_has_winner = has_winner;
    }
  }
  if (!nearest) return nearest;
  Statement row = database.prepare(one.c_str());
  std::vector<KeyRow> rows = read_all(row.bind(nearest_id));
  if (rows.empty()) return std::nullopt;
  nearest->row = std::move(rows.front());
  return nearest;
}

void count_rows(Database& database, Store::Health& health) {
  health.keys += database.integer("SELECT count(*) FROM keys");
  health.winners += database.integer("SELECT count(*) FROM winners");
  health.trials += database.integer("SELECT count(*) FROM trials");
  health.artifacts += database.integer("SELECT count(*) FROM artifacts");
  health.cubin_bytes += database.integer("SELECT coalesce(sum(length(cubin)), 0) FROM cubins");
  health.file_bytes += database.integer("PRAGMA page_count") * database.integer("PRAGMA page_size");
}

}  // namespace jitune::store
