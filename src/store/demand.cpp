// What launches asked for: misses and the definitions that they are tuned by.
#include "base/hash.hpp"
#include "store/rows.hpp"
#include "store/text.hpp"

namespace jitune::store {
namespace {

/// Keeps a definition once. Returns its SHA-256; "" for "".
std::string keep_definition(Database& database, const std::string& kernel, const std::string& definition, int64_t now) {
  if (definition.empty()) return "";
  const std::string sha256 = sha256_hex(definition);
  database
      .prepare(
          "INSERT INTO definitions (definition_sha256, kernel, definition, first_seen_at) VALUES (?,?,?,?) "
          "ON CONFLICT DO NOTHING")
      .bind(sha256, clean_text(kernel), clean_text(definition), now)
      .run();
  return sha256;
}

}  // namespace

void record_miss(Database& database, const Miss& miss, int64_t now) {
  database
      .prepare(
          "INSERT INTO misses (key_sha256, problem, kernel, device, nvrtc, definition_sha256, times, first_at, "
          "last_at) "
          "VALUES (?,?,?,?,?,?,?,?,?) ON CONFLICT (key_sha256, problem) DO UPDATE SET times = times + excluded.times, "
          "last_at = max(last_at, excluded.last_at), device = excluded.device, nvrtc = excluded.nvrtc, "
          "definition_sha256 = CASE excluded.definition_sha256 WHEN '' THEN definition_sha256 "
          "ELSE excluded.definition_sha256 END")
      .bind(miss.key.sha256, miss.problem, clean_text(miss.key.kernel), clean_text(miss.device),
            clean_text(miss.key.nvrtc), keep_definition(database, miss.key.kernel, miss.definition, now), miss.times,
            now, now)
      .run();
}

std::vector<MissRow> misses(Database& database) {
  Statement row = database.prepare(
      "SELECT key_sha256, kernel, problem, times, last_at, device, nvrtc, definition_sha256 FROM misses "
      "ORDER BY times DESC, last_at DESC, key_sha256, problem");
  std::vector<MissRow> rows;
  while (row.next()) {
    MissRow miss;
    miss.key_sha256 = row.text();
    miss.kernel = row.text();
    miss.problem = row.text();
    miss.count = row.integer();
    miss.last_at = row.integer();
    miss.device = row.text();
    miss.nvrtc = row.text();
    miss.definition_sha256 = row.text();
    rows.push_back(std::move(miss));
  }
  return rows;
}

std::optional<std::string> find_definition(Database& database, const std::string& definition_sha256) {
  Statement row = database.prepare("SELECT definition FROM definitions WHERE definition_sha256 = ?");
  if (!row.bind(definition_sha256).next()) return std::nullopt;
  return row.text();
}

}  // namespace jitune::store
