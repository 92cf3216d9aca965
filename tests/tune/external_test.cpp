// Strategies in other programs: the Python example, and programs that die, babble, stay silent or do not exist.
#include <algorithm>
#include <cmath>
#include <set>

#include "space/valid_set.hpp"
#include "support/support.hpp"
#include "tune/external_strategy.hpp"

using namespace jitune;

namespace {

space::Space small_space() {
  std::vector<Value> numbers;
  for (int i = 1; i <= 12; ++i) numbers.emplace_back(i);
  return space::plain_space({{"A", numbers}, {"B", numbers}, {"C", {"row", "col"}}}, {"A + B < 20"});
}

double made_up_time(const space::Config& config) {
  return 10 + std::abs(static_cast<double>(config.at("A").as_int()) - 7) +
         std::abs(static_cast<double>(config.at("B").as_int()) - 3);
}

struct Course {
  std::set<space::Config> proposed;
  double best_us = 1e9;
  std::vector<std::string> troubles;
};

Course search_with(const std::string& command, size_t trials,
                   std::chrono::milliseconds patience = std::chrono::seconds(20)) {
  Course course;
  const space::Space space = small_space();
  const space::ValidSet valid(space);
  auto strategy =
      tune::start_external(space, {.seed = 4, .trials = trials},
                           {command, patience, [&](const std::string& text) { course.troubles.push_back(text); }});
  REQUIRE_MESSAGE(strategy.ok(), strategy.error());
  CHECK((*strategy)->name() == "external");
  while (course.proposed.size() < trials) {
    const auto batch = (*strategy)->ask(std::min<size_t>(4, trials - course.proposed.size()));
    if (batch.empty()) break;
    for (const space::Config& config : batch) {
      CHECK(valid.point(config).has_value());
      CHECK(course.proposed.insert(config).second);
      course.best_us = std::min(course.best_us, made_up_time(config));
      (*strategy)->tell(config, {search::Fate::ok, made_up_time(config), 0});
    }
  }
  return course;
}

}  // namespace

TEST_CASE("the Python example drives a search") {
  if (test::run_program("python3 -c pass").exit_code != 0) return test::skip("python", "there is no python3");
  const Course course = search_with("exec python3 '" JITUNE_SOURCE_DIR "/tests/tune/external_strategy.py'", 60);
  CHECK(course.proposed.size() == 60);
  CHECK(course.best_us <= 11);
  for (const std::string& trouble : course.troubles) MESSAGE(trouble);
  CHECK(course.troubles.empty());
}

TEST_CASE("a program that is killed in the middle: the search goes on, and says why once") {
  const Course course =
      search_with("read space; read ask; echo '{\"configs\": [{\"A\": 1, \"B\": 1, \"C\": \"row\"}]}'; kill -9 $$", 40);
  CHECK(course.proposed.size() == 40);
  CHECK(course.proposed.contains({{"A", 1}, {"B", 1}, {"C", "row"}}));
  REQUIRE(course.troubles.size() == 1);
  CHECK(course.troubles[0].find("it ended (killed by SIGKILL") != std::string::npos);
}

TEST_CASE("a program that writes garbage is left out") {
  for (const char* garbage : {"hello", "{\"configs\": 7}", "[1, 2", "{\"configs\"", ""}) {
    const Course course = search_with("while read line; do echo '" + std::string(garbage) + "'; done", 20);
    CHECK(course.proposed.size() == 20);
    REQUIRE(course.troubles.size() == 1);
    CHECK(course.troubles[0].find(std::string("it answered `") + garbage) != std::string::npos);
  }
}

TEST_CASE("configs that are invalid, known or of no space at all are passed over, and the rest is filled") {
  const Course course = search_with(
      "while read line; do case $line in *ask*) echo '{\"configs\": [{\"A\": 12, \"B\": 12, \"C\": \"row\"}, {\"A\": "
      "1}, 7, "
      "{\"A\": {\"x\": 1}}, {\"A\": 2, \"B\": 2, \"C\": \"col\"}]}';; esac; done",
      30);
  CHECK(course.proposed.size() == 30);
  CHECK(course.proposed.contains({{"A", 2}, {"B", 2}, {"C", "col"}}));
  CHECK(course.troubles.empty());
}

TEST_CASE("a program that is silent, or never reads, holds the search up no longer than its patience") {
  const Course silent = search_with("exec sleep 100", 20, std::chrono::milliseconds(200));
  CHECK(silent.proposed.size() == 20);
  REQUIRE(silent.troubles.size() == 1);
  CHECK(silent.troubles[0].find("it gave no answer in time (stopped by us)") != std::string::npos);
}

TEST_CASE("a program that does not exist says so, with the shell's own words") {
  const Course course = search_with("exec /nowhere/strategy", 10);
  CHECK(course.proposed.size() == 10);
  REQUIRE(course.troubles.size() == 1);
  CHECK(course.troubles[0].find("exited with code 127; it wrote: ") != std::string::npos);
  CHECK(course.troubles[0].find("/nowhere/strategy") != std::string::npos);
}
