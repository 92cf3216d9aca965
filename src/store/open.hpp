#pragma once

#include <optional>
#include <string>

#include "base/log.hpp"
#include "store/sqlite.hpp"

namespace jitune::store {

struct FileOptions {
  std::string path;  ///< resolved_path()
  bool create = true;
  bool read_only = false;
  Log* log = nullptr;
};

/// What came of opening a file.
struct OpenedFile {
  std::optional<Database> database;  ///< nothing: it can't be used
  bool writable = false;
  const char* code = "";  ///< database_absent, _foreign, _newer, _read_only, _full, _busy, _unavailable, for the log
  std::string why;        ///< when it is not writable or can't be used; names the remedy
};

/// Opens or creates the database's file, checks that it is ours and of our schema, and sets it up. Any number of
/// processes may do so at once. A damaged file is moved away (with a warning) and a new one made; a foreign one, or one
/// of a newer schema, is not written. Blocks for 5 s at most. Never throws.
OpenedFile open_file(const FileOptions& options);

/// A database of the same schema in memory.
Database open_memory();

/// The warning about a damaged file that was moved away.
std::string corrupt_text(const std::string& path, const std::string& moved_to, const std::string& reason);

/// SHA-256 over the tables and indexes of a database; see kSchemaFingerprint.
std::string schema_fingerprint(Database& database);

}  // namespace jitune::store
