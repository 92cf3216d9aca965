#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "base/result.hpp"
#include "key/key.hpp"
#include "space/device.hpp"

namespace jitune::store {

/// A row of `artifacts`, with its cubin where that is kept.
struct ArtifactRow {
  std::string build_sha256;
  std::string kernel;
  std::string config;  ///< canonical JSON
  std::string status;  ///< ok, error, timeout, crash
  double compile_ms = 0;
  std::string lowered_name;
  int regs = 0;
  int64_t static_smem_bytes = 0, local_bytes = 0, spill_bytes = 0;
  std::string cubin;  ///< "" when dropped, or status is not ok
  std::string cubin_sha256;
  std::string log;
  std::string arch, nvrtc;
  std::string signature;  ///< see Store::OpenOptions::signing_key; "" without
};

/// A row of `trials`.
struct TrialRow {
  std::string config;        ///< canonical JSON
  std::string build_sha256;  ///< "" when nothing was compiled
  std::string status;        ///< measure::TrialStatus words
  int samples = 0;
  double min_us = 0, median_us = 0, mean_us = 0, stddev_us = 0, max_us = 0;
  double first_us = 0;
  int clock_mhz = 0;
  double occupancy = 0;      ///< share of the SM's threads, 0 when unknown
  double default_us = 0;     ///< the default config's median in the same study; 0 when not known yet
  int64_t shared_bytes = 0;  ///< dynamic
  double wall_ms = 0;
  std::string stop;  ///< why sampling ended: agreed, count, time, lost; "" when there was none
  std::string error;
  int64_t study = 0;  ///< filled on reading
};

/// The answer for a key.
struct WinnerRow {
  std::string key_sha256;
  std::string config;                   ///< canonical JSON
  std::optional<ArtifactRow> artifact;  ///< nothing when imported without one; its cubin is checked against its SHA-256
  double median_us = 0;                 ///< 0: imported without a time
  double default_us = 0;                ///< 0: not known
  bool pinned = false;
  int64_t decided_at = 0;
  int64_t study = 0;
  std::string nvrtc;  ///< of the key it was found under
};

/// Where and how a study ran: provenance, never part of a key.
struct StudyRow {
  int64_t study = 0;
  std::string strategy;
  uint64_t seed = 0;
  int64_t budget_ms = 0;
  std::string space;           ///< canonical JSON of the space as declared
  std::string default_config;  ///< canonical JSON
  space::DeviceInfo device;
};

/// Outcome words: won, default_kept, no_valid_config, cancelled, budget, out_of_memory, error.
struct StudyEnd {
  std::string outcome;
  std::string note;
  /// What it cost, in milliseconds of wall time on the study's thread unless said otherwise.
  struct Costs {
    std::string method;     ///< of its samples: stream, graph x 32
    double compile_ms = 0;  ///< until the last artifact was there; overlaps the others
    double wait_ms = 0;     ///< for the GPU's lock, worker and buffers
    double load_ms = 0;     ///< modules
    double check_ms = 0;    ///< runs over poison, comparisons
    double run_ms = 0;      ///< warm-up and samples
    double rematch_ms = 0;
    double saved_ms = 0;  ///< kernel time that early stop left out, against the most samples of every config
    double drift = 0;     ///< largest change of the GPU's speed that was seen, 0.02: 2 %
  };
  Costs costs = {};
  std::string reference = {};  ///< what results were compared with; empty: the default config
  double reference_us = 0;     ///< a reference kernel's own time; 0: none was timed
};

/// A study as people look at it.
struct StudyView {
  StudyRow row;
  StudyEnd end;  ///< outcome "": running, or died
  int64_t started_at = 0, ended_at = 0;
};

/// A claim on a key. Only its holder may publish.
struct Lease {
  std::string key_sha256;
  std::string holder;  ///< random token
};

struct Claim {
  enum class State : uint8_t { acquired, held, answered };
  State state = State::acquired;
  Lease lease;
  std::string holder_text;  ///< held: `pid 4711 on host, 12 s ago`
};

/// A launch that found no winner.
struct MissRow {
  std::string key_sha256, kernel, problem;  ///< problem: canonical JSON, exact
  int64_t count = 0, last_at = 0;
  std::string device, nvrtc;
  std::string definition_sha256;  ///< see Store::definition; "" when it was not told
};

/// One line of list(): a key and, where there is one, its winner.
struct KeyRow {
  key::TuningKey key;
  std::optional<WinnerRow> winner;
  int64_t trials = 0, ok_trials = 0;
  std::string last_outcome;  ///< of its last study, "" when none
  std::string device_name;   ///< of its last study
};

/// A winner as it travels between databases and files: with all that another machine needs to use it and a person to
/// audit it.
struct WinnerRecord {
  key::TuningKey key;
  WinnerRow winner;
  std::string device, driver;   ///< of the GPU that it was found on; provenance
  std::string origin;           ///< where it was imported from; "" where a study of the database found it
  std::string source, headers;  ///< as table `sources` keeps them; "" when it does not
  bool cubin_damaged = false;   ///< its bytes were not what their SHA-256 says, and are left out
};

/// The memory of jitune. Rows that are listed come with the facts of their artifacts but without cubins and logs.
/// The default implementation is one SQLite file; the interface names no type of it.
/// Safe from any thread. Trouble with the file (full, locked, read-only, corrupt, foreign, newer) never throws and
/// never loses the caller's work in memory: the call fails with the reason, or the store goes on in memory with one
/// warning.
class Store {
 public:
  virtual ~Store() = default;

  struct OpenOptions {
    std::string path;    ///< absolute; "" or `off`: memory only
    bool create = true;  ///< false: fails when there is no file
    bool read_only = false;
    bool must_be_file = false;  ///< true (jit-prewarm): a file that can't be used is a failure, not a reason for memory
    Log* log = nullptr;
    int64_t (*now)() = nullptr;                ///< UTC seconds since 1970; null: the system's clock
    std::chrono::milliseconds patience{5000};  ///< of tuning with a file that others keep locked; a launch's is 200 ms
    int64_t max_bytes = int64_t{1} << 30;      ///< of cubins; the end of a study calls collect() beyond it
    /// A file with a secret, or "" for JITUNE_SIGNING_KEY's. With one, cubins are signed when they are stored
    /// (HMAC-SHA256) and those without its signature are refused: they are compiled again.
    std::string signing_key = {};
    /// The f_type of statfs(2) for a directory; null: ask the system.
    uint64_t (*file_system_type)(const std::string& directory) = nullptr;
  };
  /// Opens, creates (directory 0700, file 0600) or falls back to memory. A file that is not ours, or of a newer schema,
  /// is left exactly as it was.
  static Result<std::unique_ptr<Store>> open(const OpenOptions& options);

  virtual std::string path() const = 0;  ///< "" when in memory
  virtual bool in_memory() const = 0;

  // --- launches read these -----------------------------------------------------------------------------------------
  virtual Result<std::optional<WinnerRow>> find_winner(const std::string& key_sha256) = 0;
  /// The newest winner whose key differs from `key` in nothing but nvrtc.
  virtual Result<std::optional<WinnerRow>> find_compatible(const key::TuningKey& key) = 0;
  /// Winners of the same kernel, source and device class for other problems: for buckets and hints.
  virtual Result<std::vector<KeyRow>> find_related(const key::TuningKey& key) = 0;
  /// `times` launches; `definition`: space::definition_text, or "" when it was told before or is not known.
  virtual Result<void> record_miss(const key::TuningKey& key, const std::string& exact_problem,
                                   const std::string& device, const std::string& definition = {},
                                   int64_t times = 1) = 0;

  // --- compiling -----------------------------------------------------------------------------------------------------
  /// An artifact, its cubin (if kept) verified by SHA-256; a damaged cubin is dropped and the row comes back without.
  virtual Result<std::optional<ArtifactRow>> find_artifact(const std::string& build_sha256) = 0;
  /// Statuses by build key, without cubins and logs, for many at once: what is there and need not be compiled.
  virtual Result<std::vector<ArtifactRow>> find_artifacts(const std::vector<std::string>& build_sha256) = 0;
  /// Keeps the first artifact of a build key; `source` and `headers` are kept once per source hash for people to audit.
  /// Waits 200 ms for a file that others keep locked, then is kept in memory as add_trial() says, as record_failure()
  /// is.
  virtual Result<void> put_artifact(const ArtifactRow& artifact, const key::SourceHash& source,
                                    const std::string& source_text) = 0;

  /// Marks an artifact as compiled ahead for the keys of `problem` (canonical JSON, buckets applied): its cubin is kept
  /// until such a key of the same kernel, source, arch and NVRTC is tuned to the end.
  virtual Result<void> keep_until_tuned(const std::string& build_sha256, const std::string& problem) = 0;

  // --- failures that must not be tried again -------------------------------------------------------------------------
  /// `problem` is "" for compile failures. The status word; nothing when there is none or it is older than 90 days.
  virtual Result<std::optional<std::string>> known_failure(const std::string& build_sha256,
                                                           const std::string& problem) = 0;
  virtual Result<void> record_failure(const std::string& build_sha256, const std::string& problem,
                                      const std::string& status, const std::string& error) = 0;

  // --- studies -------------------------------------------------------------------------------------------------------
  /// `budget` bounds how long a lease without progress is honoured (twice it). `force`: tune although there is a
  /// winner.
  virtual Result<Claim> claim(const key::TuningKey& key, std::chrono::milliseconds budget, bool force) = 0;
  virtual Result<void> renew(const Lease& lease) = 0;
  virtual Result<void> release(const Lease& lease) = 0;
  /// Makes the key's row and the study's. Returns the study's number.
  virtual Result<int64_t> begin_study(const key::TuningKey& key, const StudyRow& study) = 0;
  /// Commits one trial; renews the lease with it. False: the lease is lost. The trial is kept all the same, but the
  /// study should stop: another process has the key, and end_study() would drop the result. Where another process keeps
  /// the file locked for longer than `patience`, this call, claim(), begin_study(), release() and end_study() succeed
  /// all the same: what they have to write is kept, with one warning, and written before the next of them, at the
  /// latest when the store closes. While something is kept a trial waits 200 ms only.
  virtual Result<bool> add_trial(int64_t study, const Lease& lease, const TrialRow& trial) = 0;
  /// Latest trial of each config for this key, over all its studies.
  virtual Result<std::vector<TrialRow>> trials_of(const std::string& key_sha256) = 0;
  /// Ends a study. With a winner: winner, artifact, cubin and end in one transaction, only while the lease is still
  /// held (else the result is dropped and the failure says so); a pinned winner is never replaced. Releases the lease
  /// and drops the cubins that only this study made and no winner names.
  virtual Result<void> end_study(int64_t study, const Lease& lease, const StudyEnd& end,
                                 const std::optional<WinnerRow>& winner) = 0;

  // --- for people ----------------------------------------------------------------------------------------------------
  virtual Result<std::vector<KeyRow>> list(const std::string& kernel = {}) = 0;
  /// Keys whose sha256 starts with `prefix`.
  virtual Result<std::vector<KeyRow>> find_keys(const std::string& prefix) = 0;
  virtual Result<std::vector<TrialRow>> trials_of_study(int64_t study) = 0;
  virtual Result<std::optional<StudyView>> find_study(int64_t study) = 0;
  virtual Result<std::vector<MissRow>> misses() = 0;
  virtual Result<std::string> definition(const std::string& definition_sha256) = 0;
  virtual Result<std::string> source_of(const std::string& source_sha256) = 0;
  struct Health {
    std::string path, state;  ///< `ok`, `memory only: ...`, `read-only`
    int64_t keys = 0, winners = 0, trials = 0, artifacts = 0, cubin_bytes = 0, file_bytes = 0;
    std::string quick_check;  ///< SQLite's own word, `ok`
    int schema = 0;
  };
  virtual Result<Health> health() = 0;

  // --- winners that travel: bundles, exports, imports; see record.hpp
  // -------------------------------------------------
  /// All winners, sorted by kernel, variant, problem, arch and NVRTC. `with_bytes`: their cubins too, those that are
  /// damaged left out.
  virtual Result<std::vector<WinnerRecord>> records(bool with_bytes) = 0;
  struct TakenIn {
    int64_t added = 0, replaced = 0;
    int64_t kept_better = 0, kept_pinned = 0;  ///< the stored one stayed
  };
  /// Takes records in, in one transaction: each where it beats what is stored for its key. Whoever calls it has checked
  /// them.
  virtual Result<TakenIn> take_in(const std::vector<WinnerRecord>& records) = 0;
  /// A pinned winner is never replaced and never evicted. False when the key has no winner.
  virtual Result<bool> set_pinned(const std::string& key_sha256, bool pinned) = 0;

  /// A stored key and the fields in which it differs from another: key::differences, stored value second.
  struct NearKey {
    KeyRow row;
    std::vector<std::string> differences;  ///< empty: it is the key itself
  };
  /// The stored key of the same kernel with the fewest fields that differ, one with a winner before others, the newest
  /// of equals; nothing when the kernel has none.
  virtual Result<std::optional<NearKey>> find_nearest(const key::TuningKey& key) = 0;

  // --- size and age --------------------------------------------------------------------------------------------------
  struct Evicted {
    int64_t cubins = 0, keys = 0, studies = 0, artifacts = 0, failures = 0;  ///< dropped
    int64_t cubin_bytes_before = 0, cubin_bytes_after = 0;
    int64_t file_bytes_before = 0, file_bytes_after = 0;
  };
  /// Drops what is old (studies beyond a key's last three and failures, both after 90 days; what nothing refers to),
  /// then, while cubins take more than `max_cubin_bytes`, cubins no winner names and then whole keys, least recently
  /// used first; never what is pinned, leased or compiled ahead. Gives the file's free pages back. Takes a second or so
  /// for a full database; launches are let in between its pieces.
  virtual Result<Evicted> collect(int64_t max_cubin_bytes) = 0;

  // --- toolchains: stat tuple -> version, build
  // ------------------------------------------------------------------------
  struct Toolchain {
    std::string path;
    int64_t device = 0, inode = 0, size_bytes = 0, mtime_ns = 0;
    std::string version, build;
  };
  virtual std::optional<Toolchain> find_toolchain(const Toolchain& stat_tuple) = 0;
  virtual void put_toolchain(const Toolchain& toolchain) = 0;
};

/// $XDG_CACHE_HOME/jitune/jitune.db, else $HOME/.cache/jitune/jitune.db, else "" (memory only).
std::string default_path(const char* xdg_cache_home, const char* home);

}  // namespace jitune::store
