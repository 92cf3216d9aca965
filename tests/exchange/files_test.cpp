#include "exchange/files.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <random>

#include "base/files.hpp"
#include "exchange/csv.hpp"
#include "exchange/samples.hpp"
#include "space/config.hpp"
#include "support/support.hpp"

using namespace jitune;
using namespace jitune::test;

namespace {

/// Two kernels with different names, words that look like numbers, a comma, a quote and a line feed.
std::vector<store::WinnerRecord> samples() {
  std::vector<store::WinnerRecord> records{sample(1, R"({"BLOCK":128,"MODE":"true","WORD":"a,\"b\"\nc"})", 12.3456789),
                                           sample(2, R"({"BLOCK":256,"MODE":"128","WORD":""})", 0.1),
                                           sample(3, R"({"BLOCK":512,"FAST":true})", 3)};
  records[1].winner.pinned = true;
  records[1].origin = "aiter, table.csv:3";
  records[2].winner.default_us = 0;
  for (store::WinnerRecord& record : records) record.key.variant = "hopper";
  records[0].key.kernel = "gemm";
  for (store::WinnerRecord& record : records) {
    key::seal(record.key);
    record.winner.key_sha256 = record.key.sha256;
  }
  return store::reduce(records);
}

std::vector<store::WinnerRecord> records_of(const std::string& path) {
  auto winners = exchange::read_winners(path);
  REQUIRE_MESSAGE(winners.ok(), winners.error());
  INFO(exchange::refused_text(winners->refused));
  CHECK(winners->refused.empty());
  std::vector<store::WinnerRecord> records;
  for (exchange::Item& item : winners->items) records.push_back(std::move(item.record));
  return records;
}

exchange::Winners read_text(const std::string& json) {
  exchange::Winners winners;
  const auto read = exchange::read_json(json, "w.json", winners);
  REQUIRE_MESSAGE(read.ok(), read.error());
  return winners;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("JSON, a folder of it, a table and a database all give back what was written") {
  TempDir dir;
  const auto records = samples();
  write_file(dir / "w.json", exchange::to_json(records));
  write_file(dir / "w.csv", exchange::to_csv(records));
  const auto tree = exchange::to_json_tree(records);
  CHECK(tree.size() == 3);
  for (const auto& [path, text] : tree) write_file(dir / ("tree/" + path), text);
  CHECK(tree.begin()->first ==
        "nvrtc-13.0.88/gemm.hopper/T=half,flag=true,layout=row,rows=1,device_name=NVIDIA_H200.json");
  REQUIRE(store::write_bundle(dir / "w.db", records).ok());
  CHECK(told(records_of(dir / "w.json")) == told(records));
  CHECK(told(records_of(dir / "w.csv")) == told(records));
  CHECK(told(records_of(dir / "w.db")) == told(records));
  CHECK(told(store::reduce(records_of(dir / "tree"))) == told(records));
  // Written again it is the same text, so that a person who commits it sees only what changed.
  CHECK(exchange::to_json(records_of(dir / "w.csv")) == exchange::to_json(records));
  CHECK(exchange::to_csv(records_of(dir / "w.json")) == exchange::to_csv(records));
}

TEST_CASE("each format answers look-ups as a database does") {
  TempDir dir;
  const auto records = samples();
  write_file(dir / "w.json", exchange::to_json(records));
  write_file(dir / "w.csv", exchange::to_csv(records));
  REQUIRE(store::write_bundle(dir / "w.db", records).ok());
  for (const std::string name : {"w.json", "w.csv", "w.db"}) {
    CAPTURE(name);
    auto source = exchange::open_source(dir / name, nullptr);
    REQUIRE_MESSAGE(source.ok(), source.error());
    for (const store::WinnerRecord& record : records) {
      const auto found = (*source)->find_winner(record.key.sha256);
      REQUIRE((found.ok() && found->has_value()));
      CHECK((*found)->config == record.winner.config);
      CHECK((*found)->median_us == record.winner.median_us);
      CHECK((*found)->pinned == record.winner.pinned);
      key::TuningKey other = record.key;
      other.nvrtc = "12.9.86";
      key::seal(other);
      const auto compatible = (*source)->find_compatible(other);
      REQUIRE((compatible.ok() && compatible->has_value()));
      CHECK((*compatible)->nvrtc == "13.0.88");
    }
  }
}

TEST_CASE("a bundle is one file with a rollback journal, and reading leaves nothing beside it") {
  TempDir dir;
  auto records = samples();
  add_cubin(records[0], "build",
            "\x7f"
            "ELF bytes");
  CHECK(!store::write_bundle(dir / "nowhere/w.db", records).ok());
  REQUIRE(store::write_bundle(dir / "w.db", records).ok());
  const std::string before = *read_file(dir / "w.db");
  CHECK(before[18] == 1);  // a rollback journal, by the file's header
  struct stat facts {};
  REQUIRE(::stat((dir / "w.db").c_str(), &facts) == 0);
  CHECK((facts.st_mode & 0777) == 0644);
  {
    auto source = exchange::open_source(dir / "w.db", nullptr);
    REQUIRE(source.ok());
    const auto found = (*source)->find_winner(records[0].key.sha256);
    REQUIRE((found.ok() && found->has_value() && (*found)->artifact));
    CHECK((*found)->artifact->cubin ==
          "\x7f"
          "ELF bytes");
    for (const std::string end : {"-wal", "-shm", "-journal"}) CHECK(!read_file(dir / ("w.db" + end)).ok());
  }
  CHECK(*read_file(dir / "w.db") == before);
}

TEST_CASE("what does not hold is refused by its reason and place") {
  const std::string good = exchange::to_json({sample(1, R"({"BLOCK":128})", 10)});
  CHECK(read_text(good).items.size() == 1);
  const auto refuses = [&](const std::string& from, const std::string& to, const std::string& reason) {
    CAPTURE(to);
    const exchange::Winners winners = read_text(replaced(good, from, to));
    CHECK(winners.items.empty());
    REQUIRE(winners.refused.size() == 1);
    CHECK(winners.refused.begin()->first.find(reason) != std::string::npos);
    CHECK(winners.refused.begin()->second == std::vector<std::string>{"w.json (winner 1)"});
  };
  refuses("\"sm_count\": 132", "\"sm_count\": 131", "do not give its hash");
  refuses("\"sm_count\": 132", "\"sm_count\": \"many\"", "no number");
  refuses("\"BLOCK\": 128", "\"BLOCK\": [128]", "config");
  refuses("\"median_us\": 10.0", "\"median_us\": -1", "a time is not a time");
  refuses("\"median_us\": 10.0", "\"median_us\": 1e13", "a time is not a time");
  refuses("\"schema\": 1", "\"schema\": 99", "another schema");
  refuses("\"sha256\": ", "\"sha\": ", "missing");
  refuses("\"rows\": 1", "\"rows\": 2", "do not give its hash");
  exchange::Winners none;
  CHECK(!exchange::read_json("{\"format\": \"other\"}", "w.json", none).ok());
  CHECK(!exchange::read_json("{", "w.json", none).ok());
  const std::string deep = std::string(5'000'000, '['), shut = std::string(5'000'000, ']');
  CHECK(!exchange::read_json(R"({"format": "jitune-winners-1", "winners": )" + deep + shut + "}", "w.json", none).ok());
  CHECK(!exchange::read_json(replaced(good, "\"rows\": 1", "\"rows\": " + deep + shut), "w.json", none).ok());
  CHECK(!exchange::read_csv("M,N,K\n1,2,3\n", "w.csv", none).ok());
  exchange::Winners short_row;
  const std::string table = exchange::to_csv({sample(1, R"({"BLOCK":128})", 10)});
  REQUIRE(exchange::read_csv(table.substr(0, table.rfind(',')) + "\n", "w.csv", short_row).ok());
  CHECK(short_row.items.empty());
  CHECK(short_row.refused.begin()->second == std::vector<std::string>{"w.csv:2"});
}

TEST_CASE("whatever bytes a file holds, what is taken from it is a winner whose key is its fields'") {
  const std::string json = exchange::to_json(samples()), csv = exchange::to_csv(samples());
  std::mt19937 random(11);
  const std::string bytes = "\"{}[],:\\0-9eE.\n\xff ntx";
  size_t taken = 0;
  for (int i = 0; i < 1500; ++i) {
    CAPTURE(i);
    std::string text = i % 2 == 0 ? json : csv;
    for (size_t change = random() % 4 + 1; change > 0; --change) {
      const size_t at = random() % text.size();
      const size_t length = std::min<size_t>(random() % (random() % 8 == 0 ? 200 : 3) + 1, text.size() - at);
      if (random() % 3 == 0)
        text.erase(at, length);
      else if (random() % 2 == 0)
        text.insert(random() % text.size(), text.substr(at, length));
      else
        text[at] = bytes[random() % bytes.size()];
    }
    exchange::Winners winners;
    if (!(i % 2 == 0 ? exchange::read_json(text, "w", winners) : exchange::read_csv(text, "w", winners)).ok()) continue;
    taken += winners.items.size();
    for (const exchange::Item& item : winners.items) {
      key::TuningKey again = item.record.key;
      key::seal(again);
      CHECK(again.sha256 == item.record.winner.key_sha256);
      CHECK(space::parse_values(item.record.winner.config).ok());
      CHECK(item.record.winner.median_us >= 0);
    }
  }
  CHECK(taken > 500);
}

TEST_CASE("tables are read as people and spreadsheets write them") {
  const auto rows = exchange::parse_csv("# note\n a , b,\"c,\"\"d\"\"\ne\"\r\n\n1,,3\n4");
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].cells == std::vector<std::string>{"a", "b", "c,\"d\"\ne"});
  CHECK(rows[0].line == 2);
  CHECK(rows[1].cells == std::vector<std::string>{"1", "", "3"});
  CHECK(rows[1].line == 5);
  CHECK(rows[2].cells == std::vector<std::string>{"4"});
}
