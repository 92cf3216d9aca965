#pragma once

#include <sys/types.h>

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <mutex>

#include "base/clock.hpp"
#include "store/open.hpp"
#include "store/rows.hpp"
#include "store/store.hpp"

namespace jitune::store {

/// The Store on SQLite. What is written goes to `main_`: the file, or a database in memory where the file can't be
/// written. In the latter case reads go on to `base_`, the file as it can still be read, where there is one.
/// When the file fails under way (full, gone, damaged) the running studies and leases are carried over to what takes
/// its place, so that whoever tunes does not notice.
class SqliteStore final : public Store {
 public:
  SqliteStore(OpenOptions options, std::string path);
  ~SqliteStore() override;
  SqliteStore(const SqliteStore&) = delete;
  SqliteStore& operator=(const SqliteStore&) = delete;

  /// Opens the file or falls back to memory. Called once.
  Result<void> start();

  std::string path() const override;
  bool in_memory() const override;
  Result<std::optional<WinnerRow>> find_winner(const std::string& key_sha256) override;
  Result<std::optional<WinnerRow>> find_compatible(const key::TuningKey& key) override;
  Result<std::vector<KeyRow>> find_related(const key::TuningKey& key) override;
  Result<void> record_miss(const key::TuningKey& key, const std::string& exact_problem, const std::string& device,
                           const std::string& definition, int64_t times) override;
  Result<std::optional<ArtifactRow>> find_artifact(const std::string& build_sha256) override;
  Result<std::vector<ArtifactRow>> find_artifacts(const std::vector<std::string>& build_sha256) override;
  Result<void> put_artifact(const ArtifactRow& artifact, const key::SourceHash& source,
                            const std::string& source_text) override;
  Result<void> keep_until_tuned(const std::string& build_sha256, const std::string& problem) override;
  Result<std::optional<std::string>> known_failure(const std::string& build_sha256,
                                                   const std::string& problem) override;
  Result<void> record_failure(const std::string& build_sha256, const std::string& problem, const std::string& status,
                              const std::string& error) override;
  Result<Claim> claim(const key::TuningKey& key, std::chrono::milliseconds budget, bool force) override;
  Result<void> renew(const Lease& lease) override;
  Result<void> release(const Lease& lease) override;
  Result<int64_t> begin_study(const key::TuningKey& key, const StudyRow& study) override;
  Result<bool> add_trial(int64_t study, const Lease& lease, const TrialRow& trial) override;
  Result<std::vector<TrialRow>> trials_of(const std::string& key_sha256) override;
  Result<void> end_study(int64_t study, const Lease& lease, const StudyEnd& end,
                         const std::optional<WinnerRow>& winner) override;
  Result<std::vector<KeyRow>> list(const std::string& kernel) override;
  Result<std::vector<KeyRow>> find_keys(const std::string& prefix) override;
  Result<std::vector<TrialRow>> trials_of_study(int64_t study) override;
  Result<std::optional<StudyView>> find_study(int64_t study) override;
  Result<std::vector<MissRow>> misses() override;
  Result<std::string> definition(const std::string& definition_sha256) override;
  Result<std::string> source_of(const std::string& source_sha256) override;
  Result<Health> health() override;
  Result<std::vector<WinnerRecord>> records(bool with_bytes) override;
  Result<TakenIn> take_in(const std::vector<WinnerRecord>& records) override;
  Result<bool> set_pinned(const std::string& key_sha256, bool pinned) override;
  Result<std::optional<NearKey>> find_nearest(const key::TuningKey& key) override;
  Result<Evicted> collect(int64_t max_cubin_bytes) override;
  std::optional<Toolchain> find_toolchain(const Toolchain& stat_tuple) override;
  void put_toolchain(const Toolchain& toolchain) override;

 private:
  /// launch: 200 ms in all, for our own lock and for the file's. brief: 200 ms for the file's, not at all where
  /// something is being kept already. work: 5 s for the file's, or what OpenOptions say.
  enum class Wait : uint8_t { launch, brief, work };
  enum class Access : uint8_t { read, write };

  struct ActiveStudy {
    key::TuningKey key;
    StudyRow row;
    int64_t id = 0;  ///< where it is now; callers go on using the number that begin_study gave them
  };
  struct ActiveLease {
    Lease lease;
    LeaseRequest request;
  };

  /// Runs work(main_) under the lock. Trouble with the file is met as the class comment says and the work tried again.
  /// Who waits for a file that others keep locked lets those in who read, or are in a launch.
  template <class Work>
  auto run(Wait wait, Access access, Work work) -> Result<decltype(work(std::declval<Database&>()))>;
  template <class Work>
  auto run_locked(Wait wait, Access access, Work work)
      -> std::optional<Result<decltype(work(std::declval<Database&>()))>>;  ///< nothing: it gave way and is to try
                                                                            ///< again
  /// As run, for reading. What `work` finds in the base, if there is one, is given to `merge(T& found, T below)`.
  template <class Work, class Merge>
  auto read(Wait wait, Work work, Merge merge) -> Result<decltype(work(std::declval<Database&>()))>;
  template <class Work>
  auto read_base(Work work) -> std::optional<decltype(work(std::declval<Database&>()))>;

  /// As run, for writing, for what a running study must not lose: where another process keeps the file locked for
  /// longer than we wait, `work` is kept and done before the next such call, or when the store closes. `bytes`: that it
  /// keeps in memory meanwhile. soon: waits briefly; trial: long, but briefly where something is being kept already;
  /// last: long.
  enum class Hold : uint8_t { soon, trial, last };
  using HeldWork = std::function<Result<void>(Database&)>;
  Result<void> write_or_hold(Hold how, HeldWork work, size_t bytes = 0);
  void write_held(Database& database);      ///< throws while the file is locked
  bool may_hold(const SqliteError& error);  ///< and not try again first
  void hold(HeldWork work, size_t bytes = 0);
  Result<void> commit_end(Database& database, int64_t study, const Lease& lease, const StudyEnd& end,
                          const std::optional<WinnerRow>& winner, int64_t at);

  bool lock_within(Wait wait, Access access, std::unique_lock<std::mutex>& lock);
  std::chrono::milliseconds brief() const;
  bool may_try_again() const;  ///< the last wait for the file ended only because somebody else wanted the connection
  std::string why_not_usable(Access access) const;  ///< "" when it is
  bool recover(const SqliteError& error);           ///< whether the work should be tried again
  bool replace_file();                              ///< opens the path anew; false: `main_` is nothing then
  bool go_to_memory(const char* code, const std::string& why);
  bool meet_damage(const SqliteError& error);
  bool make_room();  ///< once: on a full disk drops what nobody needs; whether the work should be tried again
  void carry_over();
  Failure failure(const SqliteError& error) const;
  template <class Find>
  Result<std::optional<WinnerRow>> winner_by(Find find);
  /// As store::find_winner, or from what was found and verified before, while the file is what it was.
  std::optional<FoundWinner> find_again(Database& database, const std::string& key_sha256);
  void keep_found(const std::string& key_sha256, const FoundWinner& found);
  void forget_found();
  void note_use(const FoundWinner& found);      ///< once a day
  void drop_if_damaged(ArtifactRow& artifact);  ///< checks the cubin and warns
  void keep_tidy();
  void warn(const char* code, const std::string& text);  ///< when the lock is free again
  void say(const std::vector<Warning>& warnings);
  int64_t now() const;

  OpenOptions options_;
  std::string path_;  ///< resolved; "" for memory
  std::string signing_key_;
  bool locked_ = false;  ///< a launch waited for another process's lock in vain: the next ones do not wait
  std::atomic<bool> too_large_{false};  ///< at a study's end the file was larger than the cap
  pid_t pid_;
  mutable std::mutex mutex_;
  std::atomic<int> waiting_{0};  ///< launches and readers, for mutex_
  std::optional<Database> main_, base_;
  bool main_is_file_ = false;
  bool refuses_writes_ = false;  ///< opened for reading only
  std::string state_ = "ok";
  std::chrono::milliseconds patience_{5000};
  Clock::time_point deadline_;  ///< of the call under way
  bool in_launch_ = false;      ///< it is a launch's
  bool made_room_ = false;
  std::vector<Warning> warnings_;  ///< to be said when the lock is free
  std::map<int64_t, ActiveStudy> studies_;
  std::map<std::string, ActiveLease> leases_;  ///< by key
  std::map<std::string, FoundWinner> found_;   ///< by key; empty after any write of ours
  size_t found_bytes_ = 0;                     ///< of their cubins
  uint32_t found_version_ = 0;                 ///< Database::seen_version() then
  std::deque<HeldWork> held_;
  size_t held_bytes_ = 0;
};

}  // namespace jitune::store
