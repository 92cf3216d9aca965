// Valid sets: counts, ranks, draws and neighbours against enumeration, and sizes that nothing may enumerate.
#include <algorithm>
#include <map>
#include <set>

#include "space/support.hpp"
#include "space/valid_set.hpp"

using namespace jitune;
using namespace jitune::space;

namespace {

std::vector<PlainParam> numbered_params(int count, int values) {
  std::vector<PlainParam> params;
  for (int i = 0; i < count; ++i) {
    PlainParam param{"P" + std::to_string(10 + i), {}};
    for (int value = 0; value < values; ++value) param.values.emplace_back(value);
    params.push_back(param);
  }
  return params;
}

std::string random_constraint(Random& random, size_t params) {
  const auto name = [&] { return "P" + std::to_string(10 + random.below(params)); };
  const std::string number = std::to_string(random.below(8));
  switch (random.below(5)) {
    case 0:
      return name() + " + " + name() + " != " + number;
    case 1:
      return name() + " * " + name() + " < " + number + " || " + name() + " > 2";
    case 2:
      return name() + " == 0 || 12 / " + name() + " > 1";
    case 3:
      return name() + " % (" + name() + " + 1) == 0";
    default:
      return name() + " + " + name() + " - " + name() + " <= " + number;
  }
}

size_t differing(const Point& a, const Point& b) {
  size_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) count += a[i] != b[i];
  return count;
}

/// Everything that a valid set says, against the list of valid configs.
void check_against_list(const Space& space, uint64_t seed) {
  const ValidSet valid(space);
  const std::vector<Config> configs = space.list(1'000'000);
  REQUIRE(valid.counted());
  REQUIRE(valid.size() == configs.size());
  std::set<Point> points;
  for (const Config& config : configs) points.insert(*valid.point(config));
  REQUIRE(points.size() == configs.size());
  Count rank = 0;
  valid.diagram()->visit([&](const Point& point) {
    CHECK(valid.rank(point) == rank);
    CHECK(valid.at(rank) == point);
    CHECK(points.contains(point));
    ++rank;
    return true;
  });
  CHECK(rank == configs.size());
  Random random(seed);
  CHECK(valid.sample(random).has_value() == !configs.empty());
  for (int draw = 0; draw < 20; ++draw) {
    Point any;
    for (size_t i = 0; i < valid.params(); ++i)
      any.push_back(static_cast<uint16_t>(random.below(static_cast<size_t>(valid.width(i)))));
    CHECK(valid.contains(any) == points.contains(any));
    const auto repaired = valid.repair(any, random);
    CHECK(repaired.has_value() == !points.empty());
    if (!repaired) break;
    CHECK(points.contains(*repaired));
    if (points.contains(any)) CHECK(*repaired == any);
    std::vector<Point> near;
    valid.hamming(*repaired, near);
    std::set<Point> expected;
    for (const Point& point : points)
      if (differing(point, *repaired) == 1) expected.insert(point);
    CHECK(std::set<Point>(near.begin(), near.end()) == expected);
    CHECK(near.size() == expected.size());
    if (const auto box = valid.box(*repaired, random)) {
      CHECK(points.contains(*box));
      CHECK(*box != *repaired);
      for (size_t i = 0; i < box->size(); ++i) CHECK(std::abs((*box)[i] - (*repaired)[i]) <= 1);
    }
  }
}

}  // namespace

TEST_CASE("random spaces: counts, ranks, membership, neighbours and repair are enumeration's") {
  for (uint64_t seed = 0; seed < 120; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const size_t count = 1 + random.below(5);
    std::vector<PlainParam> params = numbered_params(static_cast<int>(count), 1 + static_cast<int>(random.below(5)));
    std::vector<std::string> require;
    for (size_t i = random.below(4); i > 0; --i) require.push_back(random_constraint(random, count));
    check_against_list(plain_space(params, require), seed);
  }
}

TEST_CASE("derived values and the launch's limits count too") {
  const Instance instance =
      bind_or_fail(space_definition({{"A", {0, 1, 2, 3}}, {"B", {1, 2, 4}}, {"C", {1, 2, 3}}}, {"SUM % 3 != 1"},
                                    {{"PART", "12 / A"}, {"SUM", "PART + B * C"}}));
  check_against_list(instance.space(), 1);
}

TEST_CASE("a list of configs is a valid set too, each config once") {
  const Space space = plain_space({{"b", {1, 2, 3}}, {"a", {"x", "y"}}}, {"b < 3"}, {{0, 1}, {2, 0}, {1, 0}, {0, 1}});
  const ValidSet valid(space);
  REQUIRE(valid.size() == 2);
  CHECK(valid.config(valid.at(0)) == Config{{"a", "x"}, {"b", 2}});
  CHECK(valid.config(valid.at(1)) == Config{{"a", "y"}, {"b", 1}});
  CHECK_FALSE(valid.point({{"a", "x"}, {"b", 3}}).has_value());
}

TEST_CASE("draws are uniform over the valid points") {
  const ValidSet valid(plain_space(numbered_params(2, 6), {"P10 <= P11"}));
  std::map<Point, int> hits;
  Random random(5);
  for (int draw = 0; draw < 21'000; ++draw) ++hits[*valid.sample(random)];
  CHECK(hits.size() == 21);
  double chi_squared = 0;
  for (const auto& [point, count] : hits) chi_squared += (count - 1000.0) * (count - 1000.0) / 1000.0;
  CHECK(chi_squared < 45.3);  // 20 degrees of freedom, p = 0.001; the draws are fixed
}

TEST_CASE("10^12 points: exact where constraints leave subtrees equal, within 10 MB; a space itself costs nothing") {
  const CpuTimer made;
  const Space space =
      plain_space(numbered_params(12, 10), {"P10 * P11 < 40", "P11 + P12 != 9", "P13 <= P14 && P14 <= P15"});
  CHECK(space.product() == Count{1'000'000'000'000});
  CHECK(made.ms() < 10);
  const CpuTimer counted;
  const ValidSet valid(space);
  CHECK(counted.ms() < 200);
  REQUIRE(valid.counted());
  CHECK(valid.memory_bytes() < 10'000'000);
  // The three groups are independent: their counts multiply.
  Count first = 0, second = 0;
  for (int a = 0; a < 10; ++a)
    for (int b = 0; b < 10; ++b)
      for (int c = 0; c < 10; ++c) {
        first += a * b < 40 && b + c != 9;
        second += a <= b && b <= c;
      }
  CHECK(to_string(valid.size()) == to_string(first * second * 1'000'000));
  Random random(1);
  for (int draw = 0; draw < 1000; ++draw) {
    const Point point = *valid.sample(random);
    CHECK(valid.contains(point));
    CHECK(valid.at(valid.rank(point)) == point);
    CHECK_FALSE(point[0] * point[1] >= 40);
  }
}

TEST_CASE("10^12 points that no diagram can hold: drawn and tested all the same") {
  const Space space =
      plain_space(numbered_params(12, 10),
                  {"(P10 * 3 + P11 * 5 + P12 * 7 + P13 * P14 + P15 * P16 + P17 + P18 * P19 + P20 * P21) % 7 != 3"});
  const ValidSet valid(space, {200'000, 10'000'000});
  CHECK_FALSE(valid.counted());
  CHECK(valid.memory_bytes() < 10'000'000);
  Random random(1);
  std::set<Point> seen;
  for (int draw = 0; draw < 100; ++draw) {
    const Point point = *valid.sample(random);
    CHECK(valid.contains(point));
    seen.insert(point);
    std::vector<Point> near;
    valid.hamming(point, near);
    CHECK(near.size() > 50);
  }
  CHECK(seen.size() == 100);
}

TEST_CASE("a permutation visits every rank once, another order for every seed, and is small at any size") {
  for (const unsigned size : {1U, 2U, 3U, 7U, 64U, 1000U}) {
    const Permutation permutation(size, 3);
    std::set<uint64_t> seen;
    for (unsigned i = 0; i < size; ++i) seen.insert(static_cast<uint64_t>(permutation(i)));
    CHECK(seen.size() == size);
    CHECK(*seen.rbegin() == size - 1);
  }
  CHECK(Permutation(1000, 1)(0) != Permutation(1000, 2)(0));
  const Permutation huge(Count{1'000'000'000'000} * 1'000'000'000'000, 1);
  CHECK(huge(5) < huge.size());
  CHECK(huge(5) != huge(6));
}
