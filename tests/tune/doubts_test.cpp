// Which compiled configs are not run.
#include "tune/doubts.hpp"

#include <doctest/doctest.h>

using jitune::tune::Doubts;
using jitune::tune::Promise;

namespace {

constexpr double kFastUs = 50, kSlowUs = 100;

/// A default config and a faster one, both at half an SM, and so many witnesses that lost.
Doubts with(const Promise& witness, int count, double us = kSlowUs) {
  Doubts doubts;
  doubts.set_default({.5, 0});
  doubts.note({.5, 0}, kSlowUs);
  doubts.note({.5, 0}, kFastUs);
  for (int i = 0; i < count; ++i) doubts.note(witness, us);
  return doubts;
}

bool skips(Doubts doubts, const Promise& promise) {
  return !doubts.why_skip(promise).empty();
}

}  // namespace

TEST_CASE("a config that fills little of an SM is skipped once twelve like it have clearly lost") {
  CHECK_FALSE(skips(with({.125, 0}, 11), {.125, 0}));
  CHECK(skips(with({.125, 0}, 12), {.125, 0}));
  CHECK(skips(with({.125, 0}, 12), {.0625, 0}));           // what fills less is worse still
  CHECK_FALSE(skips(with({.125, 0}, 12), {.1875, 0}));     // nothing is known of what fills more
  CHECK_FALSE(skips(with({.125, 0}, 12, 63), {.125, 0}));  // they lost by 26 % only
  CHECK_FALSE(skips(with({.3, 0}, 100), {.3, 0}));         // a quarter is no sign of anything
  CHECK_FALSE(skips(with({.125, 0}, 12), {0, 0}));         // not known
}

TEST_CASE("a config that spills registers is skipped once twelve that spill no more have clearly lost") {
  CHECK_FALSE(skips(with({.5, 16}, 11), {.5, 16}));
  CHECK(skips(with({.5, 16}, 12), {.5, 16}));
  CHECK(skips(with({.5, 16}, 12), {.5, 400}));
  CHECK_FALSE(skips(with({.5, 16}, 12), {.5, 8}));
  CHECK_FALSE(skips(with({.5, 16}, 12), {.5, 0}));
  CHECK(with({.5, 16}, 12).why_skip({.5, 400}) ==
        "not run: it spills 400 bytes; of 12 configs that spill less (over 0), the best is 100 % slower");
}

TEST_CASE("what the default config or one near the best has is held against nobody") {
  Doubts thin;
  thin.set_default({.125, 64});
  thin.note({.125, 64}, kSlowUs);
  thin.note({.5, 0}, kFastUs);
  for (int i = 0; i < 20; ++i) thin.note({.125, 64}, kSlowUs);
  CHECK_FALSE(skips(thin, {.125, 64}));
  for (int i = 0; i < 12; ++i) thin.note({.0625, 64}, kSlowUs);
  CHECK(skips(thin, {.0625, 64}));

  Doubts found = with({.125, 0}, 20);
  CHECK(found.doubted({.125, 0}));
  found.note({.125, 0}, 1.05 * kFastUs);
  CHECK_FALSE(skips(found, {.125, 0}));
  CHECK_FALSE(found.doubted({.125, 0}));
  CHECK(found.doubted({.0625, 0}));
}

TEST_CASE("of what would be skipped every eighth runs all the same") {
  Doubts doubts = with({.125, 0}, 12);
  int skipped = 0;
  for (int i = 0; i < 80; ++i) skipped += !doubts.why_skip({.125, 0}).empty();
  CHECK(skipped == 70);
}

TEST_CASE("without a config that ran nothing is skipped") {
  Doubts doubts;
  CHECK_FALSE(skips(doubts, {.01, 4000}));
  doubts.set_default({.5, 0});
  CHECK_FALSE(skips(doubts, {.01, 4000}));
}
