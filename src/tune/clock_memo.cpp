#include "tune/clock_memo.hpp"

#include <cstdlib>

namespace jitune::tune {

bool StoreClockMemo::recall(const std::string& uuid, int driver_version, gpu::Clocks& clocks) {
  const auto known = store_.find_toolchain({uuid, driver_version, 0, 0, 0, "", ""});
  if (!known) return false;
  clocks = {std::atoi(known->version.c_str()), std::atoi(known->build.c_str())};
  return clocks.mhz > 0 && clocks.memory_mhz > 0;
}

void StoreClockMemo::remember(const std::string& uuid, int driver_version, const gpu::Clocks& clocks) {
  if (clocks.mhz <= 0 || clocks.memory_mhz <= 0) return;
  store_.put_toolchain({uuid, driver_version, 0, 0, 0, std::to_string(clocks.mhz), std::to_string(clocks.memory_mhz)});
}

}  // namespace jitune::tune
