#include <algorithm>

#include "base/hash.hpp"
#include "store/schema.hpp"
#include "store/sqlite_store_run.hpp"

namespace jitune::store {
namespace {

constexpr int64_t kDaySeconds = 86400;

/// Of cubins that were found and verified lately, about.
constexpr size_t kFoundBytes = size_t{1} << 20;

/// For what either is there or is not: the memory's answer goes before the file's.
const auto first_found = [](auto& found, auto below) {
  if (!found) found = std::move(below);
};

const auto merge_keys = [](std::vector<KeyRow>& found, std::vector<KeyRow> below) {
  for (KeyRow& row : below) {
    const auto same =
        std::find_if(found.begin(), found.end(), [&](const KeyRow& k) { return k.key.sha256 == row.key.sha256; });
    if (same == found.end()) {
      found.push_back(std::move(row));
      continue;
    }
    same->trials += row.trials;
    same->ok_trials += row.ok_trials;
    if (!same->winner) same->winner = std::move(row.winner);
    if (same->last_outcome.empty()) same->last_outcome = row.last_outcome;
    if (same->device_name.empty()) same->device_name = row.device_name;
  }
};

const auto merge_trials = [](std::vector<TrialRow>& found, std::vector<TrialRow> below) {
  for (TrialRow& row : below)
    if (std::none_of(found.begin(), found.end(), [&](const TrialRow& t) { return t.config == row.config; }))
      found.push_back(std::move(row));
};

}  // namespace

template <class Find>
Result<std::optional<WinnerRow>> SqliteStore::winner_by(Find find) {
  return run(Wait::launch, Access::read, [&](Database& database) -> std::optional<WinnerRow> {
    std::optional<FoundWinner> found = find(database);
    if (found) {
      note_use(*found);
    } else if (auto below = read_base(find)) {
      found = std::move(*below);
    }
    if (!found) return std::nullopt;
    if (found->row.artifact && !found->verified) drop_if_damaged(*found->row.artifact);
    return std::move(found->row);
  });
}

Result<std::optional<WinnerRow>> SqliteStore::find_winner(const std::string& key_sha256) {
  return winner_by([&](Database& database) { return find_again(database, key_sha256); });
}

std::optional<FoundWinner> SqliteStore::find_again(Database& database, const std::string& key_sha256) {
  // What the file or this connection has changed since, and what was not the file's, is read anew.
  if (!main_is_file_ || &database != &*main_) return store::find_winner(database, key_sha256);
  if (const auto before = found_.find(key_sha256); before != found_.end()) {
    database.integer("PRAGMA data_version");  // looks at the file
    if (database.seen_version() == found_version_) return before->second;
  }
  std::optional<FoundWinner> found = store::find_winner(database, key_sha256);
  if (database.seen_version() != found_version_) forget_found();
  found_version_ = database.seen_version();
  if (!found || !found->row.artifact || found->row.artifact->cubin.size() > kFoundBytes) return found;
  drop_if_damaged(*found->row.artifact);
  if (found->row.artifact->cubin.empty()) return found;
  found->verified = true;
  keep_found(key_sha256, *found);
  return found;
}

/// In the place of others where there is no room: in their memory too, for to give 40 KiB back and ask for them anew
/// costs as much as to look a key up.
void SqliteStore::keep_found(const std::string& key_sha256, const FoundWinner& found) {
  const size_t bytes = found.row.artifact->cubin.size();
  decltype(found_)::node_type place;
  while (!found_.empty() && found_bytes_ + bytes > kFoundBytes) {
    auto next = found_.upper_bound(key_sha256);  // any: keys are hashes
    if (next == found_.end()) next = found_.begin();
    found_bytes_ -= next->second.row.artifact->cubin.size();
    place = found_.extract(next);
  }
  found_bytes_ += bytes;
  if (place.empty()) {
    found_.emplace(key_sha256, found);
    return;
  }
  place.key() = key_sha256;
  place.mapped() = found;
  found_.insert(std::move(place));
}

void SqliteStore::forget_found() {
  found_.clear();
  found_bytes_ = 0;
}

Result<std::optional<WinnerRow>> SqliteStore::find_compatible(const key::TuningKey& key) {
  return winner_by([&](Database& database) { return store::find_compatible(database, key); });
}

void SqliteStore::note_use(const FoundWinner& found) {
  const int64_t time = now();
  if (!main_is_file_ || refuses_writes_ || time - found.last_used_at < kDaySeconds) return;
  try {
    main_->wait_at_most_ms(0);
    touch_key(*main_, found.row.key_sha256, time);
    if (const auto kept = found_.find(found.row.key_sha256); kept != found_.end()) kept->second.last_used_at = time;
  } catch (const SqliteError&) {
    // Best effort: it only decides what is evicted first.
  }
}

void SqliteStore::drop_if_damaged(ArtifactRow& artifact) {
  const CubinFault fault = clear_if_bad(artifact, signing_key_);
  if (fault == CubinFault::none) return;
  const bool damaged = fault == CubinFault::damaged;
  const std::string why = damaged                           ? "is not what its SHA-256 says"
                          : fault == CubinFault::not_signed ? "is not signed"
                                                            : "was not signed with this key";
  warnings_.push_back({damaged ? "cubin_damaged" : "cubin_unsigned", artifact.kernel,
                       "a stored cubin of config " + artifact.config + " " + why + "; it is compiled again",
                       artifact.build_sha256});
  if (!damaged || !main_is_file_ || refuses_writes_) return;
  try {
    drop_cubin(*main_, artifact.cubin_sha256);
  } catch (const SqliteError&) {
    // The next reader tries again; the check protects it as it did us.
  }
}

Result<std::vector<KeyRow>> SqliteStore::find_related(const key::TuningKey& key) {
  return read(
      Wait::launch, [&](Database& database) { return related_keys(database, key); }, merge_keys);
}

Result<void> SqliteStore::record_miss(const key::TuningKey& key, const std::string& exact_problem,
                                      const std::string& device, const std::string& definition, int64_t times) {
  return plain(run(Wait::launch, Access::write, [&](Database& database) {
    Transaction transaction(database);
    store::record_miss(database, {key, exact_problem, device, definition, times}, now());
    transaction.commit();
    return Done{};
  }));
}

Result<std::optional<ArtifactRow>> SqliteStore::find_artifact(const std::string& build_sha256) {
  return run(Wait::work, Access::read, [&](Database& database) {
    const auto find = [&](Database& any) { return store::find_artifact(any, build_sha256, true); };
    std::optional<ArtifactRow> found = find(database);
    if (!found || found->cubin.empty())
      if (auto below = read_base(find); below && *below) found = std::move(*below);
    if (found) drop_if_damaged(*found);
    return found;
  });
}

Result<std::vector<ArtifactRow>> SqliteStore::find_artifacts(const std::vector<std::string>& build_sha256) {
  return run(Wait::work, Access::read, [&](Database& database) {
    std::vector<ArtifactRow> rows;
    for (const std::string& sha256 : build_sha256) {
      const auto find = [&](Database& any) { return store::find_artifact(any, sha256, false); };
      std::optional<ArtifactRow> found = find(database);
      if (!found)
        if (auto below = read_base(find)) found = std::move(*below);
      if (found) rows.push_back(std::move(*found));
    }
    return rows;
  });
}

Result<void> SqliteStore::put_artifact(const ArtifactRow& artifact, const key::SourceHash& source,
                                       const std::string& source_text) {
  if (!artifact.cubin.empty() && !artifact.cubin_sha256.empty() && sha256_hex(artifact.cubin) != artifact.cubin_sha256)
    return Failure{"the cubin of config " + artifact.config + " is not what its SHA-256 says; it was not stored"};
  return write_or_hold(
      Hold::soon,
      [this, artifact, source, source_text](Database& database) -> Result<void> {
        Transaction transaction(database);
        keep_source(database, source, source_text, now());
        keep_artifact(database, artifact, source.sha256, now());
        transaction.commit();
        return {};
      },
      artifact.cubin.size() + source_text.size());
}

Result<std::optional<std::string>> SqliteStore::known_failure(const std::string& build_sha256,
                                                              const std::string& problem) {
  return read(
      Wait::work, [&](Database& database) { return store::known_failure(database, build_sha256, problem, now()); },
      first_found);
}

Result<void> SqliteStore::record_failure(const std::string& build_sha256, const std::string& problem,
                                         const std::string& status, const std::string& error) {
  return write_or_hold(Hold::soon, [=, this](Database& database) -> Result<void> {
    Transaction transaction(database);
    store::record_failure(database, build_sha256, problem, status, error, now());
    transaction.commit();
    return {};
  });
}

Result<std::optional<Store::NearKey>> SqliteStore::find_nearest(const key::TuningKey& key) {
  return read(
      Wait::work, [&](Database& database) { return nearest_key(database, key); },
      [](std::optional<NearKey>& found, std::optional<NearKey> below) {
        if (below && (!found || below->differences.size() < found->differences.size())) found = std::move(below);
      });
}

Result<std::vector<TrialRow>> SqliteStore::trials_of(const std::string& key_sha256) {
  return read(
      Wait::work, [&](Database& database) { return latest_trials(database, key_sha256); }, merge_trials);
}

Result<std::vector<KeyRow>> SqliteStore::list(const std::string& kernel) {
  return read(
      Wait::work, [&](Database& database) { return list_keys(database, kernel); }, merge_keys);
}

Result<std::vector<KeyRow>> SqliteStore::find_keys(const std::string& prefix) {
  return read(
      Wait::work, [&](Database& database) { return keys_by_prefix(database, prefix); }, merge_keys);
}

Result<std::vector<TrialRow>> SqliteStore::trials_of_study(int64_t study) {
  return run(Wait::work, Access::read, [&](Database& database) {
    const auto active = studies_.find(study);
    const int64_t id = active == studies_.end() ? study : active->second.id;
    std::vector<TrialRow> rows = store::trials_of_study(database, id);
    if (rows.empty() && active == studies_.end())
      if (auto below = read_base([&](Database& base) { return store::trials_of_study(base, id); }))
        rows = std::move(*below);
    return rows;
  });
}

Result<std::optional<StudyView>> SqliteStore::find_study(int64_t study) {
  return run(Wait::work, Access::read, [&](Database& database) {
    const auto active = studies_.find(study);
    std::optional<StudyView> found = view_study(database, active == studies_.end() ? study : active->second.id);
    if (!found)
      if (auto below = read_base([&](Database& base) { return view_study(base, study); })) found = std::move(*below);
    return found;
  });
}

Result<std::vector<MissRow>> SqliteStore::misses() {
  return read(
      Wait::work, [](Database& database) { return store::misses(database); },
      [](std::vector<MissRow>& found, std::vector<MissRow> below) {
        found.insert(found.end(), std::make_move_iterator(below.begin()), std::make_move_iterator(below.end()));
      });
}

Result<std::string> SqliteStore::definition(const std::string& definition_sha256) {
  auto found = run(Wait::work, Access::read, [&](Database& database) {
    const auto find = [&](Database& any) { return find_definition(any, definition_sha256); };
    auto here = find(database);
    if (!here)
      if (auto below = read_base(find); below && *below) here = std::move(*below);
    return here;
  });
  if (!found) return found.failure();
  if (!*found) return Failure{"the database holds no definition " + definition_sha256};
  return std::move(**found);
}

Result<std::string> SqliteStore::source_of(const std::string& source_sha256) {
  bool known = false;
  const auto find = [&](Database& database) {
    bool here = false;
    std::optional<std::string> text = source_text(database, source_sha256, here);
    known = known || here;
    return text;
  };
  Result<std::optional<std::string>> found = read(Wait::work, find, first_found);
  if (!found) return found.failure();
  if (*found) return std::move(**found);
  return Failure{known ? "source " + source_sha256.substr(0, 12) + " is not kept: it is not UTF-8"
                       : "no source with the hash '" + source_sha256 + "' is in the database"};
}

Result<Store::Health> SqliteStore::health() {
  return run(Wait::work, Access::read, [&](Database& database) {
    Health health;
    health.path = path_;
    health.state = state_;
    health.schema = kSchemaVersion;
    count_rows(database, health);
    health.quick_check = database.text("PRAGMA quick_check(1)");
    read_base([&](Database& base) {
      count_rows(base, health);
      health.schema = static_cast<int>(base.integer("PRAGMA user_version"));
      health.quick_check = base.text("PRAGMA quick_check(1)");
      return Done{};
    });
    return health;
  });
}

std::optional<Store::Toolchain> SqliteStore::find_toolchain(const Toolchain& stat_tuple) {
  Result<std::optional<Toolchain>> found = read(
      Wait::launch, [&](Database& database) { return store::find_toolchain(database, stat_tuple); }, first_found);
  return found ? std::move(*found) : std::nullopt;
}

void SqliteStore::put_toolchain(const Toolchain& toolchain) {
  // Best effort: without the row the next process asks the library again.
  (void)run(Wait::launch, Access::write, [&](Database& database) {
    Transaction transaction(database);
    store::put_toolchain(database, toolchain);
    transaction.commit();
    return Done{};
  });
}

}  // namespace jitune::store
