#pragma once

#include <string>

namespace jitune::gpu {

/// Whether nothing runs on the GPU with this UUID, as the driver's management library (libnvidia-ml.so.1, which comes
/// with the driver and is loaded when first asked for) tells: no process has a context there, and its load was 0 %
/// lately. False where that can't be known, in containers without the library for instance. Safe from any thread;
/// blocks for some milliseconds, the first time more.
bool is_idle(const std::string& uuid);

}  // namespace jitune::gpu
