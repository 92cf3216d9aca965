#pragma once

#include <cstdint>
#include <string>

namespace jitune::store {

/// A process as others of its machine can find it again.
struct ProcessId {
  std::string host;
  std::string boot_id;        ///< /proc/sys/kernel/random/boot_id
  int64_t pid_namespace = 0;  ///< inode of /proc/self/ns/pid
  int64_t pid = 0;
  int64_t start = 0;  ///< field 22 of /proc/PID/stat: ticks since boot
};

/// The calling process. Reads /proc anew, so that it is right after a fork.
ProcessId this_process();

enum class Liveness : uint8_t {
  alive,
  dead,     ///< gone, a zombie, or its pid belongs to another process now
  unknown,  ///< of another host, boot or pid namespace
};
/// Looks `process` up from `here`.
Liveness liveness(const ProcessId& process, const ProcessId& here);

/// 128 random bits in hex.
std::string random_token();

}  // namespace jitune::store
