#include "store/sqlite.hpp"

#include <sqlite3.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

namespace jitune::store {
namespace {

[[noreturn]] void fail(sqlite3* connection, int code) {
  const int extended = connection == nullptr ? code : sqlite3_extended_errcode(connection);
  const char* words = connection == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(connection);
  throw SqliteError(extended == SQLITE_OK ? code : extended, words);
}

}  // namespace

Trouble SqliteError::trouble() const {
  switch (code_ & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:
      return Trouble::busy;
    case SQLITE_FULL:
      return Trouble::full;
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return Trouble::read_only;
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_NOLFS:
      return Trouble::io;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Trouble::corrupt;
    case SQLITE_CONSTRAINT:
    case SQLITE_TOOBIG:
    case SQLITE_MISMATCH:
      return Trouble::refused;
    default:
      return Trouble::other;
  }
}

Statement::~Statement() {
  if (statement_ == nullptr) return;
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

void Statement::check(int code) {
  if (code != SQLITE_OK) fail(sqlite3_db_handle(statement_), code);
}

void Statement::put(int64_t value) {
  check(sqlite3_bind_int64(statement_, ++bound_, value));
}
void Statement::put(double value) {
  check(sqlite3_bind_double(statement_, ++bound_, value));
}
void Statement::put(std::nullptr_t) {
  check(sqlite3_bind_null(statement_, ++bound_));
}
void Statement::put(const std::string& value) {
  check(sqlite3_bind_text64(statement_, ++bound_, value.data(), value.size(), SQLITE_TRANSIENT, SQLITE_UTF8));
}
void Statement::put(Blob value) {
  check(sqlite3_bind_blob64(statement_, ++bound_, value.bytes.data(), value.bytes.size(), SQLITE_TRANSIENT));
}

bool Statement::next() {
  column_ = 0;
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) fail(sqlite3_db_handle(statement_), code);
  return false;
}

void Statement::run() {
  while (next()) {
  }
}

int64_t Statement::integer() {
  return sqlite3_column_int64(statement_, column_++);
}
double Statement::real() {
  return sqlite3_column_double(statement_, column_++);
}

std::optional<int64_t> Statement::optional_integer() {
  if (sqlite3_column_type(statement_, column_) != SQLITE_NULL) return integer();
  ++column_;
  return std::nullopt;
}

std::string Statement::text() {
  const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column_));
  const int size = sqlite3_column_bytes(statement_, column_++);
  return bytes == nullptr ? std::string() : std::string(bytes, static_cast<size_t>(size));
}

std::string Statement::blob() {
  const auto* bytes = static_cast<const char*>(sqlite3_column_blob(statement_, column_));
  const int size = sqlite3_column_bytes(statement_, column_++);
  return bytes == nullptr ? std::string() : std::string(bytes, static_cast<size_t>(size));
}

void Database::Close::operator()(sqlite3* connection) const noexcept {
  sqlite3_busy_handler(connection, nullptr, nullptr);  // its state may be gone
  sqlite3_close_v2(connection);
}
void Database::Finalize::operator()(sqlite3_stmt* statement) const noexcept {
  sqlite3_finalize(statement);
}

Database::Database(const std::string& path, int flags) {
  sqlite3* connection = nullptr;
  const int code =
      sqlite3_open_v2(path.c_str(), &connection, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, nullptr);
  connection_.reset(connection);
  if (code != SQLITE_OK) fail(connection, code);
}

Database::~Database() {
  statements_.clear();
}

Statement Database::prepare(const char* sql) {
  auto& slot = statements_[sql];
  if (!slot) {
    sqlite3_stmt* statement = nullptr;
    const int code = sqlite3_prepare_v3(connection_.get(), sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
    if (code != SQLITE_OK) fail(connection_.get(), code);
    slot.reset(statement);
  }
  return Statement(slot.get());
}

void Database::execute(const char* sql) {
  const int code = sqlite3_exec(connection_.get(), sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) fail(connection_.get(), code);
}

int64_t Database::integer(const char* sql) {
  Statement statement = prepare(sql);
  return statement.next() ? statement.integer() : 0;
}

std::string Database::text(const char* sql) {
  Statement statement = prepare(sql);
  return statement.next() ? statement.text() : std::string();
}

int64_t Database::changes() const {
  return sqlite3_changes64(connection_.get());
}
int64_t Database::last_id() const {
  return sqlite3_last_insert_rowid(connection_.get());
}
namespace {
std::atomic<int64_t> waits{0};
}  // namespace

int64_t busy_waits() {
  return waits;
}
void note_busy_wait() {
  ++waits;
}

int Database::wait_busy(void* patience, int tries) {
  auto& state = *static_cast<Patience*>(patience);
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  const int64_t now_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  if (tries == 0) state.begun_ns = now_ns;
  if ((now_ns - state.begun_ns) / 1'000'000 >= state.ms || state.gives_way()) return 0;
  note_busy_wait();
  // Short at first, as most transactions are; not in step with others that wait.
  const int64_t longest_us = std::min<int64_t>(200LL << std::min(tries, 7), 20'000);
  std::this_thread::sleep_for(std::chrono::microseconds(longest_us / 2 + now_ns / 1000 % (longest_us / 2)));
  return 1;
}

void Database::wait_at_most_ms(int ms, bool hurry) {
  if (!patience_) {
    patience_ = std::make_unique<Patience>();
    sqlite3_busy_handler(connection_.get(), &Database::wait_busy, patience_.get());
  }
  patience_->ms = ms;
  patience_->hurry = hurry;
  patience_->gave_way = false;
}

void Database::give_way_to(const std::atomic<int>* waiting) {
  wait_at_most_ms(patience_ ? static_cast<int>(patience_->ms) : 0);
  patience_->waiting = waiting;
}

void Database::begin_write_at_once() {
  struct Restored {
    int64_t& ms;
    int64_t before;
    ~Restored() { ms = before; }
  } restored{patience_->ms, std::exchange(patience_->ms, 0)};
  prepare("BEGIN IMMEDIATE").run();
}

bool Database::try_begin_write() {
  try {
    begin_write_at_once();
  } catch (const SqliteError& error) {
    if (error.trouble() != Trouble::busy) throw;
    return false;
  }
  return true;
}

void Database::begin_write() {
  if (!queue_ || !patience_ || patience_->ms == 0) return prepare("BEGIN IMMEDIATE").run();
  if (!queue_->has_waiters() && try_begin_write()) return;
  wait_turn(std::chrono::milliseconds(patience_->ms));
}

void Database::wait_turn(std::chrono::milliseconds patience) {
  using namespace std::chrono_literals;
  using std::chrono::microseconds;
  constexpr int kCounted = 16;
  const auto begin = std::chrono::steady_clock::now();
  const WriteQueue::Place place = queue_->join(patience_->hurry);
  auto first_since = begin, next_try = begin + 15ms;
  for (bool first = false;;) {
    const int ahead = place.ahead(kCounted);
    const auto now = std::chrono::steady_clock::now();
    if (ahead == 0 && !std::exchange(first, true)) first_since = now;
    // Whoever is not first looks for the lock too, if seldom: the first one may have been stopped, or be stuck.
    if (ahead == 0 || now >= next_try) {
      if (try_begin_write()) return;
      next_try = now + 15ms + microseconds(now.time_since_epoch().count() / 1000 % 10'000);
    }
    if (now - begin >= patience || patience_->gives_way()) return begin_write_at_once();
    note_busy_wait();
    const auto waited = std::chrono::duration_cast<microseconds>(now - first_since);
    std::this_thread::sleep_for(ahead == 0 ? std::clamp(waited / 16, microseconds(100), microseconds(5000))
                                           : microseconds(500) * ahead);
  }
}

bool Database::has_moved() const {
  int moved = 0;
  return sqlite3_file_control(connection_.get(), "main", SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK && moved != 0;
}

uint32_t Database::seen_version() const {
  unsigned version = 0;
  sqlite3_file_control(connection_.get(), "main", SQLITE_FCNTL_DATA_VERSION, &version);
  return version;
}

bool Database::is_read_only() const {
  return sqlite3_db_readonly(connection_.get(), "main") == 1;
}

void Database::distrust_file() {
  for (const auto& [option, value] : {std::pair{SQLITE_DBCONFIG_DEFENSIVE, 1},
                                      {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
                                      {SQLITE_DBCONFIG_ENABLE_TRIGGER, 0},
                                      {SQLITE_DBCONFIG_ENABLE_VIEW, 0}})
    sqlite3_db_config(connection_.get(), option, value, nullptr);
  sqlite3_limit(connection_.get(), SQLITE_LIMIT_LENGTH, 64 << 20);
}

void Database::abandon() noexcept {
  for (auto& [sql, statement] : statements_) (void)statement.release();
  (void)connection_.release();
}

Transaction::Transaction(Database& database) : database_(database) {
  database_.begin_write();
}

Transaction::~Transaction() {
  if (!open_) return;
  try {
    database_.prepare("ROLLBACK").run();
  } catch (const SqliteError&) {
    // SQLite has rolled back by itself: on a full disk, for one.
  }
}

void Transaction::commit() {
  database_.prepare("COMMIT").run();
  open_ = false;
}

}  // namespace jitune::store
