#include <algorithm>

#include "base/hash.hpp"
#include "base/json.hpp"
#include "store/rows.hpp"
#include "store/signing.hpp"
#include "store/text.hpp"

namespace jitune::store {
namespace {

constexpr int64_t kFailureLifeSeconds = 90 * 86400;

std::string problem_sha256(const std::string& problem) {
  return problem.empty() ? std::string() : sha256_hex(problem);
}

void keep_cubin(Database& database, const std::string& sha256, const std::string& bytes) {
  if (bytes.empty()) return;
  // A row whose bytes went bad is replaced by good ones.
  database
      .prepare(
          "INSERT INTO cubins (cubin_sha256, cubin) VALUES (?, ?) ON CONFLICT (cubin_sha256) DO UPDATE SET "
          "cubin = excluded.cubin WHERE cubin IS NOT excluded.cubin")
      .bind(sha256, Blob{bytes})
      .run();
}

bool has_cubin(Database& database, const std::string& sha256) {
  return database.prepare("SELECT 1 FROM cubins WHERE cubin_sha256 = ?").bind(sha256).next();
}

int64_t insert_artifact(Database& database, const ArtifactRow& artifact, const std::string& cubin_sha256,
                        const std::string& source_sha256, int64_t now) {
  const bool ok = artifact.status == "ok";
  database
      .prepare(
          "INSERT INTO artifacts (build_sha256, kernel, config_id, source_sha256, arch, nvrtc, status, compile_ms, "
          "lowered_name, regs, static_smem_bytes, local_bytes, spill_bytes, cubin_bytes, cubin_sha256, log, "
          "created_at, "
          "last_used_at, signature) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) "
          "ON CONFLICT (build_sha256) DO UPDATE SET status = excluded.status, compile_ms = excluded.compile_ms, "
          "lowered_name = excluded.lowered_name, regs = excluded.regs, static_smem_bytes = excluded.static_smem_bytes, "
          "local_bytes = excluded.local_bytes, spill_bytes = excluded.spill_bytes, cubin_bytes = excluded.cubin_bytes, "
          "cubin_sha256 = excluded.cubin_sha256, log = excluded.log, last_used_at = excluded.last_used_at, "
          "signature = excluded.signature")
      .bind(artifact.build_sha256, clean_text(artifact.kernel), ensure_config(database, artifact.config), source_sha256,
            clean_text(artifact.arch), clean_text(artifact.nvrtc), artifact.status, std::max(artifact.compile_ms, 0.0),
            clean_text(artifact.lowered_name), artifact.regs, artifact.static_smem_bytes, artifact.local_bytes,
            artifact.spill_bytes, static_cast<int64_t>(artifact.cubin.size()),
            ok ? std::optional(cubin_sha256) : std::nullopt, clean_text(artifact.log), now, now,
            ok ? signature_of(database, artifact, cubin_sha256) : std::string())
      .run();
  Statement find = database.prepare("SELECT artifact_id FROM artifacts WHERE build_sha256 = ?");
  find.bind(artifact.build_sha256).next();
  return find.integer();
}

}  // namespace

std::string artifact_columns(bool with_bytes) {
  return std::string(
             "a.build_sha256, a.kernel, ac.params, a.status, a.compile_ms, a.lowered_name, a.regs, "
             "a.static_smem_bytes, a.local_bytes, a.spill_bytes, a.cubin_sha256, a.arch, a.nvrtc, a.signature, ") +
         (with_bytes ? "a.log, b.cubin" : "'', NULL");
}

std::optional<ArtifactRow> read_artifact(Statement& row) {
  ArtifactRow artifact;
  artifact.build_sha256 = row.text();
  artifact.kernel = row.text();
  artifact.config = row.text();
  artifact.status = row.text();
  artifact.compile_ms = row.real();
  artifact.lowered_name = row.text();
  artifact.regs = row.small();
  artifact.static_smem_bytes = row.integer();
  artifact.local_bytes = row.integer();
  artifact.spill_bytes = row.integer();
  artifact.cubin_sha256 = row.text();
  artifact.arch = row.text();
  artifact.nvrtc = row.text();
  artifact.signature = row.text();
  artifact.log = row.text();
  artifact.cubin = row.blob();
  if (artifact.build_sha256.empty()) return std::nullopt;
  return artifact;
}

int64_t keep_artifact(Database& database, const ArtifactRow& artifact, const std::string& source_sha256, int64_t now) {
  const bool ok = artifact.status == "ok";
  const std::string sha256 = ok && !artifact.cubin.empty() ? sha256_hex(artifact.cubin) : artifact.cubin_sha256;
  Statement find = database.prepare(
      "SELECT artifact_id, status, cubin_sha256, signature, lowered_name FROM artifacts WHERE build_sha256 = ?");
  if (find.bind(artifact.build_sha256).next()) {
    const int64_t id = find.integer();
    const bool stored_ok = find.text() == "ok";
    const std::string stored_sha256 = find.text();
    ArtifactRow stored;
    stored.build_sha256 = artifact.build_sha256;
    stored.cubin_sha256 = stored_sha256;
    stored.signature = find.text();
    stored.lowered_name = find.text();
    if (stored_ok && (!ok || artifact.cubin.empty())) return id;
    if (stored_ok && has_cubin(database, stored_sha256) && is_signed(stored, database.signing_key())) {
      // The first one stays, for compiling again may give other bytes; but bytes that were found bad are mended.
      if (stored_sha256 == sha256) keep_cubin(database, sha256, artifact.cubin);
      return id;
    }
  }
  if (ok) keep_cubin(database, sha256, artifact.cubin);
  return insert_artifact(database, artifact, sha256, source_sha256, now);
}

void keep_source(Database& database, const key::SourceHash& source, const std::string& text, int64_t now) {
  if (source.sha256.empty()) return;
  Statement find = database.prepare("SELECT 1 FROM sources WHERE source_sha256 = ?");
  if (find.bind(source.sha256).next()) return;
  Json headers = Json::array();
  for (const key::Header& header : source.headers)
    headers.push_back({{"path", header.path}, {"sha256", header.sha256}});
  database.prepare("INSERT INTO sources (source_sha256, text, headers, first_seen_at) VALUES (?,?,?,?)")
      .bind(source.sha256, is_utf8(text) ? std::optional(text) : std::nullopt, canonical(headers), now)
      .run();
}

std::optional<ArtifactRow> find_artifact(Database& database, const std::string& build_sha256, bool with_bytes) {
  static const std::string whole =
      "SELECT " + artifact_columns(true) +
      " FROM artifacts a JOIN configs ac ON ac.config_id = a.config_id LEFT JOIN cubins b ON "
      "b.cubin_sha256 = a.cubin_sha256 WHERE a.build_sha256 = ?";
  static const std::string facts =
      "SELECT " + artifact_columns(false) +
      " FROM artifacts a JOIN configs ac ON ac.config_id = a.config_id WHERE a.build_sha256 = ?";
  Statement row = database.prepare(with_bytes ? whole.c_str() : facts.c_str());
  if (!row.bind(build_sha256).next()) return std::nullopt;
  return read_artifact(row);
}

CubinFault clear_if_bad(ArtifactRow& artifact, const std::string& signing_key) {
  if (artifact.cubin.empty()) return CubinFault::none;
  auto fault = CubinFault::none;
  if (sha256_hex(artifact.cubin) != artifact.cubin_sha256)
    fault = CubinFault::damaged;
  else if (!is_signed(artifact, signing_key))
    fault = artifact.signature.empty() ? CubinFault::not_signed : CubinFault::signed_otherwise;
  if (fault != CubinFault::none) artifact.cubin.clear();
  return fault;
}

void drop_cubin(Database& database, const std::string& cubin_sha256) {
  database.prepare("DELETE FROM cubins WHERE cubin_sha256 = ?").bind(cubin_sha256).run();
}

std::optional<std::string> source_text(Database& database, const std::string& source_sha256, bool& known) {
  Statement row = database.prepare("SELECT text IS NOT NULL, text FROM sources WHERE source_sha256 = ?");
  known = row.bind(source_sha256).next();
  if (!known || row.integer() == 0) return std::nullopt;
  return row.text();
}

std::optional<std::string> known_failure(Database& database, const std::string& build_sha256,
                                         const std::string& problem, int64_t now) {
  Statement row = database.prepare(
      "SELECT status FROM failures_seen WHERE build_sha256 = ? AND problem_sha256 = ? AND last_at > ?");
  if (!row.bind(build_sha256, problem_sha256(problem), now - kFailureLifeSeconds).next()) return std::nullopt;
  return row.text();
}

void record_failure(Database& database, const std::string& build_sha256, const std::string& problem,
                    const std::string& status, const std::string& error, int64_t now) {
  database
      .prepare(
          "INSERT INTO failures_seen (build_sha256, problem_sha256, status, times, last_error, last_at) "
          "VALUES (?,?,?,1,?,?) ON CONFLICT (build_sha256, problem_sha256) DO UPDATE SET status = excluded.status, "
          "times = times + 1, last_error = excluded.last_error, last_at = excluded.last_at")
      .bind(build_sha256, problem_sha256(problem), status, clean_text(error), now)
      .run();
}

std::optional<Store::Toolchain> find_toolchain(Database& database, const Store::Toolchain& stat_tuple) {
  Statement row = database.prepare(
      "SELECT version, build FROM toolchains WHERE path = ? AND device = ? AND inode = ? AND size_bytes = ? AND "
      "mtime_ns = ?");
  if (!row.bind(stat_tuple.path, stat_tuple.device, stat_tuple.inode, stat_tuple.size_bytes, stat_tuple.mtime_ns)
           .next())
    return std::nullopt;
  Store::Toolchain toolchain = stat_tuple;
  toolchain.version = row.text();
  toolchain.build = row.text();
  return toolchain;
}

void put_toolchain(Database& database, const Store::Toolchain& toolchain) {
  database.prepare("INSERT OR REPLACE INTO toolchains VALUES (?,?,?,?,?,?,?)")
      .bind(toolchain.path, toolchain.device, toolchain.inode, toolchain.size_bytes, toolchain.mtime_ns,
            toolchain.version, toolchain.build)
      .run();
}

}  // namespace jitune::store
