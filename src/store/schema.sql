-- jitune's tuning database, schema version 3.
-- Opened by the library and jit-prewarm (read-write) and by people: sqlite3 -readonly jitune.db 'select * from best'.
-- Units are in column names: _us microseconds, _ms milliseconds, _bytes, _mhz; _at is UTC seconds since 1970.
-- JSON columns hold canonical JSON (sorted names, no spaces). They have no json_valid() CHECK: it would make the file
-- unreadable to connections with PRAGMA trusted_schema=OFF, as jitune's own are.
-- Every hash is SHA-256 as 64 lower-case hex digits, so that it can be pasted and grepped.
-- Table columns only ever grow; views may change in any release.
PRAGMA application_id = 0x4A54554E;      -- 'JTUN'
PRAGMA user_version = 3;

CREATE TABLE meta (
  name          TEXT PRIMARY KEY,        -- min_reader_version: the oldest schema a reader may know and still read this
  value         TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE sources (                   -- what was compiled, kept so that a person can audit it; read by no launch
  source_sha256 TEXT PRIMARY KEY CHECK (length(source_sha256) = 64),  -- over the source and all headers that it reaches
  text          TEXT,                    -- the source alone; NULL when it is not UTF-8
  headers       TEXT NOT NULL,           -- [{"path":"include/tile.h","sha256":"..."}]
  first_seen_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What an answer depends on. Each part is a readable column; key_sha256 is over all of them and is the lookup.
CREATE TABLE keys (
  key_id        INTEGER PRIMARY KEY,
  key_sha256    TEXT NOT NULL UNIQUE CHECK (length(key_sha256) = 64),
  kernel        TEXT NOT NULL,
  variant       TEXT NOT NULL,           -- '' for the kernel itself
  source_sha256 TEXT NOT NULL CHECK (length(source_sha256) = 64),
  entry         TEXT NOT NULL,           -- with its {NAME}s
  options       TEXT NOT NULL,           -- {"options":[...],"macros":[...],...}
  launch_sha256 TEXT NOT NULL,           -- of args, geometry and derived values
  problem       TEXT NOT NULL,           -- {"T":"half","hidden":8192}, buckets applied
  arch          TEXT NOT NULL,           -- sm_90a
  cc            INTEGER NOT NULL,        -- these six are the device class
  sm_count      INTEGER NOT NULL,
  memory_gib    INTEGER NOT NULL,
  l2_bytes      INTEGER NOT NULL,
  max_clock_mhz INTEGER NOT NULL,
  max_memory_clock_mhz INTEGER NOT NULL,
  nvrtc         TEXT NOT NULL,           -- 13.0.88
  policy        TEXT NOT NULL,           -- how it was measured
  environment   TEXT NOT NULL,           -- variables that change code
  callables     TEXT NOT NULL,           -- versions of host callables
  schema        INTEGER NOT NULL,        -- of the key
  created_at    INTEGER NOT NULL,
  last_used_at  INTEGER NOT NULL         -- written at most once a day
) STRICT;
CREATE INDEX keys_by_source ON keys (source_sha256, problem);
CREATE INDEX keys_by_use    ON keys (last_used_at);
CREATE INDEX keys_by_kernel ON keys (kernel);

CREATE TABLE studies (                   -- one tuning run of one key by one process
  study_id      INTEGER PRIMARY KEY,
  key_id        INTEGER NOT NULL REFERENCES keys ON DELETE CASCADE,
  started_at    INTEGER NOT NULL,
  ended_at      INTEGER,                 -- NULL: running, or died
  outcome       TEXT CHECK (outcome IN ('won','default_kept','no_valid_config','cancelled','budget','out_of_memory','error')),
  note          TEXT NOT NULL DEFAULT '',
  strategy      TEXT NOT NULL,
  seed          INTEGER NOT NULL,
  budget_ms     INTEGER NOT NULL,
  space         TEXT NOT NULL,           -- the space as declared
  default_config TEXT NOT NULL,
  device_name   TEXT NOT NULL,           -- from here on: provenance, never part of a key
  device_uuid   TEXT NOT NULL,
  driver        TEXT NOT NULL,
  host          TEXT NOT NULL,
  pid           INTEGER NOT NULL,
  jitune        TEXT NOT NULL,           -- the library's version
  artifacts_before INTEGER NOT NULL,     -- artifact_ids up to this one were there when the study began
  method        TEXT NOT NULL DEFAULT '',  -- how samples were taken: stream, graph x 32
  compile_ms    REAL, wait_ms REAL, load_ms REAL, check_ms REAL, run_ms REAL, rematch_ms REAL,  -- what it cost
  saved_ms      REAL,                    -- kernel time that early stop left out
  drift         REAL,                    -- largest change of the GPU's speed seen: 0.02 is 2 %
  reference     TEXT NOT NULL DEFAULT '',  -- what results were compared with; '': the default config
  reference_us  REAL,                    -- a reference kernel's own time; NULL: none was timed
  CHECK ((outcome IS NULL) = (ended_at IS NULL))
) STRICT;
CREATE INDEX studies_by_key ON studies (key_id, started_at);

CREATE TABLE configs (                   -- one value for every param
  config_id     INTEGER PRIMARY KEY,
  params        TEXT NOT NULL UNIQUE     -- {"BLOCK":128,"VEC":4}
) STRICT;

CREATE TABLE artifacts (                 -- one compilation
  artifact_id   INTEGER PRIMARY KEY,
  build_sha256  TEXT NOT NULL UNIQUE CHECK (length(build_sha256) = 64),  -- the build key
  kernel        TEXT NOT NULL,
  config_id     INTEGER NOT NULL REFERENCES configs,
  source_sha256 TEXT NOT NULL,           -- '' when imported without
  arch          TEXT NOT NULL,
  nvrtc         TEXT NOT NULL,
  status        TEXT NOT NULL CHECK (status IN ('ok','error','timeout','crash')),
  compile_ms    REAL NOT NULL CHECK (compile_ms >= 0),
  lowered_name  TEXT NOT NULL,           -- the mangled symbol
  regs          INTEGER NOT NULL,
  static_smem_bytes INTEGER NOT NULL,
  local_bytes   INTEGER NOT NULL,        -- per thread
  spill_bytes   INTEGER NOT NULL,
  cubin_bytes   INTEGER NOT NULL,
  cubin_sha256  TEXT CHECK (length(cubin_sha256) = 64),
  log           TEXT NOT NULL,           -- NVRTC's, or a crashed worker's last words
  created_at    INTEGER NOT NULL,
  last_used_at  INTEGER NOT NULL,
  signature     TEXT NOT NULL DEFAULT '',  -- HMAC-SHA256 over build and cubin with the writer's signing key; '' without
  CHECK ((status = 'ok') = (cubin_sha256 IS NOT NULL))
) STRICT;
CREATE INDEX artifacts_by_cubin  ON artifacts (cubin_sha256);
CREATE INDEX artifacts_by_config ON artifacts (config_id);
CREATE INDEX artifacts_by_use    ON artifacts (last_used_at);

CREATE TABLE cubins (                    -- the bytes apart: equal ones are stored once, facts outlive them
  cubin_sha256  TEXT PRIMARY KEY CHECK (length(cubin_sha256) = 64),
  cubin         BLOB NOT NULL CHECK (length(cubin) > 0)
) STRICT;

CREATE TABLE ahead (                     -- compiled ahead of any tuning: no eviction takes these cubins before the key
  build_sha256  TEXT NOT NULL,           -- that will want them is tuned, which is when its rows go
  problem       TEXT NOT NULL,           -- of that key: {"T":"half","hidden":8192}, buckets applied
  PRIMARY KEY (build_sha256, problem)
) STRICT, WITHOUT ROWID;

CREATE TABLE trials (                    -- one config tried for one key
  trial_id      INTEGER PRIMARY KEY,
  key_id        INTEGER NOT NULL REFERENCES keys ON DELETE CASCADE,
  study_id      INTEGER NOT NULL REFERENCES studies ON DELETE CASCADE,
  config_id     INTEGER NOT NULL REFERENCES configs,
  artifact_id   INTEGER REFERENCES artifacts ON DELETE SET NULL,
  build_sha256  TEXT NOT NULL,           -- '' when nothing was compiled
  status        TEXT NOT NULL CHECK (status IN ('ok','early_stopped','skipped','compile_error','compile_timeout',
                  'compile_crash','launch_error','run_timeout','run_crash','wrong_result','out_of_bounds')),
  samples       INTEGER NOT NULL CHECK (samples >= 0),
  min_us        REAL, median_us REAL, mean_us REAL, stddev_us REAL, max_us REAL,
  first_us      REAL,                    -- the first, cold launch
  clock_mhz     INTEGER,                 -- the SM clock seen during the samples
  occupancy     REAL,                    -- share of the SM's threads
  default_us    REAL,                    -- the default config's median in the same study
  shared_bytes  INTEGER NOT NULL,        -- dynamic shared memory
  wall_ms       REAL NOT NULL CHECK (wall_ms >= 0),  -- compile, run and overhead: what it cost
  stop          TEXT NOT NULL DEFAULT '',  -- why sampling ended: agreed, count, time, lost
  error         TEXT NOT NULL DEFAULT '',
  at            INTEGER NOT NULL,
  -- SQLite stores NaN as NULL and a CHECK that is NULL passes, hence the coalesce.
  CHECK (status NOT IN ('ok','early_stopped')
         OR coalesce(samples > 0 AND min_us > 0 AND median_us >= min_us AND max_us >= median_us AND max_us < 1e12
                     AND stddev_us >= 0 AND stddev_us < 1e12, 0)),
  CHECK (default_us IS NULL OR (default_us > 0 AND default_us < 1e12))
) STRICT;
CREATE INDEX trials_by_key      ON trials (key_id, config_id, trial_id);
CREATE INDEX trials_by_study    ON trials (study_id, median_us);
CREATE INDEX trials_by_config   ON trials (config_id);
CREATE INDEX trials_by_artifact ON trials (artifact_id);

CREATE TABLE winners (                   -- the answer, one row a key. This is all that a launch reads.
  key_id        INTEGER PRIMARY KEY REFERENCES keys ON DELETE CASCADE,
  study_id      INTEGER REFERENCES studies ON DELETE SET NULL,
  config_id     INTEGER NOT NULL REFERENCES configs,
  artifact_id   INTEGER REFERENCES artifacts,  -- NULL: imported without a cubin
  median_us     REAL CHECK (median_us IS NULL OR (median_us > 0 AND median_us < 1e12)),  -- NULL: imported without a time
  default_us    REAL CHECK (default_us IS NULL OR (default_us > 0 AND default_us < 1e12)),
  pinned        INTEGER NOT NULL DEFAULT 0 CHECK (pinned IN (0, 1)),  -- set by a person: never replaced, never evicted
  decided_at    INTEGER NOT NULL
) STRICT;
CREATE INDEX winners_by_artifact ON winners (artifact_id);
CREATE INDEX winners_by_study    ON winners (study_id);
CREATE INDEX winners_by_config   ON winners (config_id);

CREATE TABLE leases (                    -- at most one process tunes a key
  key_sha256    TEXT PRIMARY KEY,
  holder        TEXT NOT NULL,           -- a random token; only who knows it may publish
  host          TEXT NOT NULL,
  boot_id       TEXT NOT NULL,
  pid_namespace INTEGER NOT NULL,        -- a pid means something in its own namespace only
  pid           INTEGER NOT NULL,
  pid_start     INTEGER NOT NULL,        -- field 22 of /proc/PID/stat: a recycled pid does not look alive
  budget_ms     INTEGER NOT NULL,
  claimed_at    INTEGER NOT NULL,
  renewed_at    INTEGER NOT NULL,        -- by progress, not by a timer
  expires_at    INTEGER NOT NULL         -- twice the budget after that
) STRICT, WITHOUT ROWID;

CREATE TABLE failures_seen (             -- builds that failed to compile, or to run on a problem: not to be tried again
  build_sha256  TEXT NOT NULL,
  problem_sha256 TEXT NOT NULL,          -- '' for compile failures
  status        TEXT NOT NULL,
  times         INTEGER NOT NULL,
  last_error    TEXT NOT NULL,
  last_at       INTEGER NOT NULL,        -- forgotten 90 days after: toolkits get fixed
  PRIMARY KEY (build_sha256, problem_sha256)
) STRICT, WITHOUT ROWID;

CREATE TABLE definitions (               -- kernels as launches knew them: misses are tuned by them
  definition_sha256 TEXT PRIMARY KEY CHECK (length(definition_sha256) = 64),
  kernel        TEXT NOT NULL,
  definition    TEXT NOT NULL,           -- JSON, with the source's text
  first_seen_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE misses (                    -- launches that found no winner: what is worth tuning
  key_sha256    TEXT NOT NULL,
  problem       TEXT NOT NULL,           -- exact, not bucketed
  kernel        TEXT NOT NULL,
  device        TEXT NOT NULL,
  nvrtc         TEXT NOT NULL,
  definition_sha256 TEXT NOT NULL,       -- '' when it was not told
  times         INTEGER NOT NULL,        -- launches, as far as they were told: a crash loses the latest
  first_at      INTEGER NOT NULL,
  last_at       INTEGER NOT NULL,
  PRIMARY KEY (key_sha256, problem)
) STRICT, WITHOUT ROWID;

CREATE TABLE toolchains (                -- which NVRTC a file is, so that a warm process need not load it
  path          TEXT PRIMARY KEY,
  device        INTEGER NOT NULL,
  inode         INTEGER NOT NULL,
  size_bytes    INTEGER NOT NULL,
  mtime_ns      INTEGER NOT NULL,
  version       TEXT NOT NULL,
  build         TEXT NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO meta VALUES ('min_reader_version', '1');

-- Views for people ----------------------------------------------------------------------------------------------------

CREATE VIEW best AS                      -- the winners
SELECT k.kernel || CASE k.variant WHEN '' THEN '' ELSE ' (' || k.variant || ')' END AS kernel, k.problem,
       c.params AS config, round(w.median_us, 2) AS median_us, round(w.default_us, 2) AS default_us,
       CASE WHEN w.default_us IS NULL OR w.median_us IS NULL THEN '' ELSE printf('%.2fx', w.default_us / w.median_us) END AS speedup,
       a.regs, round(a.static_smem_bytes / 1024.0, 1) AS static_smem_kib, k.arch,
       coalesce(s.device_name, '') AS device, k.nvrtc, datetime(w.decided_at, 'unixepoch') AS decided_utc,
       CASE w.pinned WHEN 1 THEN 'pinned' ELSE '' END AS pinned, substr(k.key_sha256, 1, 12) AS key
  FROM winners w JOIN keys k USING (key_id) JOIN configs c USING (config_id)
  LEFT JOIN artifacts a ON a.artifact_id = w.artifact_id LEFT JOIN studies s ON s.study_id = w.study_id
 ORDER BY k.kernel, k.variant, k.problem, k.arch, k.nvrtc;

CREATE VIEW audit AS                     -- what a winner was compiled from
SELECT substr(k.key_sha256, 1, 12) AS key, k.kernel, k.problem, c.params AS config, k.entry, k.options,
       coalesce(a.lowered_name, '') AS symbol, coalesce(a.cubin_sha256, '') AS cubin_sha256,
       CASE coalesce(a.signature, '') WHEN '' THEN '' ELSE 'signed' END AS signed, k.source_sha256,
       coalesce(o.headers, '') AS headers, coalesce(o.text, '') AS source
  FROM winners w JOIN keys k USING (key_id) JOIN configs c USING (config_id)
  LEFT JOIN artifacts a ON a.artifact_id = w.artifact_id LEFT JOIN sources o ON o.source_sha256 = k.source_sha256
 ORDER BY k.kernel, k.variant, k.problem, k.arch, k.nvrtc;

CREATE VIEW trial_list AS                -- every trial, fastest first within a study
SELECT t.study_id AS study, k.kernel, k.problem, c.params AS config, t.status, t.samples,
       round(t.median_us, 2) AS median_us, round(t.min_us, 2) AS min_us, round(t.stddev_us, 2) AS stddev_us,
       CASE WHEN t.status = 'ok' AND t.default_us IS NOT NULL THEN printf('%.2fx', t.default_us / t.median_us)
            ELSE '' END AS speedup,
       a.regs, a.spill_bytes, round(t.shared_bytes / 1024.0, 1) AS shared_kib, round(100 * t.occupancy) AS occupancy_pct,
       t.clock_mhz, t.stop, round(a.compile_ms, 1) AS compile_ms, round(t.wall_ms, 1) AS wall_ms, t.error
  FROM trials t JOIN keys k USING (key_id) JOIN configs c USING (config_id)
  LEFT JOIN artifacts a ON a.artifact_id = t.artifact_id
 ORDER BY t.study_id, t.status <> 'ok', t.status <> 'early_stopped', t.median_us;

CREATE VIEW failures AS                  -- what did not work and why, most frequent first
SELECT k.kernel, c.params AS config, t.status, count(*) AS times, datetime(max(t.at), 'unixepoch') AS last_utc,
       substr(CASE WHEN t.error <> '' THEN t.error ELSE coalesce(a.log, '') END, 1, 160) AS why
  FROM trials t JOIN keys k USING (key_id) JOIN configs c USING (config_id)
  LEFT JOIN artifacts a ON a.artifact_id = t.artifact_id
 WHERE t.status NOT IN ('ok', 'early_stopped', 'skipped')
 GROUP BY k.kernel, c.params, t.status ORDER BY times DESC, last_utc DESC;

CREATE VIEW history AS                   -- the studies, newest first
SELECT s.study_id AS study, datetime(s.started_at, 'unixepoch') AS started_utc, k.kernel, k.problem,
       coalesce(s.outcome, 'running or died') AS outcome, s.strategy,
       count(t.trial_id) AS trials, coalesce(sum(t.status = 'ok'), 0) AS ok,
       coalesce(sum(t.status = 'early_stopped'), 0) AS early,
       coalesce(sum(t.status NOT IN ('ok', 'early_stopped', 'skipped')), 0) AS failed,
       round(min(CASE WHEN t.status = 'ok' THEN t.median_us END), 2) AS best_us, round(max(t.default_us), 2) AS default_us,
       s.reference, round(s.reference_us, 2) AS reference_us, s.ended_at - s.started_at AS took_s, s.method, round(s.compile_ms) AS compile_ms, round(s.wait_ms) AS wait_ms,
       round(s.load_ms) AS load_ms, round(s.check_ms) AS check_ms, round(s.run_ms) AS run_ms,
       round(s.saved_ms, 1) AS saved_ms, s.device_name AS device, s.host, s.pid, s.note
  FROM studies s JOIN keys k USING (key_id) LEFT JOIN trials t USING (study_id)
 GROUP BY s.study_id ORDER BY s.started_at DESC, s.study_id DESC;

CREATE VIEW space_used AS
SELECT 'cubins' AS what, count(*) AS entries, round(coalesce(sum(length(cubin)), 0) / 1048576.0, 2) AS mib FROM cubins
UNION ALL SELECT 'keys', count(*), NULL FROM keys
UNION ALL SELECT 'winners', count(*), NULL FROM winners
UNION ALL SELECT 'studies', count(*), NULL FROM studies
UNION ALL SELECT 'trials', count(*), NULL FROM trials
UNION ALL SELECT 'artifacts', count(*), NULL FROM artifacts;
