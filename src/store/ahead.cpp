#include "store/rows.hpp"

namespace jitune::store {

void keep_ahead(Database& database, const std::string& build_sha256, const std::string& problem) {
  database.prepare("INSERT OR IGNORE INTO ahead (build_sha256, problem) VALUES (?,?)")
      .bind(build_sha256, problem)
      .run();
}

void release_ahead(Database& database, int64_t key_id) {
  // A key made for a nominal device has another device class than the one that is tuned, so the device is not asked.
  database
      .prepare(
          "DELETE FROM cubins WHERE cubin_sha256 IN (SELECT a.cubin_sha256 FROM keys k JOIN ahead h ON h.problem = "
          "k.problem JOIN artifacts a USING (build_sha256) WHERE k.key_id = ?1 AND a.kernel = k.kernel AND "
          "a.source_sha256 = k.source_sha256 AND a.arch = k.arch AND a.nvrtc = k.nvrtc) AND NOT EXISTS (SELECT 1 FROM "
          "artifacts a WHERE a.cubin_sha256 = cubins.cubin_sha256 AND ("
          "EXISTS (SELECT 1 FROM winners w WHERE w.artifact_id = a.artifact_id) "
          "OR EXISTS (SELECT 1 FROM ahead o WHERE o.build_sha256 = a.build_sha256 AND o.problem <> (SELECT problem "
          "FROM keys WHERE key_id = ?1)) "
          "OR EXISTS (SELECT 1 FROM trials t JOIN studies s USING (study_id) WHERE t.artifact_id = a.artifact_id AND "
          "s.ended_at IS NULL)))")
      .bind(key_id)
      .run();
  database
      .prepare(
          "DELETE FROM ahead WHERE problem = (SELECT problem FROM keys WHERE key_id = ?1) AND build_sha256 IN (SELECT "
          "a.build_sha256 FROM artifacts a JOIN keys k ON k.key_id = ?1 WHERE a.kernel = k.kernel AND a.source_sha256 "
          "= k.source_sha256 AND a.arch = k.arch AND a.nvrtc = k.nvrtc)")
      .bind(key_id)
      .run();
}

}  // namespace jitune::store
