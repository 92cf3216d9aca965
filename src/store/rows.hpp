#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "store/process.hpp"
#include "store/sqlite.hpp"
#include "store/store.hpp"

/// The SQL of the store, a function for each thing that is asked of it. They work on any one Database, throw
/// SqliteError, and leave locking, time and trouble with the file to SqliteStore. Those marked (t) are to be called in
/// a Transaction.
namespace jitune::store {

// keys.cpp
int64_t ensure_key(Database& database, const key::TuningKey& key, int64_t now);  ///< (t) its key_id
int64_t ensure_config(Database& database, const std::string& params);            ///< (t) its config_id
std::string key_columns();                                                       ///< of table `keys` as k
key::TuningKey read_key(Statement& row);                                         ///< reads key_columns()
void touch_key(Database& database, const std::string& key_sha256, int64_t now);  ///< last_used_at

// demand.cpp: what launches asked for
struct Miss {
  const key::TuningKey& key;
  const std::string& problem;
  const std::string& device;
  const std::string& definition;
  int64_t times;
};
void record_miss(Database& database, const Miss& miss, int64_t now);  ///< (t)
std::vector<MissRow> misses(Database& database);
std::optional<std::string> find_definition(Database& database, const std::string& definition_sha256);

// artifacts.cpp
std::string artifact_columns(bool with_bytes);             ///< of `artifacts` as a, `configs` as ac, `cubins` as b
std::optional<ArtifactRow> read_artifact(Statement& row);  ///< nothing when the columns are NULL
int64_t keep_artifact(Database& database, const ArtifactRow& artifact, const std::string& source_sha256,
                      int64_t now);  ///< (t) its artifact_id
void keep_source(Database& database, const key::SourceHash& source, const std::string& text, int64_t now);  ///< (t)
std::optional<ArtifactRow> find_artifact(Database& database, const std::string& build_sha256, bool with_bytes);
/// Why a row's cubin must not be used: it is not what its SHA-256 says, or not signed with our key where there is one.
enum class CubinFault : uint8_t { none, damaged, not_signed, signed_otherwise };
/// Clears the row's cubin where it has a fault; none when it is good, or absent.
CubinFault clear_if_bad(ArtifactRow& artifact, const std::string& signing_key);
void drop_cubin(Database& database, const std::string& cubin_sha256);
std::optional<std::string> source_text(Database& database, const std::string& source_sha256, bool& known);
std::optional<std::string> known_failure(Database& database, const std::string& build_sha256,
                                         const std::string& problem, int64_t now);
void record_failure(Database& database, const std::string& build_sha256, const std::string& problem,
                    const std::string& status, const std::string& error, int64_t now);
std::optional<Store::Toolchain> find_toolchain(Database& database, const Store::Toolchain& stat_tuple);
void put_toolchain(Database& database, const Store::Toolchain& toolchain);

// ahead.cpp
void keep_ahead(Database& database, const std::string& build_sha256, const std::string& problem);
/// (t) The key is tuned: what was compiled ahead for it is kept no longer, as far as nobody else needs it.
void release_ahead(Database& database, int64_t key_id);

// winners.cpp
struct FoundWinner {
  WinnerRow row;
  int64_t last_used_at = 0;
  bool verified = false;  ///< its cubin
};
std::string winner_columns(bool with_bytes);  ///< of `winners` as w, with key_columns' k and artifact_columns' tables
std::optional<FoundWinner> read_winner(Statement& row);  ///< nothing when the columns are NULL
std::optional<FoundWinner> find_winner(Database& database, const std::string& key_sha256);
std::optional<FoundWinner> find_compatible(Database& database, const key::TuningKey& key);
/// 0: no winner, 1: one, 2: a pinned one.
int winner_state(Database& database, const std::string& key_sha256);
/// (t) Whether the key's winner is better than what `study` found: another config that the study did not try itself,
/// faster against its study's default config (against the clock where a default's time is not known).
bool stored_is_better(Database& database, int64_t key_id, int64_t study, const WinnerRow& winner);
/// (t) Does nothing when the key's winner is pinned.
void put_winner(Database& database, int64_t key_id, int64_t study, const WinnerRow& winner, int64_t now);

// leases.cpp
struct LeaseRequest {
  std::string key_sha256;
  std::chrono::milliseconds budget;
  bool force = false;
  ProcessId process;
  std::string token = random_token();  ///< of the lease that it makes
};
/// What claim() would find, as far as can be read. Acquired: with the lease that it would make.
Claim would_claim(Database& database, const LeaseRequest& request, int64_t now);
Claim claim(Database& database, const LeaseRequest& request, int64_t now);  ///< its own transaction
bool renew_lease(Database& database, const Lease& lease, int64_t now);      ///< false: not held
bool release_lease(Database& database, const Lease& lease);                 ///< false: not held
/// (t) Puts a lease that was claimed elsewhere, unless the key has one here.
void adopt_lease(Database& database, const Lease& lease, const LeaseRequest& request, int64_t now);
std::string lease_holder(Database& database, const std::string& key_sha256, int64_t now);  ///< as in Claim, or "nobody"

// studies.cpp
int64_t insert_study(Database& database, int64_t key_id, const StudyRow& study, const ProcessId& process,
                     int64_t now);                                                         ///< (t)
void insert_trial(Database& database, int64_t study, const TrialRow& trial, int64_t now);  ///< (t)
void close_study(Database& database, int64_t study, const StudyEnd& end, int64_t now);     ///< (t)
int64_t key_of_study(Database& database, int64_t study, std::string& key_sha256);          ///< 0: none
void drop_losers_cubins(Database& database, int64_t study);                                ///< (t)
std::vector<TrialRow> latest_trials(Database& database, const std::string& key_sha256);
std::optional<StudyView> view_study(Database& database, int64_t study);
std::vector<TrialRow> trials_of_study(Database& database, int64_t study);

// listing.cpp
std::vector<KeyRow> list_keys(Database& database, const std::string& kernel);
std::vector<KeyRow> keys_by_prefix(Database& database, const std::string& prefix);
std::optional<Store::NearKey> nearest_key(Database& database, const key::TuningKey& key);
std::vector<KeyRow> related_keys(Database& database, const key::TuningKey& key);
void count_rows(Database& database, Store::Health& health);  ///< adds to the counts

}  // namespace jitune::store
