// Spaces: enumeration against brute force, counts, rejections, samples, and sizes that nothing may enumerate.
#include <algorithm>
#include <random>
#include <set>

#include "space/support.hpp"

using namespace jitune;
using namespace jitune::space;

namespace {

std::vector<Param> random_params(std::mt19937_64& random) {
  std::vector<Param> params;
  const size_t count = 1 + random() % 5;
  for (size_t i = 0; i < count; ++i) {
    Param param{std::string(1, static_cast<char>('e' - static_cast<char>(i))), {}};
    std::set<int> values;
    while (values.size() < 1 + random() % 5) values.insert(static_cast<int>(random() % 9));
    for (const int value : values) param.values.emplace_back(value);
    std::shuffle(param.values.begin(), param.values.end(), random);
    params.push_back(param);
  }
  return params;
}

std::string random_constraint(std::mt19937_64& random, const std::vector<std::string>& names) {
  const auto name = [&] { return names[random() % names.size()]; };
  const std::string number = std::to_string(random() % 12);
  switch (random() % 7) {
    case 0:
      return name() + " <= " + number;
    case 1:
      return name() + " + " + name() + " != " + number;
    case 2:
      return name() + " % " + name() + " == 0";
    case 3:
      return name() + " * " + name() + " < " + number + " || " + name() + " > 2";
    case 4:
      return name() + " == 0 || 12 / " + name() + " > 1";
    case 5:
      return number + " > 3 || " + name() + " > 1";
    default:
      return name() + " << " + name() + " < 4611686018427387904 * 2 || " + name() + " > 0";
  }
}

/// All points in canonical order, each decided by reject() alone.
std::vector<Config> brute_force(const Instance& instance, std::vector<Param> params) {
  std::sort(params.begin(), params.end(), [](const Param& a, const Param& b) { return a.name < b.name; });
  std::vector<size_t> digits(params.size(), 0);
  std::vector<Config> valid;
  for (;;) {
    Config config;
    for (size_t i = 0; i < params.size(); ++i) config[params[i].name] = params[i].values[digits[i]];
    if (!instance.reject(config)) valid.push_back(config);
    size_t at = params.size();
    while (at > 0 && ++digits[at - 1] == params[at - 1].values.size()) digits[--at] = 0;
    if (at == 0) return valid;
  }
}

Count sum(const SpaceCount& count) {
  Count total = count.valid;
  for (const Rejections& rejections : count.rejections) total += rejections.points;
  return total;
}

}  // namespace

TEST_CASE("random spaces: enumeration is brute force's, in canonical order, and the counts add up") {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const std::vector<Param> params = random_params(random);
    std::vector<std::string> names;
    for (const Param& param : params) names.push_back(param.name);
    std::vector<Derived> derived;
    if (random() % 2 == 0) {
      derived.push_back({"TWICE", "SUM * 2"});  // given before what it needs
      derived.push_back({"SUM", names.front() + " + " + names.back()});
      names.insert(names.end(), {"SUM", "TWICE"});
    }
    if (random() % 3 == 0) derived.push_back({"PART", "24 / " + names[random() % params.size()]});
    std::vector<std::string> require;
    for (uint64_t i = random() % 4; i > 0; --i) require.push_back(random_constraint(random, names));
    const Instance instance = bind_or_fail(space_definition(params, require, derived));

    const std::vector<Config> expected = brute_force(instance, params);
    Count product = 1;
    for (const Param& param : params) product *= param.values.size();
    CHECK(instance.space().product() == product);
    CHECK(instance.space().list(100'000) == expected);
    const SpaceCount count = instance.space().count();
    CHECK(count.complete);
    CHECK(count.product == product);
    CHECK(count.examined == product);
    CHECK(count.valid == expected.size());
    CHECK(sum(count) == product);
    REQUIRE(count.rejections.size() >= require.size());
    for (size_t i = 0; i < require.size(); ++i) CHECK(count.rejections[i].constraint == require[i]);

    // An empty space is only known to be one after all tries: one draw of it is enough.
    const uint64_t draws = expected.empty() ? 1 : 20;
    for (uint64_t draw = 0; draw < draws; ++draw) {
      const auto sample = instance.space().sample(seed, draw);
      CHECK(sample.has_value() == !expected.empty());
      CHECK(sample == instance.space().sample(seed, draw));
      if (sample) CHECK(std::find(expected.begin(), expected.end(), *sample) != expected.end());
    }
  }
}

TEST_CASE("each rejection is charged by name; zeros are listed; errors are named with their cause") {
  const Instance instance =
      bind_or_fail(space_definition({{"A", {0, 1, 2, 3}}, {"B", {1, 2}}},
                                    {"A != 3", "A + B > 0", "A + B < 9223372036854775807 + A"}, {{"PART", "12 / A"}}));
  const SpaceCount count = instance.space().count();
  CHECK(count.valid == 0);
  REQUIRE(count.rejections.size() >= 5);
  CHECK(count.rejections[0].constraint == "A != 3");
  CHECK(count.rejections[0].points == 2);
  CHECK(count.rejections[1].constraint == "A + B > 0");
  CHECK(count.rejections[1].points == 0);
  const auto points = [&](const std::string& name) {
    for (const Rejections& rejections : count.rejections)
      if (rejections.constraint == name) return to_string(rejections.points);
    return std::string("none");
  };
  CHECK(points("division by zero in PART = 12 / A") == "2");
  CHECK(points("overflow in A + B < 9223372036854775807 + A") == "4");
  CHECK(sum(count) == 8);
}

TEST_CASE("a constraint that needs no derived value of its level is tested before it") {
  const Instance instance = bind_or_fail(space_definition({{"V", {0, 1, 2}}}, {"V > 0"}, {{"PART", "8 / V"}}));
  CHECK(*instance.reject({{"V", 0}}) == "V > 0");
  CHECK(instance.space().count().valid == 2);
}

TEST_CASE("order is by name, then by the definition's order of values, the last name fastest") {
  const Instance instance = bind_or_fail(space_definition({{"b", {3, 1}}, {"a", {"row", "col"}}, {"c", {true}}}));
  std::vector<std::string> texts;
  for (const Config& config : instance.space().list(10)) texts.push_back(short_text(config));
  CHECK(texts ==
        std::vector<std::string>{"a=row b=3 c=true", "a=row b=1 c=true", "a=col b=3 c=true", "a=col b=1 c=true"});
  CHECK(instance.space().list(2).size() == 2);
  CHECK(instance.space().list(0).empty());
  int visited = 0;
  instance.space().visit([&](const Config&) { return ++visited < 3; });
  CHECK(visited == 3);
}

TEST_CASE("contains looks at the points, not at the constraints") {
  const Instance instance = bind_or_fail(space_definition({{"A", {1, 2}}, {"F", {true, false}}}, {"A != 2"}));
  CHECK(instance.space().contains({{"A", 1}, {"F", true}}));
  CHECK(instance.space().contains({{"A", 2}, {"F", true}}));
  CHECK_FALSE(instance.space().contains({{"A", 3}, {"F", true}}));
  CHECK_FALSE(instance.space().contains({{"A", 1}}));
  CHECK_FALSE(instance.space().contains({{"A", 1}, {"F", 1}}));
  CHECK_FALSE(instance.space().contains({{"A", 1}, {"F", true}, {"G", 1}}));
}

TEST_CASE("an explicit list of configs is the space, in its own order") {
  KernelDefinition definition = space_definition({}, {"A * B <= 8", "A != 7"});
  definition.configs = {{{"B", 4}, {"A", 2}}, {{"A", 1}, {"B", 1}}, {{"A", 4}, {"B", 4}}};
  definition.defaults = {{.config = {{"A", "1"}, {"B", "1"}}}};
  const Instance instance = bind_or_fail(definition);
  CHECK(instance.space().product() == 3);
  const std::vector<Config> expected{{{"A", 2}, {"B", 4}}, {{"A", 1}, {"B", 1}}};
  CHECK(instance.space().list(10) == expected);
  const SpaceCount count = instance.space().count();
  CHECK(count.valid == 2);
  CHECK(count.complete);
  CHECK(count.rejections[0].points == 1);
  CHECK(sum(count) == 3);
  CHECK(instance.space().contains({{"A", 4}, {"B", 4}}));
  CHECK_FALSE(instance.space().contains({{"A", 2}, {"B", 1}}));
  CHECK(*instance.reject({{"A", 2}, {"B", 1}}) == "the config is not in the list of configs");
  CHECK(*instance.reject({{"A", 4}, {"B", 4}}) == "A * B <= 8");
  CHECK(instance.space().count(1).complete == false);
  for (uint64_t draw = 0; draw < 10; ++draw) CHECK(instance.space().contains(*instance.space().sample(1, draw)));
  CHECK(instance.space_definition() ==
        R"x({"configs":[{"A":2,"B":4},{"A":1,"B":1},{"A":4,"B":4}],"require":["A * B <= 8","A != 7"]})x");
}

TEST_CASE("a kernel without params has one config, the empty one") {
  KernelDefinition definition = space_definition({});
  definition.defaults.clear();
  const Instance instance = bind_or_fail(definition);
  CHECK(instance.space().product() == 1);
  CHECK(instance.space().list(10) == std::vector<Config>{{}});
  CHECK(instance.default_config().ok());
  CHECK(instance.space().sample(1, 1) == Config{});
}

namespace {

std::vector<Param> wide_params(int count, int values) {
  std::vector<Param> params;
  for (int i = 0; i < count; ++i) {
    Param param{"P" + std::to_string(10 + i), {}};
    for (int value = 0; value < values; ++value) param.values.emplace_back(value);
    params.push_back(param);
  }
  return params;
}

}  // namespace

TEST_CASE("a product of 10^12 costs nothing until asked, and its count stops at the limit") {
  const CpuTimer timer;
  const Instance instance = bind_or_fail(space_definition(
      wide_params(12, 10), {"(P10 + P11 + P12 + P13 + P14 + P15 + P16 + P17 + P18 + P19 + P20 + P21) % 7 != 3"}));
  CHECK(to_string(instance.space().product()) == "1000000000000");
  CHECK(instance.space().list(100).size() == 100);
  CHECK(instance.space().sample(3, 4).has_value());
  const SpaceCount count = instance.space().count(200'000);
  CHECK_FALSE(count.complete);
  CHECK(count.examined < count.product);
  CHECK(count.examined > 100'000);
  CHECK(sum(count) == count.examined);
  CHECK(timer.ms() < 2000);
}

TEST_CASE("params that no constraint names are multiplied, not walked") {
  const CpuTimer timer;
  const Instance instance = bind_or_fail(space_definition(wide_params(38, 10), {"P46 != 3", "P47 * P46 < 1000"}));
  CHECK(to_string(instance.space().product()) == "1" + std::string(38, '0'));
  const SpaceCount count = instance.space().count();
  CHECK(count.complete);
  CHECK(to_string(count.valid) == "9" + std::string(37, '0'));
  CHECK(to_string(count.rejections[0].points) == "1" + std::string(37, '0'));
  CHECK(sum(count) == count.product);
  CHECK(timer.ms() < 1000);
}

TEST_CASE("constraints prune prefixes: a product of 10^12 with few valid configs is counted whole") {
  std::vector<std::string> require;
  for (int i = 11; i < 22; ++i) require.push_back("P" + std::to_string(i) + " == P" + std::to_string(i - 1));
  const Instance instance = bind_or_fail(space_definition(wide_params(12, 10), require));
  const CpuTimer timer;
  const SpaceCount count = instance.space().count();
  CHECK(count.complete);
  CHECK(count.valid == 10);
  CHECK(sum(count) == count.product);
  // Rejection finds nothing here (one in 10^11 is valid); the walk down the tree does.
  std::set<std::string> seen;
  for (uint64_t draw = 0; draw < 20; ++draw) {
    const auto sample = instance.space().sample(11, draw);
    REQUIRE(sample.has_value());
    CHECK_FALSE(instance.reject(*sample));
    seen.insert(short_text(*sample));
  }
  CHECK(seen.size() > 3);
  CHECK(timer.ms() < 3000);
}

TEST_CASE("samples of an empty space are nothing") {
  const Instance instance = bind_or_fail(space_definition(wide_params(3, 10), {"P10 > 20"}));
  CHECK_FALSE(instance.space().sample(1, 1).has_value());
  CHECK(instance.space().count().valid == 0);
  CHECK(instance.space().list(5).empty());
}

TEST_CASE("samples are uniform over the valid configs") {
  const Instance instance = bind_or_fail(space_definition(wide_params(2, 6), {"P10 <= P11"}));
  std::map<std::string, int> hits;
  const int draws = 21'000;
  for (int draw = 0; draw < draws; ++draw) ++hits[short_text(*instance.space().sample(5, static_cast<uint64_t>(draw)))];
  CHECK(hits.size() == 21);
  double chi_squared = 0;
  for (const auto& [text, count] : hits) chi_squared += (count - 1000.0) * (count - 1000.0) / 1000.0;
  CHECK(chi_squared < 45.3);  // 20 degrees of freedom, p = 0.001; the draws are fixed
  CHECK(instance.space().sample(5, 1) != instance.space().sample(6, 1));
}

TEST_CASE("a million points with a constraint at the last param take well below a second") {
  const Instance instance =
      bind_or_fail(space_definition(wide_params(6, 10), {"(P10 * P11 + P12 * P13 + P14 * P15) % 50 == 7"}));
  const CpuTimer timer;
  const std::vector<Config> configs = instance.space().list(1'000'000);
  const double enumerated_ms = timer.ms();
  CHECK(instance.space().count().valid == configs.size());
  CHECK(configs.size() > 5'000);
  CHECK_MESSAGE(enumerated_ms < 1500, enumerated_ms << " ms");
  MESSAGE(configs.size() << " of 1,000,000 points enumerated in " << enumerated_ms << " ms");
}
