#include "space/device.hpp"

#include <array>
#include <string_view>

namespace jitune::space {
namespace {

constexpr int64_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;

// One card an arch. `smem_per_sm`, threads and blocks are the guide's table; the rest is the card's datasheet.
struct Nominal {
  int cc;
  const char* name;
  int sm_count, memory_gib, l2_mib, smem_per_sm_kib, threads_per_sm, blocks_per_sm, clock_mhz, memory_clock_mhz;
};

constexpr std::array<Nominal, 11> kNominal{{
    {75, "NVIDIA T4", 40, 16, 4, 64, 1024, 16, 1590, 5001},
    {80, "NVIDIA A100-SXM4-80GB", 108, 80, 40, 164, 2048, 32, 1410, 1593},
    {86, "NVIDIA GeForce RTX 3090", 82, 24, 6, 100, 1536, 16, 1695, 9751},
    {87, "NVIDIA Jetson AGX Orin 64GB", 16, 64, 4, 164, 1536, 16, 1300, 3200},
    {89, "NVIDIA GeForce RTX 4090", 128, 24, 72, 100, 1536, 24, 2520, 10501},
    {90, "NVIDIA H100 SXM", 132, 80, 50, 228, 2048, 32, 1980, 2619},
    {100, "NVIDIA B200", 148, 180, 126, 228, 2048, 32, 1965, 3996},
    {103, "NVIDIA B300", 148, 288, 126, 228, 2048, 32, 1965, 3996},
    {110, "NVIDIA Jetson AGX Thor", 20, 128, 32, 228, 1536, 24, 1575, 4266},
    {120, "NVIDIA GeForce RTX 5090", 170, 32, 96, 100, 1536, 24, 2407, 14001},
    {121, "NVIDIA GB10", 48, 128, 24, 100, 1536, 24, 2418, 4266},
}};

}  // namespace

std::optional<DeviceInfo> nominal_device(const std::string& arch) {
  for (const Nominal& card : kNominal) {
    const std::string plain = "sm_" + std::to_string(card.cc);
    if (arch != plain && !(card.cc >= 90 && arch == plain + "a")) continue;
    DeviceInfo info;
    info.name = std::string(card.name) + " (nominal)";
    info.cc_major = card.cc / 10;
    info.cc_minor = card.cc % 10;
    info.sm_count = card.sm_count;
    info.memory_bytes = card.memory_gib * kGiB;
    info.l2_bytes = card.l2_mib * kMiB;
    info.smem_per_sm_bytes = card.smem_per_sm_kib * kKiB;
    // From 8.0 on the system keeps 1 KiB of every block's shared memory.
    info.smem_reserved_bytes = card.cc >= 80 ? kKiB : 0;
    info.smem_optin_bytes = info.smem_per_sm_bytes - info.smem_reserved_bytes;
    info.regs_per_sm = 65536;
    info.max_threads_per_sm = card.threads_per_sm;
    info.max_blocks_per_sm = card.blocks_per_sm;
    info.max_clock_mhz = card.clock_mhz;
    info.max_memory_clock_mhz = card.memory_clock_mhz;
    return info;
  }
  return std::nullopt;
}

std::string nominal_archs() {
  std::string list;
  for (const Nominal& card : kNominal) {
    const std::string plain = "sm_" + std::to_string(card.cc);
    list += (list.empty() ? "" : ", ") + plain;
    if (card.cc >= 90) list += ", " + plain + "a";
  }
  return list;
}

}  // namespace jitune::space
