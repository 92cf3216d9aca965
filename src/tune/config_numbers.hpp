#pragma once

#include "search/strategy.hpp"
#include "space/instance.hpp"

namespace jitune::tune {

/// What is known of an instance's configs before they are compiled: what the launch declares (threads, shared memory,
/// blocks, how many of them an SM can hold and so how many waves they come in) and the author's features. `instance`
/// must outlive the result.
search::ConfigNumbers numbers_of(const space::Instance& instance);

/// The author's features alone.
search::ConfigNumbers features_of(const space::Instance& instance);

}  // namespace jitune::tune
