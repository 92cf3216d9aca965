#pragma once

#include <string>

#include "store/sqlite.hpp"

namespace jitune::store {

/// Whether the file's tables are those of an older schema that migrate() knows.
bool is_known_older(Database& database, int64_t version);

/// Brings a database of an older schema to this one, in one transaction; a copy is left in `<path>.v<N>.bak` first.
/// Any number of processes may do so at once; killed at any moment it leaves the old file or the new one.
/// Throws SqliteError; the file is then as it was.
void migrate(Database& database, const std::string& path);

}  // namespace jitune::store
