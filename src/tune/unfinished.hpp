#pragma once

#include "key/key.hpp"
#include "space/instance.hpp"
#include "store/store.hpp"

namespace jitune::tune {

/// Whether the last study of this key ended before its space was used up (by its budget, or cancelled), or had another
/// space than the kernel has now: then there may be more to try, winner or not. Reads the key's trials where its last
/// study came to an end.
bool is_unfinished(store::Store& store, const key::TuningKey& key, const space::Instance& instance);

}  // namespace jitune::tune
