#pragma once

#include <memory>
#include <vector>

#include "jitune/definition.hpp"
#include "space/config.hpp"
#include "space/instance.hpp"
#include "tune/measurer.hpp"

namespace jitune::tune {

/// Calls the program's reference function on the inputs that the measurer's worker holds for the setup's problem
/// `number`. Blocks as long as it takes: it is called on this thread, once, and a second time over another poison where
/// it left elements of an `out` unwritten. Fails where shared memory is short, and with the exception's text where the
/// function throws.
Result<Measurer::HostOutputs> compute_on_host(const HostReference& reference, std::vector<space::ArgSpec> args,
                                              const space::ProblemValues& problem, int number, Measurer& measurer);

}  // namespace jitune::tune
