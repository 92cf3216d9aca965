#pragma once

#include "space/instance.hpp"

namespace jitune::space {

/// How many blocks of a launch an SM holds at once, by registers, shared memory, threads and blocks; 0 when the
/// device's limits are not known or not even one fits. Without `facts.regs` (0: not compiled yet) registers do not
/// count. Allocation units (a warp's registers by 256 and warps by four, shared memory by 128 bytes) are those of
/// compute capability 7.0 and later. Source: NVIDIA's CUDA occupancy calculator.
int blocks_per_sm(const DeviceInfo& device, const Geometry& geometry, const KernelFacts& facts);

/// The share of an SM's threads that such blocks fill; 0 where blocks_per_sm is.
double occupancy(const DeviceInfo& device, const Geometry& geometry, const KernelFacts& facts);

}  // namespace jitune::space
