#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "search/strategy.hpp"
#include "store/store.hpp"

namespace jitune::tune {

/// Trials of earlier studies of one key, as a search is to hear of them.
struct History {
  double default_us = 0;  ///< what the default config is taken to take; 0: no study timed it
  std::vector<std::pair<space::Config, search::Told>> told;
};

/// Times of two studies are not comparable as they are: all become what they would be if the default config took as
/// long as in the newest study that timed it. Those of a study that did not time it stay as they are. `rows` by config;
/// what is no config is left out. Pure.
History in_one_unit(const std::map<std::string, store::TrialRow>& rows);

}  // namespace jitune::tune
