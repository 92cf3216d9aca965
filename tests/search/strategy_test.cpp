#include "search/strategy.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "search/columns.hpp"
#include "search/model.hpp"
#include "search/xgboost.hpp"
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

std::unique_ptr<search::Strategy> make(const space::Space& space, const search::StrategyOptions& options) {
  auto strategy = search::make_strategy(space, options);
  REQUIRE(strategy.ok());
  return std::move(*strategy);
}

/// A time with a single best config, the one with the smallest values, and a ridge that no single step crosses.
double made_up_time(const space::Config& config) {
  double time = 10;
  for (const auto& [name, value] : config) time += std::abs(static_cast<double>(value.as_int()) - 4.0);
  return config.at("A").as_int() % 2 != config.at("B").as_int() % 2 ? time * 1.5 : time;
}

/// The configs that a search proposes, in their order, told what `tell` says of each.
std::vector<space::Config> proposals(search::Strategy& strategy, size_t count, size_t batch,
                                     const std::function<search::Told(const space::Config&)>& tell) {
  std::vector<space::Config> all;
  while (all.size() < count) {
    const auto asked = strategy.ask(std::min(batch, count - all.size()));
    if (asked.empty()) break;
    for (const auto& config : asked) strategy.tell(config, tell(config));
    all.insert(all.end(), asked.begin(), asked.end());
  }
  return all;
}

search::Told ok_in(double time_us) {
  return {search::Fate::ok, time_us, 0};
}

}  // namespace

TEST_CASE("a space that is affordable is proposed whole, once, valid, in an order that depends on the seed alone") {
  const auto bound = instance({{"A", numbers(10)}, {"B", numbers(10)}}, {"A <= B"});
  auto all = [&](uint64_t seed) {
    auto strategy = make(bound.space(), {.seed = seed});
    CHECK(strategy->name() == "exhaustive");
    CHECK(strategy->total() == 55);
    CHECK_FALSE(strategy->adaptive());
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

TEST_CASE("auto tries all where that fits the budget or there is none, else it searches") {
  const auto bound = instance({{"A", numbers(40)}, {"B", numbers(40)}}, {"(A + B) % 2 == 0"});
  CHECK(make(bound.space(), {})->name() == "exhaustive");
  CHECK(make(bound.space(), {.trials = 800})->name() == "exhaustive");
  CHECK(make(bound.space(), {.trials = 799})->name() == "auto");
  CHECK(make(bound.space(), {.bounded = true})->name() == "auto");
  CHECK(make(bound.space(), {.trials = 799})->adaptive());
  const auto unknown = search::make_strategy(bound.space(), {.name = "best"});
  REQUIRE_FALSE(unknown.ok());
  CHECK(unknown.error().find("'best'; there are auto, exhaustive, random, hls") != std::string::npos);
}

TEST_CASE("every strategy: valid, never twice, never a known one, the whole space in the end, the same for a seed") {
  const auto bound =
      instance({{"A", numbers(12)}, {"B", numbers(8)}, {"C", {"row", "col"}}}, {"(A * B) % 3 != 2", "A < 12 || B < 8"});
  const size_t size = bound.space().list(1000).size();
  const std::vector<space::Config> known{bound.space().list(1).front()};
  const auto fates = [](const space::Config& config) -> search::Told {
    const auto a = config.at("A").as_int();
    if (a == 5) return {search::Fate::compile_failed, 0, 0};
    if (a == 6) return {search::Fate::run_failed, 0, 0};
    if (a == 7) return {search::Fate::wrong, 0, 0};
    if (a == 8) return {search::Fate::early_stopped, 99, .01};
    return ok_in(made_up_time(config));
  };
  for (const std::string& name : search::strategy_names()) {
    CAPTURE(name);
    for (const size_t batch : {size_t{1}, size_t{8}}) {
      CAPTURE(batch);
      const search::StrategyOptions options{.name = name, .seed = 3, .trials = 100, .known = known};
      auto strategy = make(bound.space(), options);
      const auto all = proposals(*strategy, 10'000, batch, fates);
      CHECK(all.size() == size - 1);
      CHECK(std::set<space::Config>(all.begin(), all.end()).size() == all.size());
      for (const auto& config : all) CHECK_FALSE(bound.reject(config).has_value());
      CHECK(std::find(all.begin(), all.end(), known[0]) == all.end());
      CHECK(proposals(*make(bound.space(), options), 10'000, batch, fates) == all);
    }
  }
}

TEST_CASE("every strategy survives a space in which everything fails") {
  const auto bound = instance({{"A", numbers(20)}, {"B", numbers(20)}}, {});
  for (const std::string& name : search::strategy_names()) {
    CAPTURE(name);
    auto strategy = make(bound.space(), {.name = name, .trials = 150});
    const auto all = proposals(*strategy, 10'000, 4, [](const space::Config&) {
      return search::Told{search::Fate::compile_failed, 0, 0};
    });
    CHECK(all.size() == 400);
  }
}

TEST_CASE("strategies that learn find a needle that random draws miss") {
  const auto bound =
      instance({{"A", numbers(16)}, {"B", numbers(16)}, {"C", numbers(16)}, {"D", numbers(8)}}, {"A + B > 1"});
  const auto best_of = [&](const std::string& name) {
    double sum = 0;
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      auto strategy = make(bound.space(), {.name = name, .seed = seed, .trials = 150});
      double best = 1e9;
      proposals(*strategy, 150, 1, [&](const space::Config& config) {
        best = std::min(best, made_up_time(config));
        return ok_in(made_up_time(config));
      });
      sum += best;
    }
    return sum / 5;
  };
  const double random = best_of("random");
  for (const char* name : {"auto", "hls", "annealing", "genetic", "bayes", "coordinate"}) {
    CAPTURE(name);
    CHECK(best_of(name) < random);
  }
  CHECK(best_of("hls") < 12);  // the optimum is 10
}

TEST_CASE("of points that promise the same, those come first whose like was tried less") {
  const auto bound = instance({{"A", numbers(10)}, {"B", numbers(10)}}, {});
  const space::ValidSet valid(bound.space());
  search::Archive archive(valid);
  const auto at = [](uint16_t a, uint16_t b) { return space::Point{a, b}; };
  for (uint16_t a = 0; a < 7; ++a) archive.tell(archive.add(at(a, 3)), ok_in(10));
  archive.tell(archive.add(at(9, 8)), ok_in(10));
  search::Model model(archive, 1);
  REQUIRE(model.refresh());
  const auto first_of = [&](const space::Point& a, const space::Point& b) { return model.order({a, b}, 1).at(0); };
  const auto lone = at(8, 0), beside_one = at(9, 1), beside_two = at(6, 8), beside_seven = at(8, 3);
  CHECK(first_of(beside_one, lone) == lone);
  CHECK(first_of(beside_two, beside_one) == beside_one);
  CHECK(first_of(beside_seven, beside_two) == beside_two);  // the two differ from it in one param each
}

TEST_CASE("a param's value is known by the power of two in it where its place does not tell") {
  const auto bound =
      instance({{"A", {16, 32, 48, 64}}, {"B", {1, 2, 4, 8}}, {"C", {"row", "col"}}, {"D", {3, 1024 * 4, 5000}}}, {});
  const space::ValidSet valid(bound.space());
  const search::Features features(valid);
  const auto last_two = [&](uint16_t a, uint16_t d) {
    std::vector<uint8_t> codes;
    features.append({a, 0, 0, d}, codes);
    CHECK(codes.size() == 4 + 3 + 2);  // places; products of A, B and D; powers of A and D
    return std::vector<int>(codes.end() - 2, codes.end());
  };
  CHECK(last_two(0, 0) == std::vector<int>{4, 0});
  CHECK(last_two(1, 1) == std::vector<int>{5, 10});
  CHECK(last_two(2, 2) == std::vector<int>{4, 3});
  CHECK(last_two(3, 2) == std::vector<int>{6, 3});
}

TEST_CASE("a space too large to count is drawn from without repeats") {
  std::vector<Param> params;
  for (int i = 0; i < 12; ++i) params.push_back({"P" + std::to_string(10 + i), numbers(10)});
  const auto bound =
      instance(params, {"(P10 * 3 + P11 * 5 + P12 * P13 + P14 * P15 + P16 * P17 + P18 * P19 + P20 * P21) % 7 != 3"});
  for (const char* name : {"random", "hls"}) {
    auto strategy = make(bound.space(), {.name = name, .trials = 60});
    CHECK(strategy->total() == 0);
    std::set<std::string> seen;
    for (const auto& config : proposals(*strategy, 60, 5, [](const space::Config& c) {
           return ok_in(1.0 + static_cast<double>(c.at("P10").as_int()));
         })) {
      CHECK_FALSE(bound.reject(config).has_value());
      CHECK(seen.insert(space::canonical(config)).second);
    }
    CHECK(seen.size() == 60);
  }
}

TEST_CASE("what is to be first comes first, then the author's favourites, and nothing is hidden for good") {
  const auto bound = instance({{"A", numbers(30)}}, {});
  search::StrategyOptions options{.name = "random", .first = {{{"A", Value(17)}}, {{"A", Value(99)}}}};
  options.perf_model = [](const space::Config& config) {
    return std::abs(static_cast<double>(config.at("A").as_int()) - 20);
  };
  options.top_k = 3;
  auto strategy = make(bound.space(), options);
  const auto all = proposals(*strategy, 100, 1, [](const space::Config&) { return ok_in(1); });
  REQUIRE(all.size() == 30);
  CHECK(all[0].at("A") == Value(17));
  CHECK(all[1].at("A") == Value(20));
  CHECK(std::set<Value>{all[2].at("A"), all[3].at("A")} == std::set<Value>{Value(19), Value(21)});
}

TEST_CASE("numbers of configs that a param, or another number, says already are no columns of the model") {
  const auto bound = instance({{"A", numbers(16)}, {"B", numbers(16)}}, {});
  const space::ValidSet valid(bound.space());
  const search::ConfigNumbers known{
      {"constant", "of A", "falls with A", "sum", "twice the sum", "odd A", "not known"},
      [](const space::Config& config) {
        const auto a = static_cast<double>(config.at("A").as_int()), b = static_cast<double>(config.at("B").as_int());
        return std::vector<double>{7, a / 2, 100 - std::floor(a / 3), a + b, 2 * (a + b), std::fmod(a, 2), NAN};
      }};
  const search::Columns columns(valid, known);
  CHECK(columns.names() == std::vector<std::string>{"sum", "odd A"});
  std::vector<uint8_t> low, high;
  columns.append({0, 0}, low);
  columns.append({15, 14}, high);
  REQUIRE(low.size() == 2);
  REQUIRE(high.size() == 2);
  CHECK(low[0] < high[0]);
  CHECK(low[1] > high[1]);
  CHECK(search::Columns(valid, {}).size() == 0);
}

TEST_CASE("a number that a time follows helps the search where params alone do not say it") {
  const auto bound = instance({{"A", numbers(16)}, {"B", numbers(16)}, {"C", numbers(16)}}, {});
  const auto folded = [](const space::Config& config) {
    return static_cast<double>(
        (config.at("A").as_int() * 5 + config.at("B").as_int() * 7 + config.at("C").as_int() * 3) % 61);
  };
  const auto mean_best = [&](bool told) {
    double sum = 0;
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      search::StrategyOptions options{.name = "hls", .seed = seed, .trials = 40};
      if (told)
        options.numbers = {{"folded"},
                           [&](const space::Config& config) { return std::vector<double>{folded(config)}; }};
      auto strategy = make(bound.space(), options);
      double best = 1e9;
      proposals(*strategy, 40, 1, [&](const space::Config& config) {
        const double time = 10 + std::abs(folded(config) - 30) + static_cast<double>(config.at("A").as_int()) / 8;
        best = std::min(best, time);
        return ok_in(time);
      });
      sum += best / 8;
    }
    return sum;
  };
  CHECK(mean_best(true) < 10.4);
  CHECK(mean_best(false) > 10.5);
}

TEST_CASE("XGBoost models times where its library is there, and says what is missing where it is not") {
  const auto nowhere = search::load_xgboost("/nowhere/libxgboost.so");
  REQUIRE_FALSE(nowhere.ok());
  CHECK(nowhere.error().find("/nowhere/libxgboost.so") != std::string::npos);
  CHECK(nowhere.error().find("JITUNE_XGBOOST") != std::string::npos);
  const char* path = std::getenv("JITUNE_XGBOOST");
  const auto library = search::load_xgboost(path != nullptr ? path : "");
  if (!library) {
    test::skip("xgboost", library.error());
    return;
  }
  search::FeatureRows rows{2, {}};
  std::vector<float> targets;
  for (uint8_t i = 0; i < 60; ++i) {
    rows.codes.push_back(i);
    rows.codes.push_back(i % 5);
    targets.push_back(static_cast<float>(i + 10 * (i % 5)));
  }
  search::BoostedTrees trees(**library);
  Random random(1);
  std::vector<search::Estimate> estimates;
  REQUIRE(trees.fit(rows, targets, random).ok());
  REQUIRE(trees.predict(rows, estimates).ok());
  float off = 0, spread = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    off += std::abs(estimates[i].mean - targets[i]) / 60;
    spread += estimates[i].deviation / 60;
  }
  CHECK(off < 4);
  CHECK(spread > 0);
  CHECK(spread < 10);
  const auto bound = instance({{"A", numbers(16)}, {"B", numbers(16)}, {"C", numbers(16)}}, {});
  const auto run = [&](bool boosted) {
    search::StrategyOptions options{.name = "hls", .seed = 1, .trials = 60};
    options.xgboost = boosted ? *library : nullptr;
    auto strategy = make(bound.space(), options);
    return proposals(*strategy, 60, 1, [](const space::Config& config) { return ok_in(made_up_time(config)); });
  };
  const auto all = run(true);
  CHECK(all.size() == 60);
  CHECK(all == run(true));
  CHECK(all != run(false));
}

TEST_CASE("a space that is tried whole is tried in the order of the author's perf_model") {
  const auto bound = instance({{"A", numbers(9)}, {"B", numbers(9)}}, {});
  search::StrategyOptions options;
  options.perf_model = [](const space::Config& config) {
    return static_cast<double>(config.at("A").as_int() * config.at("B").as_int());
  };
  auto strategy = make(bound.space(), options);
  CHECK(strategy->name() == "exhaustive");
  const auto all = proposals(*strategy, 100, 4, [](const space::Config&) { return ok_in(1); });
  REQUIRE(all.size() == 81);
  for (size_t i = 0; i + 1 < all.size(); ++i) CHECK(options.perf_model(all[i]) <= options.perf_model(all[i + 1]));
}

TEST_CASE("a perf_model that is right helps from the first trials on, one that is upside down is seen through") {
  const auto bound = instance({{"A", numbers(16)}, {"B", numbers(16)}, {"C", numbers(16)}}, {});
  const auto best_after = [&](size_t trials, double sign) {
    double sum = 0;
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      search::StrategyOptions options{.seed = seed, .trials = 100};
      if (sign != 0)
        options.perf_model = [sign](const space::Config& config) {
          return sign * made_up_time(config) + static_cast<double>(config.at("C").as_int() % 3);
        };
      auto strategy = make(bound.space(), options);
      double best = 1e9;
      proposals(*strategy, trials, 1, [&](const space::Config& config) {
        best = std::min(best, made_up_time(config));
        return ok_in(made_up_time(config));
      });
      sum += best / 5;
    }
    return sum;
  };
  CHECK(best_after(12, 1) < 11.5);
  CHECK(best_after(12, 0) > 12.5);
  CHECK(best_after(100, -1) < best_after(40, 0));
}

TEST_CASE("records of elsewhere give the first candidates, at most 8 of a small budget") {
  const auto bound = instance({{"A", numbers(16)}, {"B", numbers(16)}}, {});
  search::Record record;
  for (const auto& config : bound.space().list(1000)) record.times_us.emplace_back(config, 7 * made_up_time(config));
  search::StrategyOptions options{.name = "random", .seed = 2, .trials = 50, .records = {record}};
  auto strategy = make(bound.space(), options);
  const auto all = proposals(*strategy, 50, 1, [](const space::Config& config) { return ok_in(made_up_time(config)); });
  CHECK(made_up_time(all[0]) == 10);
  for (const size_t i : {0, 1, 3, 4, 5, 6, 7, 8}) CHECK(made_up_time(all[i]) < 14);  // the third is the method's own
  const auto slow =
      std::count_if(all.begin() + 9, all.end(), [](const auto& config) { return made_up_time(config) > 15; });
  CHECK(slow > 20);
}

TEST_CASE("records that mislead are given up after two of their configs and two others that are faster") {
  const auto bound = instance({{"A", numbers(16)}, {"B", numbers(16)}}, {});
  search::Record record;
  for (const auto& config : bound.space().list(1000)) record.times_us.emplace_back(config, 1e3 / made_up_time(config));
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    search::StrategyOptions options{.name = "random", .seed = seed, .trials = 12, .records = {record}};
    auto strategy = make(bound.space(), options);
    auto all = proposals(*strategy, 12, 1, [](const space::Config& config) { return ok_in(made_up_time(config)); });
    options.records.clear();
    auto unseeded = make(bound.space(), options);
    const auto own =
        proposals(*unseeded, 10, 1, [](const space::Config& config) { return ok_in(made_up_time(config)); });
    const double slowest = std::max(made_up_time(all[0]), made_up_time(all[1]));
    CHECK(slowest > 30);  // the record's best
    all.erase(all.begin(), all.begin() + 2);
    CHECK(all == own);
  }
}

TEST_CASE("a budget ends a search by trials, by seconds, or when nothing improves any more") {
  search::BudgetMeter trials({.trials = 2});
  trials.add(ok_in(5));
  CHECK(trials.used_up(1e9) == "");
  trials.add(ok_in(5));
  CHECK(trials.used_up(0) == "trials");
  CHECK(search::BudgetMeter({.seconds = 3}).used_up(3) == "seconds");
  CHECK(search::BudgetMeter({.seconds = 3}).used_up(2.9) == "");
  search::BudgetMeter stalls({.improvement = .01, .window = 3});
  for (const double time : {10.0, 9.0, 8.99, 8.98}) {
    stalls.add(ok_in(time));
    CHECK(stalls.used_up(0) == "");
  }
  stalls.add({search::Fate::early_stopped, 1, 0});  // was not measured to the end: no improvement
  CHECK(stalls.used_up(0) == "improvement");
}
