#pragma once

#include <vector>

#include "key/key.hpp"
#include "search/strategy.hpp"
#include "store/store.hpp"

namespace jitune::tune {

/// What the database knows of the same kernel under other keys (other problems, devices, sources, toolchains), the
/// nearest eight, for a search to start from. Reads the store; empty when there is nothing or it can't be read.
std::vector<search::Record> records_near(store::Store& store, const key::TuningKey& key);

/// How far another key of the same kernel is: doublings of each number of the problem, more for another type or device.
double distance_between(const key::TuningKey& a, const key::TuningKey& b);

}  // namespace jitune::tune
