// How deadlines of compilations follow what a space needs.
#include <doctest/doctest.h>

#include "tune/compile_deadlines.hpp"
#include "tune/run_deadline.hpp"

using jitune::tune::CompileDeadlines;
using jitune::tune::run_deadline;
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

TEST_CASE("a trial may take twenty times the best one's launches or ten times a good trial, a second at least") {
  using std::chrono::milliseconds;
  CHECK(run_deadline(0, 0) == milliseconds(30'000));              // nothing is known
  CHECK(run_deadline(7 * 50, 4) == milliseconds(1000));           // 7 launches of 50 us
  CHECK(run_deadline(7 * 80'000, 1300) == milliseconds(13'000));  // the quickest good trial
  CHECK(run_deadline(7 * 80'000, 500) == milliseconds(11'200));   // the launches alone
  // At two problems of weights 1000 and 1 that take 10 us and 1 s the mean is 1 ms, and a trial some 8 s.
  CHECK(run_deadline(7 * 1009, 8000) == milliseconds(80'000));
}
