#pragma once

#include "gpu/clock_memo.hpp"
#include "store/store.hpp"

namespace jitune::tune {

/// GPUs' clocks in the database, in the table of toolchains: what is known of a thing that is slow to ask, by what
/// tells whether it is still the same. A GPU is a row whose path is its UUID, whose device is the driver's version and
/// whose version and build are the clocks.
class StoreClockMemo final : public gpu::ClockMemo {
 public:
  explicit StoreClockMemo(store::Store& store) : store_(store) {}
  bool recall(const std::string& uuid, int driver_version, gpu::Clocks& clocks) override;
  void remember(const std::string& uuid, int driver_version, const gpu::Clocks& clocks) override;

 private:
  store::Store& store_;
};

}  // namespace jitune::tune
