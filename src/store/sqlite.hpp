#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "store/queue.hpp"

struct sqlite3;
struct sqlite3_stmt;

namespace jitune::store {

/// What went wrong, by what can be done about it.
enum class Trouble : uint8_t {
  busy,       ///< another connection holds the lock for longer than we wait
  full,       ///< no space left
  read_only,  ///< may not be written
  io,         ///< the file system failed
  corrupt,    ///< no database, or a damaged one
  refused,    ///< a CHECK or key of the schema: our caller's values
  other,
};

/// Carries SQLite's failures from a statement to the edge of the room, where they become Failures; it never leaves it.
class SqliteError : public std::exception {
 public:
  SqliteError(int code, std::string message) : code_(code), message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }
  int code() const { return code_; }
  Trouble trouble() const;

 private:
  int code_;
  std::string message_;
};

/// Bytes for a BLOB column.
struct Blob {
  std::string_view bytes;
};

/// A prepared statement in use: values are bound in order, columns are read in order. Goes back to its Database's
/// cache, reset, when it leaves scope. Everything throws SqliteError.
class Statement {
 public:
  explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}
  Statement(Statement&& other) noexcept : statement_(std::exchange(other.statement_, nullptr)), bound_(other.bound_) {}
  Statement& operator=(Statement&&) = delete;
  ~Statement();

  template <class... Values>
  Statement& bind(const Values&... values) {
    (put(values), ...);
    return *this;
  }

  /// Steps to the next row; false when there is none.
  bool next();
  /// Runs a statement that gives no row.
  void run();

  // The next column of the row. A NULL reads as 0 or "".
  int64_t integer();
  int small() { return static_cast<int>(integer()); }
  double real();
  std::string text();
  std::string blob();
  std::optional<int64_t> optional_integer();

 private:
  void put(int64_t value);
  void put(int value) { put(int64_t{value}); }
  void put(bool value) { put(int64_t{value}); }
  void put(double value);
  void put(const std::string& value);
  void put(const char* value) { put(std::string(value)); }
  void put(Blob value);
  void put(std::nullptr_t);
  template <class T>
  void put(const std::optional<T>& value) {
    if (value)
      put(*value);
    else
      put(nullptr);
  }
  void check(int code);

  sqlite3_stmt* statement_;
  int bound_ = 0;
  int column_ = 0;
};

/// One connection with its prepared statements. Not safe for several threads at once. Throws SqliteError.
class Database {
 public:
  /// Opens `path` (a file, or ":memory:") with SQLite's open flags and no thread locks of its own.
  Database(const std::string& path, int flags);
  Database(Database&&) noexcept = default;
  Database& operator=(Database&&) noexcept = default;
  ~Database();

  /// `sql` is a literal; it is prepared once.
  Statement prepare(const char* sql);
  /// Runs statements that are used once.
  void execute(const char* sql);
  /// The first column of the first row of a statement that is used once; 0 when there is none.
  int64_t integer(const char* sql);
  std::string text(const char* sql);

  int64_t changes() const;
  int64_t last_id() const;
  /// For a file that others keep locked. In a hurry: before other writers that wait.
  void wait_at_most_ms(int ms, bool hurry = false);
  /// Who waits for a locked file and is in no hurry gives up as busy while `waiting` is not 0: there are others in this
  /// process who want the connection and need not wait for the file.
  void give_way_to(const std::atomic<int>* waiting);
  /// Whether that has happened since wait_at_most_ms().
  bool gave_way() const { return patience_ && patience_->gave_way; }
  /// Lets writers take turns; `lock_path`: of a file beside the database.
  void queue_writers(const std::string& lock_path) { queue_ = std::make_unique<WriteQueue>(lock_path); }
  /// BEGIN IMMEDIATE, when it is this connection's turn.
  void begin_write();
  /// Whether the file was deleted, renamed or replaced since it was opened.
  bool has_moved() const;
  /// A number for the state of the file that the last statement saw: another one after any change.
  uint32_t seen_version() const;
  /// Whether the file may not be written: SQLite opens it all the same.
  bool is_read_only() const;
  /// Hardens the connection against what a file may hold: no triggers, no views, no functions in the schema.
  void distrust_file();
  /// The secret with which artifacts that are put here are signed; "" for none.
  void sign_with(std::string key) { signing_key_ = std::move(key); }
  const std::string& signing_key() const { return signing_key_; }
  /// Forgets the connection without closing it: in a process that was forked off.
  void abandon() noexcept;

 private:
  struct Close {
    void operator()(sqlite3* connection) const noexcept;
  };
  struct Patience {
    int64_t ms = 0;
    int64_t begun_ns = 0;
    bool hurry = false;
    const std::atomic<int>* waiting = nullptr;
    bool gave_way = false;

    bool gives_way() {
      const bool now = !hurry && waiting != nullptr && *waiting > 0;
      gave_way |= now;
      return now;
    }
  };
  static int wait_busy(void* patience, int tries);
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const noexcept;
  };
  void begin_write_at_once();  ///< throws where it can't be had now
  bool try_begin_write();
  void wait_turn(std::chrono::milliseconds patience);

  std::unique_ptr<Patience> patience_;
  std::unique_ptr<WriteQueue> queue_;
  std::unique_ptr<sqlite3, Close> connection_;
  std::map<const char*, std::unique_ptr<sqlite3_stmt, Finalize>> statements_;
  std::string signing_key_;
};

/// How often this process has found a file locked by others and waited or tried again: for tests and for doctor.
int64_t busy_waits();
/// Counts one that is waited out elsewhere.
void note_busy_wait();

/// BEGIN IMMEDIATE until commit(); rolled back when it leaves scope without.
class Transaction {
 public:
  explicit Transaction(Database& database);
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  ~Transaction();
  void commit();

 private:
  Database& database_;
  bool open_ = true;
};

}  // namespace jitune::store
