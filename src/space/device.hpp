#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace jitune::space {

/// What a definition may ask of a device (`device.sm_count` and so on) and what a key says of it.
/// Plain data: filled from the driver by gpu, or from published figures by nominal_device.
struct DeviceInfo {
  std::string name;  ///< provenance, never part of a key
  std::string uuid;  ///< GPU-xxxxxxxx-...; provenance and the device lock
  int cc_major = 0;
  int cc_minor = 0;
  int sm_count = 0;
  int64_t memory_bytes = 0;
  int64_t l2_bytes = 0;
  int64_t smem_optin_bytes = 0;  ///< most dynamic + static shared memory of one block
  int64_t smem_per_sm_bytes = 0;
  int64_t smem_reserved_bytes = 0;  ///< taken by the system in every block
  int regs_per_sm = 0;
  int max_threads_per_block = 1024;
  int max_threads_per_sm = 0;
  int max_blocks_per_sm = 0;
  int warp_size = 32;
  int max_clock_mhz = 0;
  int max_memory_clock_mhz = 0;
  bool cooperative = true;
  std::string driver;  ///< 13.0; provenance

  int cc() const { return cc_major * 10 + cc_minor; }
  std::string arch() const { return "sm_" + std::to_string(cc()); }
};

/// A stand-in for a device that is not here: NVIDIA's published figures of a well-known card for `arch` (`sm_90`,
/// `sm_90a`: the H100 and H200 SXM). For compiling ahead; nothing is measured with it. Nothing when `arch` is unknown.
/// Source: CUDA C++ Programming Guide, table of compute capabilities, and the cards' datasheets.
std::optional<DeviceInfo> nominal_device(const std::string& arch);

/// The archs that nominal_device knows, `sm_75, sm_80, ...`, for error messages.
std::string nominal_archs();

}  // namespace jitune::space
