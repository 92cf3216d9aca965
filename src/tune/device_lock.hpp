#pragma once

#include <functional>
#include <string>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "base/result.hpp"

namespace jitune::tune {

/// Whether some process measures on this GPU right now. Takes nothing and waits for nobody.
bool is_device_locked(const std::string& uuid);

/// The lock's file.
std::string device_lock_path(const std::string& uuid);

/// Takes the right to measure on one GPU of this machine: an flock on a file in /tmp named by the device's UUID
/// (not in $TMPDIR: all processes of the machine must meet in one place). Waits until `deadline`, polling every 20 ms;
/// the failure names the file and says that another process measures. Let go by closing the descriptor, which the death
/// of the process does too. `cancelled`, where given, ends the wait when it becomes true.
Result<UniqueFd> lock_device(const std::string& uuid, Clock::time_point deadline,
                             const std::function<bool()>& cancelled = {});

}  // namespace jitune::tune
