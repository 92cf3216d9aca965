#include <atomic>
#include <cmath>
#include <functional>
#include <sstream>
#include <thread>

#include "jitune/jitune.hpp"
#include "runtime/environment.hpp"
#include "runtime/nearest.hpp"
#include "runtime/plan_table.hpp"
#include "runtime/signature.hpp"
#include "support/support.hpp"
#include "tune/clock_memo.hpp"

using namespace jitune;
using test::ScopedEnv;

namespace {

std::string message_of(const std::function<void()>& action, ErrorCode code) {
  try {
    action();
  } catch (const Error& error) {
    CHECK(error.code() == code);
    return error.what();
  }
  FAIL("nothing was thrown");
  return "";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::unique_ptr<runtime::Plan> plan_for(int64_t value, bool heuristic = false) {
  runtime::Plan::Making making;
  making.key.values[0] = value;
  making.key.count = 1;
  making.key.heuristic = heuristic;
  making.choice.config = std::to_string(value);
  return std::make_unique<runtime::Plan>(std::move(making));
}

}  // namespace

TEST_CASE("the environment overrides options, and nonsense in it is refused by name") {
  Options options;
  options.track = Track::lookup;
  options.database = "/somewhere/engine.db";
  {
    const ScopedEnv track("JITUNE_TRACK", "tune"), database("JITUNE_DATABASE", "off"),
        workers("JITUNE_COMPILE_WORKERS", "3");
    const auto settings = runtime::read_settings(options);
    CHECK(settings.options.track == Track::tune);
    CHECK(settings.database.empty());
    CHECK(settings.options.compile_workers == 3);
    CHECK_FALSE(settings.always_heuristic);
  }
  {
    const ScopedEnv track("JITUNE_TRACK", "heuristic");
    CHECK(runtime::read_settings(options).always_heuristic);
  }
  CHECK(runtime::read_settings(options).database == "/somewhere/engine.db");
  const std::pair<const char*, const char*> wrong[] = {{"JITUNE_TRACK", "fast"},
                                                       {"JITUNE_COMPILE_WORKERS", "0"},
                                                       {"JITUNE_COMPILE_WORKERS", "many"},
                                                       {"JITUNE_LOG", "loud"}};
  for (const auto& [name, value] : wrong) {
    const ScopedEnv set(name, value);
    const auto message = message_of([&] { runtime::read_settings(options); }, ErrorCode::bad_options);
    CHECK(has(message, std::string(name) + "=" + value));
    CHECK(has(message, "use "));
  }
  for (const char* name : {"0", "gpu-1", "any"}) {
    options.tuning_devices = {"all", name};
    const auto message = message_of([&] { runtime::read_settings(options); }, ErrorCode::bad_options);
    CHECK_MESSAGE(has(message, std::string("Options::tuning_devices=") + name), message);
  }
  options.tuning_devices = {"all", "GPU-1", "own"};
  CHECK(runtime::read_settings(options).options.tuning_devices.size() == 3);
  options.isolation = Isolation::in_process;
  CHECK(has(message_of([&] { runtime::read_settings(options); }, ErrorCode::bad_options), "one context"));
  options.isolation = Isolation::process;
  options.compile_timeout = std::chrono::milliseconds(0);
  CHECK(has(message_of([&] { runtime::read_settings(options); }, ErrorCode::bad_options), "Options::compile_timeout"));
}

TEST_CASE("paths become absolute when the Tuner is made; the default database is in the user's cache") {
  const ScopedEnv cache("XDG_CACHE_HOME", "/var/cache/me"), unset("JITUNE_DATABASE", nullptr);
  CHECK(runtime::read_settings({}).database == "/var/cache/me/jitune/jitune.db");
  Options options;
  options.database = "relative.db";
  CHECK(runtime::read_settings(options).database.front() == '/');
}

TEST_CASE("plans are found by context, values and track; a replaced plan's table stays readable") {
  runtime::PlanTable table;
  runtime::PlanKey key;
  key.count = 1;
  CHECK(table.find(key) == nullptr);
  for (int64_t value = 0; value < 1000; ++value) table.insert(plan_for(value));
  for (int64_t value = 0; value < 1000; ++value) {
    key.values[0] = value;
    runtime::Plan* found = table.find(key);
    REQUIRE(found != nullptr);
    CHECK(found->choice().config == std::to_string(value));
  }
  key.values[0] = 7;
  runtime::Plan* old = table.find(key);
  runtime::Plan* replaced = table.insert(plan_for(7));
  CHECK(table.find(key) == replaced);
  CHECK(old != replaced);
  CHECK(old->choice().config == "7");  // still there for whoever holds it
  CHECK(table.all().size() == 1000);
  key.heuristic = true;
  CHECK(table.find(key) == nullptr);
  key.heuristic = false;
  key.context = 0x1000;
  CHECK(table.find(key) == nullptr);
}

TEST_CASE("what contexts and tracks have planned for one problem lies in one chain and is told apart") {
  runtime::PlanTable table;
  std::vector<runtime::Plan*> made;
  for (uint64_t context = 1; context <= 8; ++context)
    for (const bool heuristic : {false, true}) {
      runtime::Plan::Making making;
      making.key.context = context;
      making.key.heuristic = heuristic;
      making.key.values[0] = 42;
      making.key.count = 1;
      made.push_back(table.insert(std::make_unique<runtime::Plan>(std::move(making))));
    }
  for (const auto* plan : made) CHECK(table.find(plan->key()) == plan);
  runtime::PlanKey key = made.front()->key();
  key.context = 9;
  CHECK(table.find(key) == nullptr);
}

TEST_CASE("plans can be found while others are added and replaced") {
  runtime::PlanTable table;
  table.insert(plan_for(0));
  std::atomic<bool> done{false};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i)
    readers.emplace_back([&] {
      runtime::PlanKey key;
      key.count = 1;
      while (!done.load()) {
        for (int64_t value = 0; value < 64; ++value) {
          key.values[0] = value;
          const runtime::Plan* found = table.find(key);
          if (found != nullptr) CHECK(found->key().values[0] == value);
        }
        key.values[0] = 0;
        CHECK(table.find(key) != nullptr);  // what was there stays to be found while tables grow
      }
    });
  for (int round = 0; round < 3; ++round)
    for (int64_t value = 0; value < 300; ++value) table.insert(plan_for(value));
  done = true;
  for (auto& reader : readers) reader.join();
  CHECK(table.all().size() == 300);
}

TEST_CASE("1, true and the first word are different problems, and so are values that differ in their highest bits") {
  runtime::PlanTable table;
  runtime::PlanKey key;
  key.count = 1;
  key.values[0] = 1;
  auto add = [&](uint8_t kind, int64_t value) {
    runtime::Plan::Making making;
    making.key = key;
    making.key.kinds = kind;
    making.key.values[0] = value;
    return table.insert(std::make_unique<runtime::Plan>(std::move(making)));
  };
  const auto* number = add(1, 1);
  const auto* boolean = add(2, 1);
  const auto* large = add(1, 1 + (int64_t{1} << 62));
  key.kinds = 1;
  CHECK(table.find(key) == number);
  key.kinds = 2;
  CHECK(table.find(key) == boolean);
  CHECK(boolean->fits(0, false, 2, 0, 1, key.values.data()));
  CHECK_FALSE(boolean->fits(0, false, 1, 0, 1, key.values.data()));
  CHECK_FALSE(large->fits(0, false, 1, 0, 1, key.values.data()));
  CHECK(large != number);
  CHECK(table.all().size() == 3);
}

TEST_CASE("problems are near where each number is at most twice the other and the rest is equal") {
  using runtime::distance;
  const space::ProblemValues from{{"T", "half"}, {"m", 1024}, {"n", 64}};
  auto to = [&](Value m, Value n, Value type = "half") { return distance(from, {{"T", type}, {"m", m}, {"n", n}}); };
  CHECK(to(1024, 64) == 0.0);
  CHECK(to(2048, 64).value() == doctest::Approx(1));
  CHECK(to(2048, 32).value() == doctest::Approx(std::sqrt(2.0)));
  CHECK_FALSE(to(2049, 64).has_value());
  CHECK_FALSE(to(1024, 31).has_value());
  CHECK_FALSE(to(1024, 64, "float").has_value());
  CHECK_FALSE(to(1024, 0).has_value());
  CHECK_FALSE(to(1024, true).has_value());
  CHECK_FALSE(distance(from, {{"T", "half"}, {"m", 1024}}).has_value());
  CHECK(distance({{"k", 0}}, {{"k", 0}}) == 0.0);

  key::TuningKey key;
  auto row = [&](const std::string& problem, const std::string& options = "") {
    store::KeyRow made;
    made.key.problem = problem;
    made.key.options = options;
    made.winner.emplace();
    return made;
  };
  const auto ranked = runtime::nearest_first({row(R"({"m":1700})"), row(R"({"m":900})"), row(R"({"m":4000})"),
                                              row(R"({"m":1000})", "other"), row(R"({"m":2048})"), row(R"({"m":512})")},
                                             key, {{"m", 1024}}, false);
  std::string order;
  for (const auto& each : ranked) order += each.key.problem;
  CHECK(order == R"({"m":900}{"m":1700}{"m":2048}{"m":512})");  // equally far: in canonical order
}

TEST_CASE("launches by many threads are all counted, by more than own a stripe and by ones that come and go") {
  runtime::StripedCounter<8> few;
  runtime::StripedCounter<64> many;
  runtime::PackedCounters packed;
  std::vector<runtime::PackedCounter> aside;  // on two pages
  for (unsigned i = 0; i < runtime::PackedCounter::kAside + 2; ++i) aside.push_back(packed.make());
  for (int round = 0; round < 3; ++round) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 80; ++i)
      threads.emplace_back([&] {
        for (int k = 0; k < 1000; ++k) {
          few.add(1);
          many.add(2);
          aside[static_cast<size_t>(k) % aside.size()].add(1);
        }
      });
    for (auto& thread : threads) thread.join();
  }
  CHECK(few.sum() == 240'000);
  CHECK(many.sum() == 480'000);
  long long each_once = 0;
  for (size_t i = 0; i < aside.size(); ++i) {
    const long long rounds = 1000 / static_cast<long long>(aside.size()) + (i < 1000 % aside.size() ? 1 : 0);
    CHECK(aside[i].sum() == 240 * rounds);
    each_once += aside[i].sum();
  }
  CHECK(each_once == 240'000);
}

TEST_CASE("a signature that does not fit the args is refused, naming the first arg that differs") {
  const std::vector<Arg> args{out("y", "float", "n"), in("x", "float", "n"), scratch("s", "float", "n"),
                              scalar("n", "int", "n"), scalar("a", "half", "1.0")};
  using K = ArgumentType::Kind;
  const ArgumentType y{K::pointer, 8, 4}, x{K::const_pointer, 8, 4}, n{K::integer, 4, 0}, a{K::other, 2, 0};
  auto check = [&](std::vector<ArgumentType> signature) { runtime::check_signature("k", args, signature); };
  check({y, x, n, a});
  check({y, y, n, a});                   // const may be left out for an input
  check({{K::pointer, 8, 0}, x, n, a});  // void* and device_ptr
  auto refused = [&](std::vector<ArgumentType> signature) {
    return message_of([&] { check(signature); }, ErrorCode::bad_definition);
  };
  CHECK(has(refused({y, x, n}), "has 3 parameters, the definition takes 4 from the caller: y, x, n, a"));
  CHECK(has(refused({x, x, n, a}), "'y' the kernel writes to it"));
  CHECK(has(refused({y, {K::const_pointer, 8, 8}, n, a}), "'x' its elements are of type float, 4 bytes"));
  CHECK(has(refused({y, x, {K::integer, 8, 0}, a}), "'n' it is a scalar of type int, 4 bytes"));
  CHECK(has(refused({y, x, {K::floating, 4, 0}, a}), "'n' it is a scalar of type int"));
  CHECK(has(refused({y, n, n, a}), "'x' it is a buffer"));
  CHECK(has(refused({y, x, y, a}), "'n' it is a scalar"));
}

TEST_CASE("C++ types are told apart as far as definitions need it") {
  struct Incomplete;
  using K = ArgumentType::Kind;
  CHECK(detail::argument_type<float*>().kind == K::pointer);
  CHECK(detail::argument_type<float*>().element_size == 4);
  CHECK(detail::argument_type<const double*>().kind == K::const_pointer);
  CHECK(detail::argument_type<const double*>().element_size == 8);
  CHECK(detail::argument_type<void*>().element_size == 0);
  CHECK(detail::argument_type<Incomplete*>().element_size == 0);
  CHECK(detail::argument_type<device_ptr>().kind == K::pointer);
  CHECK(detail::argument_type<unsigned long>().kind == K::integer);  // never a pointer
  CHECK(detail::argument_type<float>().kind == K::floating);
}

TEST_CASE("a choice prints as one line for people") {
  std::ostringstream text;
  text << Choice{
      Choice::Source::tuned, R"({"BLOCK":128})", 40.5, 100, "tuned in this process (won): 9 trials in 0.4 s", "tuned"};
  CHECK(text.str() ==
        R"(tuned {"BLOCK":128}, 40.5 us (default config 100 us); tuned in this process (won): 9 trials in 0.4 s)");
}

TEST_CASE("classes of strides and alignments") {
  CHECK(stride_class(0) == 0);
  CHECK(stride_class(1) == 1);
  CHECK(stride_class(4096) == 2);
  CHECK(stride_class(-1) == 2);
  const auto at = [](uintptr_t address) { return reinterpret_cast<const void*>(address); };
  CHECK(alignment_class({at(0x1000), at(0x2010)}) == 16);
  CHECK(alignment_class({at(0x1000), at(0x2008)}) == 8);
  CHECK(alignment_class({at(0x1001)}) == 1);
  CHECK(alignment_class({at(0x1000)}, 128) == 128);
  CHECK(alignment_class(6) == 2);
  CHECK(alignment_class(0, 32) == 32);
}

TEST_CASE("clocks are remembered for a GPU under a driver") {
  auto store = store::Store::open({.path = "off"});
  REQUIRE(store.ok());
  tune::StoreClockMemo memo(**store);
  gpu::Clocks clocks;
  CHECK_FALSE(memo.recall("GPU-1", 13000, clocks));
  memo.remember("GPU-1", 13000, {1980, 3201});
  memo.remember("GPU-2", 13000, {0, 0});  // the driver did not tell
  REQUIRE(memo.recall("GPU-1", 13000, clocks));
  CHECK(clocks.mhz == 1980);
  CHECK(clocks.memory_mhz == 3201);
  CHECK_FALSE(memo.recall("GPU-1", 13010, clocks));
  CHECK_FALSE(memo.recall("GPU-2", 13000, clocks));
}
