#pragma once

#include <cstdint>

namespace jitune::store {

inline constexpr int64_t kApplicationId = 0x4A54554E;  ///< 'JTUN'; schema.sql sets it
inline constexpr int kSchemaVersion = 3;               ///< user_version; schema.sql sets it

/// schema.sql, all of it.
extern const char* const kSchemaSql;

/// SHA-256 over the SQL of the tables and indexes that schema.sql makes, as SQLite keeps it (views may change in any
/// release). A file with our marks but other tables is not used. A test says the new value when schema.sql changes.
extern const char* const kSchemaFingerprint;

}  // namespace jitune::store
