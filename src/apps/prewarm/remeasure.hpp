#pragma once

#include <string>

#include "apps/prewarm/today.hpp"
#include "tune/services.hpp"

namespace jitune::prewarm {

struct Remeasured {
  double winner_us = 0, default_us = 0;  ///< medians of one study, interleaved where they are close; 0: it did not work
  std::string trouble;                   ///< why there are no times
};

/// Times a stored winner and the default config on this GPU, by a study of these two alone. Nothing that it finds
/// enters a database: `services` must keep its own in memory. Blocks for as long as two compilations and trials take.
Remeasured remeasure(tune::Services& services, const space::Instance& today, const store::WinnerRecord& record,
                     const space::DeviceInfo& device);

}  // namespace jitune::prewarm
