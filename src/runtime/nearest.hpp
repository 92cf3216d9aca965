#pragma once

#include <optional>
#include <vector>

#include "space/config.hpp"
#include "store/store.hpp"

namespace jitune::runtime {

/// How far two problems are from each other: the length of the vector of log2 ratios of their numbers. Nothing where
/// they can't be compared: other names, another word or bool, a number more than twice the other, or one that is not
/// positive and differs.
std::optional<double> distance(const space::ProblemValues& a, const space::ProblemValues& b);

/// Those of `related` whose key differs from `key` in the problem (and NVRTC, where `any_nvrtc`) alone and whose
/// problem is near to `problem`: nearest first, ties in canonical order.
std::vector<store::KeyRow> nearest_first(std::vector<store::KeyRow> related, const key::TuningKey& key,
                                         const space::ProblemValues& problem, bool any_nvrtc);

}  // namespace jitune::runtime
