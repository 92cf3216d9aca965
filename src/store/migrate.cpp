#include "store/migrate.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <set>
#include <vector>

#include "store/open.hpp"
#include "store/schema.hpp"

namespace jitune::store {
namespace {

struct Version {
  int64_t number;
  const char* fingerprint;  ///< kSchemaFingerprint of that version
  const char* mend;         ///< SQL that its rows need once the tables have their new columns; "" for none
};

/// One line for each past version; tests/store/golden has a dump of each.
constexpr Version kPast[] = {{1, "ebb42c067168946d41232d0eb46f5eb79c036eb03570211a9742ed3dcae99d2c", ""},
                             {2, "d55e45f23a11843aaa34f912a351db98e24353f5a7b2254b45936ef70c9a5624", ""}};

struct Item {
  std::string type, name, table, sql;
};

std::vector<Item> items_of(Database& database) {
  Statement row = database.prepare(
      "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite~_%' ESCAPE "
      "'~' ORDER BY rowid");
  std::vector<Item> items;
  while (row.next()) {
    Item item;
    item.type = row.text();
    item.name = row.text();
    item.table = row.text();
    item.sql = row.text();
    items.push_back(std::move(item));
  }
  return items;
}

std::vector<std::string> columns_of(Database& database, const std::string& table) {
  Statement row = database.prepare("SELECT name FROM pragma_table_info(?)");
  row.bind(table);
  std::vector<std::string> columns;
  while (row.next()) columns.push_back(row.text());
  return columns;
}

void execute(Database& database, const std::string& sql) {
  database.execute(sql.c_str());
}

/// Makes `table` anew by `sql` and moves its rows: columns only ever grow, so those of the old one are all kept.
void rebuild(Database& database, const std::string& table, const std::string& sql) {
  const std::string old = "old_" + table;
  std::string columns;
  for (const std::string& column : columns_of(database, table)) columns += (columns.empty() ? "" : ", ") + column;
  execute(database, "ALTER TABLE " + table + " RENAME TO " + old);
  execute(database, sql);
  execute(database, "INSERT INTO " + table + " (" + columns + ") SELECT " + columns + " FROM " + old);
  execute(database, "DROP TABLE " + old);
}

void rebuild_what_changed(Database& database) {
  Database wanted = open_memory();
  const std::vector<Item> target = items_of(wanted);
  for (const Item& item : items_of(database))
    if (item.type == "view" || item.type == "index") execute(database, "DROP " + item.type + " " + item.name);
  std::set<std::string> unchanged, there;
  for (const Item& item : items_of(database)) {
    there.insert(item.name);
    unchanged.insert(item.sql);
  }
  for (const Item& item : target) {
    if (item.type == "table" && there.contains(item.name)) {
      if (!unchanged.contains(item.sql)) rebuild(database, item.name, item.sql);
    } else {
      execute(database, item.sql);
    }
  }
}

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("''") : std::string(1, c);
  return result + "'";
}

void back_up(Database& database, const std::string& path, int64_t version) {
  const std::string copy = path + ".v" + std::to_string(version) + ".bak";
  (void)::unlink(copy.c_str());  // of a migration that was broken off
  // Made first, so that its mode does not depend on the umask.
  const int fd = ::open(copy.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd >= 0) ::close(fd);
  execute(database, "VACUUM INTO " + quoted(copy));
}

}  // namespace

bool is_known_older(Database& database, int64_t version) {
  for (const Version& past : kPast)
    if (past.number == version) return schema_fingerprint(database) == past.fingerprint;
  return false;
}

void migrate(Database& database, const std::string& path) {
  const int64_t before = database.integer("PRAGMA user_version");
  if (before == kSchemaVersion) return;
  back_up(database, path, before);
  // Renaming a table must not rewrite the references to it, and to drop it must not delete what refers to it.
  database.execute("PRAGMA foreign_keys=OFF; PRAGMA legacy_alter_table=ON");
  {
    Transaction transaction(database);
    const int64_t version = database.integer("PRAGMA user_version");
    if (version < kSchemaVersion) {  // else another process was faster
      rebuild_what_changed(database);
      for (const Version& past : kPast)
        if (past.number >= version) database.execute(past.mend);
      execute(database, "PRAGMA user_version=" + std::to_string(kSchemaVersion));
      if (schema_fingerprint(database) != kSchemaFingerprint)
        throw SqliteError(1, "the migration from schema " + std::to_string(version) + " gave other tables");
    }
    transaction.commit();
  }
  database.execute("PRAGMA legacy_alter_table=OFF");
}

}  // namespace jitune::store
