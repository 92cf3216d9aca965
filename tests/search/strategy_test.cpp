#include "search/strategy.hpp"

#include <set>

#include "space/instance.hpp"
#include "support/support.hpp"

using namespace jitune;

namespace {

space::Instance instance(std::vector<Param> params, std::vector<std::string> require) {
  KernelDefinition definition{.name = "k", .source_text = "extern \"C\" __global__ void k() {}", .entry = "k"};
  DefaultRule rule;
  for (const auto& param : params) rule.config.emplace_back(param.name, param.values.front().text());
  definition.params = std::move(params);
  definition.require = std::move(require);
  definition.launch.grid = {"1"};
  definition.launch.block = {"32"};
  definition.defaults = {rule};
  auto bound = space::Instance::bind(space::Model::make(definition), {}, *space::nominal_device("sm_90"));
  REQUIRE(bound.ok());
  return *bound;
}

std::vector<Value> numbers(int count) {
  std::vector<Value> values;
  for (int i = 1; i <= count; ++i) values.emplace_back(i);
  return values;
}

}  // namespace

TEST_CASE("a small space is proposed whole, once, valid, in an order that depends on the seed alone") {
  const auto bound = instance({{"A", numbers(10)}, {"B", numbers(10)}}, {"A <= B"});
  auto all = [&](uint64_t seed) {
    auto strategy = search::make_strategy(bound.space(), seed, {});
    CHECK(strategy->name() == "exhaustive");
    CHECK(strategy->total() == 55);
    std::vector<std::string> order;
    for (auto batch = strategy->ask(7); !batch.empty(); batch = strategy->ask(7)) {
      CHECK(batch.size() <= 7);
      for (const auto& config : batch) {
        CHECK_FALSE(bound.reject(config).has_value());
        order.push_back(space::canonical(config));
      }
    }
    return order;
  };
  const auto first = all(1);
  CHECK(first.size() == 55);
  CHECK(std::set<std::string>(first.begin(), first.end()).size() == 55);
  CHECK(first == all(1));
  CHECK(first != all(2));
}

TEST_CASE("known configs are not proposed again") {
  const auto bound = instance({{"A", numbers(10)}}, {});
  std::vector<space::Config> known{{{"A", Value(3)}}, {{"A", Value(4)}}};
  auto strategy = search::make_strategy(bound.space(), 1, known);
  const auto rest = strategy->ask(100);
  CHECK(rest.size() == 8);
  for (const auto& config : rest) {
    CHECK(config != known[0]);
    CHECK(config != known[1]);
  }
}

TEST_CASE("a space too large to list is drawn from without repeats, and used up in the end") {
  const auto bound = instance({{"A", numbers(40)}, {"B", numbers(40)}}, {"(A + B) % 2 == 0"});
  auto strategy = search::make_strategy(bound.space(), 5, {}, 100);
  CHECK(strategy->name() == "random");
  CHECK(strategy->total() == 0);
  std::set<std::string> seen;
  for (auto batch = strategy->ask(50); !batch.empty(); batch = strategy->ask(50))
    for (const auto& config : batch) {
      CHECK_FALSE(bound.reject(config).has_value());
      CHECK(seen.insert(space::canonical(config)).second);
    }
  CHECK(seen.size() == 800);  // 40 * 40 / 2
}

TEST_CASE("a space of 10^12 points costs nothing to start on") {
  const auto bound =
      instance({{"A", numbers(1000)}, {"B", numbers(1000)}, {"C", numbers(1000)}, {"D", numbers(1000)}}, {});
  auto strategy = search::make_strategy(bound.space(), 1, {});
  CHECK(strategy->ask(10).size() == 10);
}
