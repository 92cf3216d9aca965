#include "space/occupancy.hpp"

#include <algorithm>

namespace jitune::space {
namespace {

constexpr int64_t kRegisterUnit = 256, kWarpUnit = 4, kSharedUnit = 128;

constexpr int64_t round_up(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

int64_t warps_of(const DeviceInfo& device, const Geometry& geometry) {
  const int64_t warp = std::max(1, device.warp_size);
  return (static_cast<int64_t>(geometry.threads()) + warp - 1) / warp;
}

}  // namespace

int blocks_per_sm(const DeviceInfo& device, const Geometry& geometry, const KernelFacts& facts) {
  const int64_t warps = warps_of(device, geometry), warp = std::max(1, device.warp_size);
  if (warps == 0 || device.max_threads_per_sm <= 0) return 0;
  int64_t blocks = device.max_threads_per_sm / (warps * warp);
  if (device.max_blocks_per_sm > 0) blocks = std::min<int64_t>(blocks, device.max_blocks_per_sm);
  if (facts.regs > 0 && device.regs_per_sm > 0) {
    const int64_t of_warp = round_up(facts.regs * warp, kRegisterUnit);
    const int64_t held = device.regs_per_sm / kWarpUnit / of_warp * kWarpUnit;  // each quarter of an SM has its own
    blocks = std::min(blocks, held / warps);
  }
  const int64_t shared = geometry.shared_bytes + facts.static_smem_bytes;
  if (shared > 0 && device.smem_per_sm_bytes > 0)
    blocks = std::min(blocks, device.smem_per_sm_bytes / round_up(shared + device.smem_reserved_bytes, kSharedUnit));
  return static_cast<int>(blocks);
}

double occupancy(const DeviceInfo& device, const Geometry& geometry, const KernelFacts& facts) {
  const int blocks = blocks_per_sm(device, geometry, facts);
  if (blocks == 0) return 0;
  const int64_t threads = blocks * warps_of(device, geometry) * std::max(1, device.warp_size);
  return std::min(1.0, static_cast<double>(threads) / device.max_threads_per_sm);
}

}  // namespace jitune::space
