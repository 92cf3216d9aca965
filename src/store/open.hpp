#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "store/sqlite.hpp"

namespace jitune::store {

/// A warning for the log, kept until no lock is held: the log's hook may call the store.
struct Warning {
  std::string code, kernel, text, once_per;
};

struct FileOptions {
  std::string path;  ///< resolved_path()
  bool create = true;
  bool read_only = false;
  std::chrono::milliseconds patience{5000};                              ///< for a file that others keep busy
  uint64_t (*file_system_type)(const std::string& directory) = nullptr;  ///< as Store::OpenOptions'
};

/// What came of opening a file.
struct OpenedFile {
  std::optional<Database> database;  ///< nothing: it can't be used
  bool writable = false;
  const char* code = "";  ///< database_absent, _foreign, _newer, _read_only, _full, _busy, _unavailable, for the log
  std::string why;        ///< when it is not writable or can't be used; names the remedy
  std::vector<Warning> warnings;
};

/// Opens or creates the database's file, checks that it is ours and of our schema, and sets it up. Any number of
/// processes may do so at once. A damaged file is moved away (with a warning) and a new one made; a foreign one, or one
/// of a newer schema, is not written. Blocks for options.patience at most. Never throws.
OpenedFile open_file(const FileOptions& options);

/// A database of the same schema in memory.
Database open_memory();

/// The warning about a damaged file that was moved away.
std::string corrupt_text(const std::string& path, const std::string& moved_to, const std::string& reason);

/// SHA-256 over the tables and indexes of a database; see kSchemaFingerprint.
std::string schema_fingerprint(Database& database);

}  // namespace jitune::store
