// What launches asked for: misses, captures and the definitions that they are tuned by.
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

constexpr const char* kCaptures =
    "SELECT capture_id, key_sha256, kernel, problem, definition_sha256, device, at FROM captures "
    "WHERE ?1 = 0 OR capture_id = ?1 ORDER BY kernel, problem, capture_id";

std::vector<CaptureRow> read_captures(Database& database, int64_t which) {
  Statement row = database.prepare(kCaptures);
  row.bind(which);
  std::vector<CaptureRow> rows;
  while (row.next()) {
    CaptureRow capture;
    capture.capture = row.integer();
    capture.key_sha256 = row.text();
    capture.kernel = row.text();
    capture.problem = row.text();
    capture.definition_sha256 = row.text();
    capture.device = row.text();
    capture.at = row.integer();
    rows.push_back(std::move(capture));
  }
  return rows;
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

void put_capture(Database& database, const CaptureRow& capture, const std::string& definition, int64_t now) {
  const std::string sha256 = keep_definition(database, capture.kernel, definition, now);
  database.prepare("DELETE FROM captures WHERE key_sha256 = ? AND problem = ?")
      .bind(capture.key_sha256, capture.problem)
      .run();
  database
      .prepare("INSERT INTO captures (key_sha256, problem, kernel, definition_sha256, device, at) VALUES (?,?,?,?,?,?)")
      .bind(capture.key_sha256, capture.problem, clean_text(capture.kernel), sha256, clean_text(capture.device), now)
      .run();
  const int64_t id = database.last_id();
  for (const auto& value : capture.values)
    database.prepare("INSERT INTO capture_values (capture_id, arg, is_buffer, bytes) VALUES (?,?,?,?)")
        .bind(id, static_cast<int64_t>(value.arg), value.is_buffer, Blob{value.bytes})
        .run();
}

std::vector<CaptureRow> captures(Database& database) {
  return read_captures(database, 0);
}

std::optional<CaptureRow> find_capture(Database& database, int64_t capture) {
  auto rows = read_captures(database, capture);
  if (rows.empty()) return std::nullopt;
  Statement row =
      database.prepare("SELECT arg, is_buffer, bytes FROM capture_values WHERE capture_id = ? ORDER BY arg");
  row.bind(capture);
  while (row.next()) {
    CaptureRow::Value value;
    value.arg = static_cast<size_t>(row.integer());
    value.is_buffer = row.integer() != 0;
    value.bytes = row.blob();
    rows.front().values.push_back(std::move(value));
  }
  return std::move(rows.front());
}

std::optional<std::string> find_definition(Database& database, const std::string& definition_sha256) {
  Statement row = database.prepare("SELECT definition FROM definitions WHERE definition_sha256 = ?");
  if (!row.bind(definition_sha256).next()) return std::nullopt;
  return row.text();
}

}  // namespace jitune::store
