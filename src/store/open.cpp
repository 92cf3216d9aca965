#include "store/open.hpp"

#include <sqlite3.h>
#include <sys/stat.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "base/clock.hpp"
#include "base/hash.hpp"
#include "store/files_at.hpp"
#include "store/migrate.hpp"
#include "store/schema.hpp"

namespace jitune::store {

const char* const kSchemaFingerprint = "8d0df6eb14a6850cc6349ec1bea119f8fdb57ab773cdd1f82a132b9e19440c21";

namespace {

using namespace std::chrono_literals;

/// Held from the creation of a file to its close, and while a connection is opened: see create_empty.
std::mutex& opening_mutex() {
  static std::mutex mutex;
  return mutex;
}

void pause_between_tries() {
  note_busy_wait();
  // Processes that started together must not try in step.
  std::this_thread::sleep_for(1ms + std::chrono::nanoseconds(Clock::now().time_since_epoch().count() % 9'000'000));
}

OpenedFile unusable(const char* code, std::string why) {
  return {std::nullopt, false, code, std::move(why), {}};
}

std::string uri_of(const std::string& path) {
  std::string uri = "file:";
  static constexpr char kDigits[] = "0123456789ABCDEF";
  for (const char c : path) {
    if (c == '%' || c == '?' || c == '#') {
      uri += '%';
      uri += kDigits[static_cast<unsigned char>(c) >> 4];
      uri += kDigits[c & 15];
    } else {
      uri += c;
    }
  }
  return uri + "?immutable=1";
}

/// One attempt at opening; SqliteErrors come out of it.
class Opener {
 public:
  Opener(const FileOptions& options, Clock::time_point deadline) : options_(options), deadline_(deadline) {}

  OpenedFile writable() {
    const std::scoped_lock lock(opening_mutex());
    if (Result<void> made = create_empty(options_.path); !made) return unusable("database_unavailable", made.error());
    Database database(options_.path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOFOLLOW);
    if (database.is_read_only()) throw SqliteError(SQLITE_READONLY, "its mode or its file system forbids it");
    database.wait_at_most_ms(busy_ms());
    database.distrust_file();
    if (OpenedFile verdict = create_or_check(database); !verdict.why.empty()) return verdict;
    database.execute(
        "PRAGMA cell_size_check=ON; PRAGMA mmap_size=0; PRAGMA foreign_keys=ON; PRAGMA synchronous=NORMAL;"
        "PRAGMA wal_autocheckpoint=0; PRAGMA journal_size_limit=16777216;"
        // On in some distributions: to drop a cubin would write all of it once more, on a full disk too.
        "PRAGMA secure_delete=OFF");
    if (choose_journal(database)) database.queue_writers(options_.path + ".lock");
    return {std::move(database), true, "", "", std::move(warnings_)};
  }

  /// Reads through the write-ahead log where its index can be had, else the file alone as it stands.
  OpenedFile readable(const std::string& why) {
    try {
      return readable(Database(options_.path, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOFOLLOW), why);
    } catch (const SqliteError& error) {
      if (error.trouble() != Trouble::io && error.trouble() != Trouble::read_only) throw;
    }
    return readable(Database(uri_of(options_.path), SQLITE_OPEN_READONLY | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_URI),
                    why);
  }

 private:
  OpenedFile readable(Database database, const std::string& why) {
    database.wait_at_most_ms(busy_ms());
    database.distrust_file();
    database.execute("PRAGMA cell_size_check=ON; PRAGMA mmap_size=0");
    OpenedFile verdict = check(database);
    if (!verdict.why.empty() && verdict.code != std::string("database_newer")) return verdict;
    if (verdict.code == std::string("database_newer")) {
      if (database.integer("SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'min_reader_version'") >
          kSchemaVersion)
        return verdict;
      verdict.why += "; it is read but not written";
    } else {
      verdict = unusable("database_read_only", why);
    }
    verdict.database = std::move(database);
    return verdict;
  }

  OpenedFile create_or_check(Database& database) {
    if (database.integer("PRAGMA application_id") == 0 && database.integer("SELECT count(*) FROM sqlite_schema") == 0) {
      database.execute("PRAGMA auto_vacuum=INCREMENTAL");  // writes a first page without our marks
      Transaction transaction(database);
      if (database.integer("SELECT count(*) FROM sqlite_schema") == 0) database.execute(kSchemaSql);
      transaction.commit();
    }
    if (const int64_t version = database.integer("PRAGMA user_version");
        version < kSchemaVersion && is_known_older(database, version))
      migrate(database, options_.path);
    return check(database);
  }

  OpenedFile check(Database& database) const {
    const int64_t application = database.integer("PRAGMA application_id");
    const int64_t version = database.integer("PRAGMA user_version");
    const std::string name = "'" + options_.path + "'";
    if (application != kApplicationId)
      return unusable("database_foreign",
                      name + " is not a database of jitune; it is left as it is: name another file");
    if (version > kSchemaVersion)
      return unusable("database_newer", name + " has schema " + std::to_string(version) + ", this jitune knows " +
                                            std::to_string(kSchemaVersion) + ": use the newer jitune, or another file");
    if (version < kSchemaVersion && is_known_older(database, version))
      return unusable("database_older", name + " has the older schema " + std::to_string(version) +
                                            " and can't be brought up to date here: open it once for writing");
    if (version < 1 || schema_fingerprint(database) != kSchemaFingerprint)
      return unusable("database_foreign", name +
                                              " says that it is a database of jitune, but its tables are not those of "
                                              "schema " +
                                              std::to_string(version) + "; it is left as it is: name another file");
    return {};
  }

  /// False: on a network file system.
  bool choose_journal(Database& database) {
    if (on_network_file_system(options_.path, options_.file_system_type)) {
      database.execute("PRAGMA journal_mode=TRUNCATE");
      warnings_.push_back(
          {"database_network", "",
           "'" + options_.path +
               "' lies on a network file system: it is used with a rollback journal; a local file is faster "
               "and safer (JITUNE_DATABASE)",
           options_.path});
      return false;
    }
    // The switch to WAL needs the file for itself and heeds no busy timeout. Where others keep it busy for long, the
    // rollback journal does as well, and the next opening tries again. Tried once even where making the file took all
    // the time there was.
    for (bool tried = false; database.text("PRAGMA journal_mode") != "wal" && (!tried || Clock::now() < deadline_);
         tried = true) {
      try {
        if (database.text("PRAGMA journal_mode=WAL") == "wal") return true;
      } catch (const SqliteError& error) {
        if (error.trouble() != Trouble::busy) throw;
      }
      pause_between_tries();
      database.integer("SELECT count(*) FROM sqlite_schema");  // notices that another process has switched
    }
    return true;
  }

  int busy_ms() const { return static_cast<int>(options_.patience.count()); }

  const FileOptions& options_;
  Clock::time_point deadline_;
  std::vector<Warning> warnings_;
};

/// A file that is being made by another process may look like nothing we know for a moment.
Looks look_with_patience(const std::string& path) {
  Looks looks = look_at(path);
  for (int i = 0; i < 3 && looks.kind == Looks::Kind::foreign; ++i) {
    std::this_thread::sleep_for(10ms);
    looks = look_at(path);
  }
  return looks;
}

/// What the path and the first bytes of the file say, before SQLite is let near it; nothing when it may be opened.
std::optional<OpenedFile> judge(const FileOptions& options, Looks& looks) {
  looks = look_with_patience(options.path);
  if (looks.kind == Looks::Kind::absent) {
    if (!options.create || options.read_only)
      return unusable("database_absent", "there is no database '" + options.path + "'");
    if (Result<void> made = make_directory_for(options.path); !made)
      return unusable("database_unavailable", made.error());
  }
  if (Result<void> owned = check_owners(options.path); !owned) return unusable("database_unavailable", owned.error());
  if (looks.kind == Looks::Kind::foreign)
    return unusable("database_foreign",
                    "'" + options.path + "' is not a database of jitune; it is left as it is: name another file");
  if (looks.kind == Looks::Kind::empty && options.read_only)
    return unusable("database_absent", "'" + options.path + "' is empty");
  return std::nullopt;
}

/// Moves the file away if it is still the one that was looked at.
bool move_away(const FileOptions& options, const struct stat& seen, const std::string& reason,
               std::vector<Warning>& warnings, std::string& failure) {
  const Result<std::string> moved = quarantine(options.path, [&] {
    struct stat now {};
    return ::stat(options.path.c_str(), &now) == 0 && now.st_dev == seen.st_dev && now.st_ino == seen.st_ino;
  });
  if (!moved) {
    failure = moved.error();
    return false;
  }
  if (!moved->empty()) warnings.push_back({"database_corrupt", "", corrupt_text(options.path, *moved, reason), ""});
  return true;
}

OpenedFile open_read_only(const FileOptions& options, const std::string& why) {
  try {
    return Opener(options, Clock::now()).readable(why);
  } catch (const SqliteError& error) {
    return unusable("database_unavailable", "'" + options.path + "' can't be read: " + error.what());
  }
}

/// Opens for writing, again and again while others are in the way, and once more when a damaged file was moved away.
OpenedFile open_with_patience(const FileOptions& options, std::vector<Warning>& warnings) {
  const Clock::time_point deadline = Clock::now() + options.patience;
  for (int moved = 0;;) {
    Looks looks;
    if (std::optional<OpenedFile> verdict = judge(options, looks)) return std::move(*verdict);
    if (options.read_only) return open_read_only(options, "opened for reading only");
    if (looks.schema > kSchemaVersion) return open_read_only(options, "");
    struct stat seen {};
    (void)::stat(options.path.c_str(), &seen);
    try {
      return Opener(options, deadline).writable();
    } catch (const SqliteError& error) {
      const std::string reason = "'" + options.path + "': " + error.what();
      switch (error.trouble()) {
        case Trouble::busy:
          if (Clock::now() > deadline) return unusable("database_busy", reason + ": another process keeps it locked");
          pause_between_tries();
          break;
        case Trouble::corrupt: {
          std::string failure;
          if (++moved > 2) return unusable("database_unavailable", reason);
          if (!move_away(options, seen, error.what(), warnings, failure))
            return unusable("database_unavailable", failure);
          break;
        }
        case Trouble::full:
          return unusable("database_full", reason + ": free some space");
        case Trouble::io:
        case Trouble::read_only:
          return open_read_only(options, "'" + options.path + "' can't be written (" + error.what() + ")");
        default:
          return unusable("database_unavailable", reason);
      }
    }
  }
}

}  // namespace

std::string corrupt_text(const std::string& path, const std::string& moved_to, const std::string& reason) {
  return "'" + path + "' is damaged (" + reason + "): it was moved to '" + moved_to +
         "' and a new one begun; `sqlite3 OLD .recover` may save what it holds";
}

OpenedFile open_file(const FileOptions& options) {
  std::vector<Warning> warnings;
  OpenedFile opened = open_with_patience(options, warnings);
  opened.warnings.insert(opened.warnings.begin(), warnings.begin(), warnings.end());
  return opened;
}

Database open_memory() {
  Database database(":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
  database.distrust_file();
  database.execute(kSchemaSql);
  database.execute("PRAGMA foreign_keys=ON");
  return database;
}

std::string schema_fingerprint(Database& database) {
  Statement statement = database.prepare(
      "SELECT sql FROM sqlite_schema WHERE type IN ('table', 'index') AND sql IS NOT NULL AND name NOT LIKE "
      "'sqlite~_%' "
      "ESCAPE '~' ORDER BY name");
  FieldHasher hasher;
  while (statement.next()) hasher.field("sql", statement.text());
  return hasher.finish();
}

}  // namespace jitune::store
