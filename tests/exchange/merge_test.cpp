#include <algorithm>

#include "base/files.hpp"
#include "exchange/samples.hpp"
#include "support/support.hpp"

using namespace jitune;
using namespace jitune::test;

TEST_CASE("a merge gives the same bytes in whatever order its records come") {
  TempDir dir;
  std::vector<store::WinnerRecord> records{sample(1, R"({"BLOCK":128})", 10), sample(1, R"({"BLOCK":256})", 9),
                                           sample(1, R"({"BLOCK":512})", 9), sample(2, R"({"BLOCK":128})", 5),
                                           sample(2, R"({"BLOCK":256})", 50)};
  records[4].winner.pinned = true;
  add_cubin(records[1], "build", "bytes of one compilation");
  add_cubin(records[2], "other build", "x");
  add_cubin(records[3], "same build", "bytes A");
  auto again = records[3];
  add_cubin(again, "same build", "bytes B");
  records.push_back(again);
  auto elsewhere = sample(3, R"({"BLOCK":128})", 5);  // another key, the same compilation
  add_cubin(elsewhere, "same build", "bytes B");
  records.push_back(elsewhere);

  std::string first;
  std::vector<size_t> order{0, 1, 2, 3, 4, 5, 6};
  int orders = 0;
  do {
    if (++orders % 97 != 1) continue;  // 52 of 5040
    std::vector<store::WinnerRecord> shuffled;
    for (const size_t i : order) shuffled.push_back(records[i]);
    size_t beaten = 0;
    const auto merged = store::reduce(shuffled, &beaten);
    CHECK(merged.size() == 3);
    CHECK(beaten == 4);
    REQUIRE(store::write_bundle(dir / "m.db", merged).ok());
    const std::string bytes = *read_file(dir / "m.db");
    if (first.empty()) first = bytes;
    CHECK(bytes == first);
  } while (std::next_permutation(order.begin(), order.end()));
  CHECK(orders == 5040);

  const auto merged = store::reduce(records);
  CHECK(merged[0].winner.config == R"({"BLOCK":256})");  // as fast as the other, and before it in canonical order
  CHECK(merged[1].winner.config == R"({"BLOCK":256})");  // pinned
  CHECK(merged[2].winner.artifact->cubin_sha256 ==
        std::min(records[3].winner.artifact->cubin_sha256, again.winner.artifact->cubin_sha256));
}

TEST_CASE("what is taken in replaces a slower winner and no better or pinned one") {
  auto opened = store::Store::open({});
  REQUIRE(opened.ok());
  store::Store& store = **opened;
  const auto take = [&](const store::WinnerRecord& record) {
    const auto taken = store.take_in({record});
    REQUIRE_MESSAGE(taken.ok(), taken.error());
    return *taken;
  };
  CHECK(take(sample(1, R"({"BLOCK":128})", 10)).added == 1);
  CHECK(take(sample(1, R"({"BLOCK":256})", 11)).kept_better == 1);
  CHECK(take(sample(1, R"({"BLOCK":256})", 9)).replaced == 1);
  CHECK((*store.find_winner(sample(1, "{}", 1).key.sha256))->config == R"({"BLOCK":256})");
  CHECK(*store.set_pinned(sample(1, "{}", 1).key.sha256, true));
  CHECK(take(sample(1, R"({"BLOCK":512})", 1)).kept_pinned == 1);
  auto pinned = sample(1, R"({"BLOCK":512})", 1);
  pinned.winner.pinned = true;
  CHECK(take(pinned).replaced == 1);
  CHECK((*store.find_winner(pinned.key.sha256))->pinned);
  CHECK(*store.set_pinned(pinned.key.sha256, false));
  CHECK(!*store.set_pinned(std::string(64, '0'), true));
  const auto records = store.records(true);
  REQUIRE(records.ok());
  REQUIRE(records->size() == 1);
  CHECK((*records)[0].device == "NVIDIA H200");
  CHECK(!(*records)[0].winner.pinned);
}
