#include <doctest/doctest.h>
#include <sqlite3.h>

#include "base/files.hpp"
#include "base/json.hpp"
#include "samples.hpp"
#include "store/open.hpp"
#include "store/schema.hpp"
#include "support/support.hpp"

using namespace jitune;
using namespace std::chrono_literals;

namespace {

/// What a person sees: sqlite3's own view of `sql`, one `name=value` list a row.
std::vector<std::string> rows_of(const std::string& path, const std::string& sql) {
  sqlite3* connection = nullptr;
  REQUIRE(sqlite3_open_v2(path.c_str(), &connection, SQLITE_OPEN_READONLY, nullptr) == SQLITE_OK);
  std::vector<std::string> rows;
  char* error = nullptr;
  sqlite3_exec(
      connection, sql.c_str(),
      [](void* out, int n, char** values, char** names) {
        std::string row;
        for (int i = 0; i < n; ++i)
          row += std::string(i == 0 ? "" : "|") + names[i] + "=" + (values[i] == nullptr ? "NULL" : values[i]);
        static_cast<std::vector<std::string>*>(out)->push_back(row);
        return 0;
      },
      &rows, &error);
  REQUIRE_MESSAGE(error == nullptr, (error == nullptr ? "" : error));
  sqlite3_close(connection);
  return rows;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("the views read well") {
  test::TempDir dir;
  const std::string path = dir / "j.db";
  auto store = test::open_store(path);
  const auto key = test::sample_key();
  auto claim = store->claim(key, 8s, false);
  auto study = store->begin_study(key, test::sample_study());
  REQUIRE_OK(study);
  auto crashed = test::sample_artifact(R"({"BLOCK":1024})", "");
  crashed.status = "crash";
  crashed.cubin_sha256 = "";
  crashed.log = "killed by signal 11";
  REQUIRE_OK(store->put_artifact(crashed, test::sample_source(), "source"));
  store::TrialRow failed;
  failed.config = crashed.config;
  failed.build_sha256 = crashed.build_sha256;
  failed.status = "compile_crash";
  REQUIRE_OK(store->add_trial(*study, claim->lease, failed));
  failed.config = R"({"BLOCK":512})";
  failed.build_sha256 = "";
  failed.status = "skipped";
  failed.error = "needs 256 KiB of shared memory";
  REQUIRE_OK(store->add_trial(*study, claim->lease, failed));
  REQUIRE_OK(store->put_artifact(test::sample_artifact(R"({"BLOCK":128})"), test::sample_source(), "source"));
  REQUIRE_OK(store->add_trial(*study, claim->lease, test::sample_trial(R"({"BLOCK":64})", 20)));
  auto early = test::sample_trial(R"({"BLOCK":32})", 31);
  early.status = "early_stopped";
  REQUIRE_OK(store->add_trial(*study, claim->lease, early));
  REQUIRE_OK(store->add_trial(*study, claim->lease, test::sample_trial(R"({"BLOCK":128})", 12.5)));
  auto history = rows_of(path, "select * from history");
  REQUIRE(history.size() == 1);
  CHECK(has(history[0], "outcome=running or died"));
  REQUIRE_OK(
      store->end_study(*study, claim->lease, {"won", "all good"}, test::sample_winner(R"({"BLOCK":128})", 12.5)));
  auto unfinished = test::sample_key(R"({"M":1})");
  REQUIRE_OK(store->begin_study(unfinished, test::sample_study()));

  const auto best = rows_of(path, "select * from best");
  REQUIRE(best.size() == 1);
  CHECK_MESSAGE(
      has(best[0],
          R"(kernel=rmsnorm|problem={"M":4096}|config={"BLOCK":128}|median_us=12.5|default_us=20.0|speedup=1.60x|regs=40|static_smem_kib=1.0|arch=sm_90|device=NVIDIA H200|nvrtc=13.0.88|decided_utc=20)"),
      best[0]);
  CHECK(has(best[0], "|pinned=|key=" + key.sha256.substr(0, 12)));

  const auto trials = rows_of(path, "select * from trial_list");
  REQUIRE(trials.size() == 5);
  CHECK(has(trials[0], R"(config={"BLOCK":128}|status=ok|samples=5|median_us=12.5)"));
  CHECK(has(trials[0],
            "speedup=1.60x|regs=40|spill_bytes=16|shared_kib=48.0|occupancy_pct=75.0|clock_mhz=1755|stop=settled|"
            "compile_ms=212.5|wall_ms=240.0"));
  CHECK(has(trials[1], R"(config={"BLOCK":64}|status=ok)"));
  CHECK(has(trials[2], "status=early_stopped"));

  const auto failures = rows_of(path, "select * from failures");
  REQUIRE(failures.size() == 1);
  CHECK(has(failures[0], R"(kernel=rmsnorm|config={"BLOCK":1024}|status=compile_crash|times=1|last_utc=20)"));
  CHECK(has(failures[0], "why=killed by signal 11"));

  history = rows_of(path, "select * from history");
  REQUIRE(history.size() == 2);
  CHECK(has(history[0], "outcome=running or died"));
  CHECK(has(history[1], "outcome=won|strategy=exhaustive|trials=5|ok=2|early=1|failed=1|best_us=12.5|default_us=20.0"));
  CHECK(has(history[1], "device=NVIDIA H200"));
  CHECK(has(history[1], "note=all good"));

  const auto used = rows_of(path, "select * from space_used");
  REQUIRE(used.size() == 6);
  CHECK(used[0] == "what=cubins|entries=1|mib=0.0");
  CHECK(used[4] == "what=trials|entries=5|mib=NULL");

  // Every column of JSON is canonical, so that equal things are equal text.
  for (const char* sql : {"select problem from keys", "select params from configs", "select headers from sources"})
    for (const std::string& row : rows_of(path, sql)) {
      const std::string text = row.substr(row.find('=') + 1);
      CHECK(canonical(Json::parse(text)) == text);
    }
}

TEST_CASE("a person pins a winner with one UPDATE; a study under way respects it") {
  test::TempDir dir;
  const std::string path = dir / "j.db";
  auto store = test::open_store(path);
  const auto key = test::sample_key();
  test::publish(*store, key, R"({"BLOCK":128})");
  auto claim = store->claim(key, 8s, true);
  auto study = store->begin_study(key, test::sample_study());
  REQUIRE_OK(study);
  store::Database(path, SQLITE_OPEN_READWRITE).execute("UPDATE winners SET pinned = 1");
  REQUIRE_OK(store->end_study(*study, claim->lease, {"won", ""}, test::sample_winner(R"({"BLOCK":256})", 1)));
  auto found = store->find_winner(key.sha256);
  REQUIRE_OK(found);
  CHECK((*found)->config == R"({"BLOCK":128})");
  CHECK((*found)->pinned);
  CHECK(store->claim(key, 8s, true)->state == store::Claim::State::answered);
}

TEST_CASE("list, find_keys and health") {
  test::TempDir dir;
  auto store = test::open_store(dir / "j.db");
  const auto key = test::sample_key();
  test::publish(*store, key);
  auto other = test::sample_key(R"({"M":1})");
  other.kernel = "softmax";
  key::seal(other);
  REQUIRE_OK(store->begin_study(other, test::sample_study()));
  auto all = store->list();
  REQUIRE_OK(all);
  REQUIRE(all->size() == 2);
  const store::KeyRow& row = (*all)[0];
  CHECK(row.key.sha256 == key.sha256);
  CHECK(key::differences(row.key, key).empty());
  CHECK(row.key.hashed_text == key.hashed_text);
  CHECK(row.trials == 2);
  CHECK(row.ok_trials == 2);
  CHECK(row.last_outcome == "won");
  CHECK(row.device_name == "NVIDIA H200");
  REQUIRE(row.winner.has_value());
  CHECK(row.winner->config == R"({"BLOCK":128})");
  REQUIRE(row.winner->artifact.has_value());
  CHECK(row.winner->artifact->regs == 40);
  CHECK(row.winner->artifact->cubin.empty());
  CHECK_FALSE((*all)[1].winner.has_value());
  CHECK((*all)[1].last_outcome.empty());
  CHECK(store->list("softmax")->size() == 1);
  CHECK(store->list("nothing")->empty());
  CHECK(store->find_keys("")->size() == 2);
  auto one = store->find_keys(key.sha256.substr(0, 10));
  REQUIRE_OK(one);
  REQUIRE(one->size() == 1);
  CHECK((*one)[0].key.sha256 == key.sha256);
  CHECK(store->find_keys("%")->empty());
  auto health = store->health();
  REQUIRE_OK(health);
  CHECK(health->path == dir / "j.db");
  CHECK(health->state == "ok");
  CHECK(health->keys == 2);
  CHECK(health->winners == 1);
  CHECK(health->trials == 2);
  CHECK(health->artifacts == 1);
  CHECK(health->cubin_bytes == 10);
  CHECK(health->file_bytes > 4096);
  CHECK(health->quick_check == "ok");
  CHECK(health->schema == store::kSchemaVersion);
}

TEST_CASE("the README says what each column of each table is") {
  const auto readme = read_file(JITUNE_SOURCE_DIR "/README.md");
  REQUIRE_OK(readme);
  const size_t begin = readme->find("\nColumn by column"), end = readme->find("\nAt a study's end", begin);
  REQUIRE(end != std::string::npos);
  const std::string text = readme->substr(begin, end - begin);
  store::Database database = store::open_memory();
  store::Statement table = database.prepare(
      "SELECT name, (SELECT group_concat(name, ' ') FROM pragma_table_info(s.name)) || ' ' FROM sqlite_schema s WHERE "
      "type = 'table' AND name NOT LIKE 'sqlite~_%' ESCAPE '~'");
  while (table.next()) {
    const std::string name = table.text(), columns = table.text();
    const size_t at = text.find("**`" + name + "`**");
    REQUIRE_MESSAGE(at != std::string::npos, name);
    const std::string own = text.substr(at, text.find("**`", at + name.size() + 4) - at);
    for (size_t from = 0; from < columns.size(); from = columns.find(' ', from) + 1) {
      const std::string column = columns.substr(from, columns.find(' ', from) - from);
      CHECK_MESSAGE(has(own, "`" + column + "`"), name, ".", column);
    }
  }
}
