// How deadlines of compilations follow what a space needs.
#include <doctest/doctest.h>

#include "tune/compile_deadlines.hpp"

using jitune::tune::CompileDeadlines;
using namespace std::chrono_literals;

TEST_CASE("a compile deadline is the user's until enough is known, then ten times what most configs need") {
  CompileDeadlines deadlines(60s);
  for (int i = 0; i < 7; ++i) deadlines.note("a", 800);
  CHECK(deadlines.deadline("a") == 60s);
  deadlines.note("a", 800);
  CHECK(deadlines.deadline("a") == 8s);
  CHECK(deadlines.deadline("b") == 60s);  // another space has its own times
  deadlines.note("a", 20000);             // one in nine: the quantile does not see it before the ninth of ten
  deadlines.note("a", 800);
  CHECK(deadlines.deadline("a") == 8s);
}

TEST_CASE("a compile deadline is never below the floor nor above the user's limit") {
  CompileDeadlines fast(60s), slow(60s), strict(2s);
  for (int i = 0; i < 20; ++i) {
    fast.note("a", 10);
    slow.note("a", 30000);
    strict.note("a", 1);
  }
  CHECK(fast.deadline("a") == CompileDeadlines::kFloor);
  CHECK(slow.deadline("a") == 60s);
  CHECK(strict.deadline("a") == 2s);
}

TEST_CASE("where many configs are ended early the deadline grows") {
  CompileDeadlines deadlines(300s);
  for (int i = 0; i < 10; ++i) deadlines.note("a", 1000);
  CHECK(deadlines.deadline("a") == 10s);
  deadlines.note("a", 10000);
  deadlines.note("a", 10000);
  CHECK(deadlines.deadline("a") == 100s);
}
