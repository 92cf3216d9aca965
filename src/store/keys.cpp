#include "store/rows.hpp"
#include "store/text.hpp"

namespace jitune::store {

int64_t ensure_key(Database& database, const key::TuningKey& key, int64_t now) {
  Statement find = database.prepare("SELECT key_id FROM keys WHERE key_sha256 = ?");
  if (find.bind(key.sha256).next()) return find.integer();
  database
      .prepare(
          "INSERT INTO keys (key_sha256, kernel, variant, source_sha256, entry, options, launch_sha256, problem, arch, "
          "cc, sm_count, memory_gib, l2_bytes, max_clock_mhz, max_memory_clock_mhz, nvrtc, policy, environment, "
          "callables, schema, created_at, last_used_at) "
          "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)")
      .bind(key.sha256, clean_text(key.kernel), clean_text(key.variant), key.source_sha256, clean_text(key.entry),
            key.options, key.launch_sha256, key.problem, clean_text(key.arch), key.cc, key.sm_count, key.memory_gib,
            key.l2_bytes, key.max_clock_mhz, key.max_memory_clock_mhz, clean_text(key.nvrtc), clean_text(key.policy),
            key.environment, key.callables, key.schema, now, now)
      .run();
  return database.last_id();
}

int64_t ensure_config(Database& database, const std::string& params) {
  Statement find = database.prepare("SELECT config_id FROM configs WHERE params = ?");
  if (find.bind(params).next()) return find.integer();
  database.prepare("INSERT INTO configs (params) VALUES (?)").bind(params).run();
  return database.last_id();
}

std::string key_columns() {
  return "k.key_sha256, k.kernel, k.variant, k.source_sha256, k.entry, k.options, k.launch_sha256, k.problem, k.arch, "
         "k.cc, "
         "k.sm_count, k.memory_gib, k.l2_bytes, k.max_clock_mhz, k.max_memory_clock_mhz, k.nvrtc, k.policy, "
         "k.environment, "
         "k.callables, k.schema";
}

key::TuningKey read_key(Statement& row) {
  key::TuningKey key;
  const std::string stored = row.text();
  key.kernel = row.text();
  key.variant = row.text();
  key.source_sha256 = row.text();
  key.entry = row.text();
  key.options = row.text();
  key.launch_sha256 = row.text();
  key.problem = row.text();
  key.arch = row.text();
  key.cc = row.small();
  key.sm_count = row.small();
  key.memory_gib = row.integer();
  key.l2_bytes = row.integer();
  key.max_clock_mhz = row.small();
  key.max_memory_clock_mhz = row.small();
  key.nvrtc = row.text();
  key.policy = row.text();
  key.environment = row.text();
  key.callables = row.text();
  key.schema = row.small();
  key::seal(key);
  key.sha256 = stored;
  return key;
}

void touch_key(Database& database, const std::string& key_sha256, int64_t now) {
  database.prepare("UPDATE keys SET last_used_at = max(last_used_at, ?) WHERE key_sha256 = ?")
      .bind(now, key_sha256)
      .run();
  database
      .prepare(
          "UPDATE artifacts SET last_used_at = max(last_used_at, ?) WHERE artifact_id = "
          "(SELECT w.artifact_id FROM winners w JOIN keys k USING (key_id) WHERE k.key_sha256 = ?)")
      .bind(now, key_sha256)
      .run();
}

}  // namespace jitune::store
