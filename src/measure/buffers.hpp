#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "measure/device_memory.hpp"
#include "measure/protocol.hpp"
#include "measure/utility.hpp"

namespace jitune::measure {

/// What guard zones hold.
inline constexpr uint32_t kGuardPattern = 0xC35AA53Cu;
inline constexpr int64_t kGuardBytes = 4096;

/// A poison for outputs: NaN in every floating type, and another one for each run.
uint32_t poison_word(uint64_t run);

/// A poison that is a small finite number in every floating type: what a kernel adds to it does not vanish in a NaN.
inline constexpr uint32_t kFinitePoison = 0x3C013C02u;

/// One buffer or symbol of the study.
struct Buffer {
  CUdeviceptr data = 0;       ///< what candidates see
  CUdeviceptr pristine = 0;   ///< inout: the contents to restore
  CUdeviceptr reference = 0;  ///< out, inout, zeroed: the reference's output
  bool is_output() const { return reference != 0; }
};

/// The study's own memory on the GPU: every buffer between guard zones, pristine copies, room for the reference.
/// Enqueues on one stream; nothing waits but build().
class Buffers {
 public:
  Buffers(const gpu::Driver& driver, const Utility& utility, CUstream stream)
      : driver_(driver), utility_(utility), stream_(stream) {}

  /// GPU memory that build() will take for these args, guards and copies included.
  static int64_t planned_bytes(const std::vector<space::ArgSpec>& args);

  /// Allocates and fills. Waits until the data is there and every mapping of the caller's is closed.
  gpu::Trouble build(const Setup& setup);

  /// Makes room for the scratch buffers of a candidate's args, whose sizes are its own. Trouble too when its other
  /// buffers are not the study's.
  gpu::Trouble fit_scratch(const std::vector<space::ArgSpec>& args);

  /// Makes `count` more sets of all buffers but scratch, which stays shared: copies of the checked set as it is after
  /// restore(). Replaces what an earlier call made.
  gpu::Trouble make_copies(int count);
  int copies() const { return copies_made_; }
  int64_t bytes_of_copy() const { return arena_.bytes(); }

  /// The set that is checked, as opposed to copy 0, 1, ...
  static constexpr int kChecked = -1;
  CUdeviceptr address(size_t arg, int copy) const;

  /// Puts the inout and zeroed buffers of all copies back.
  gpu::Trouble restore_copies() const;

  /// Puts inout buffers back to their first contents and zeroed ones to zero.
  gpu::Trouble restore() const;
  bool needs_restore() const { return needs_restore_; }

  /// Overwrites outputs that are neither inout nor zeroed, and scratch.
  gpu::Trouble poison(uint32_t word) const;

  const std::vector<space::ArgSpec>& args() const { return args_; }
  const Buffer& operator[](size_t arg) const { return buffers_[arg]; }
  int64_t bytes() const { return arena_.bytes() + copies_.bytes(); }

  /// The guards as the GPU sees them, and what damage to the one with this index means.
  CUdeviceptr guard_table() const { return guard_table_.address(); }
  int guard_count() const { return static_cast<int>(guards_.size()); }
  std::string guard_text(size_t index) const;

  /// Writes the pattern into every guard again.
  gpu::Trouble heal_guards() const;

 private:
  struct Guard {
    size_t arg = 0;
    bool after = false;
    CUdeviceptr address = 0;
    int64_t bytes = 0;
  };

  gpu::Trouble load_data(size_t arg, const Setup& setup);
  void place(size_t arg, int64_t bytes, CUdeviceptr base, int64_t& offset);
  gpu::Trouble upload_guards();
  gpu::Trouble restore_set(int copy) const;

  const gpu::Driver& driver_;
  const Utility& utility_;
  CUstream stream_;
  std::vector<space::ArgSpec> args_;
  std::vector<Buffer> buffers_;
  std::vector<Guard> guards_;
  size_t fixed_guards_ = 0;  // the rest belongs to scratch
  DeviceMemory arena_, copies_, scratch_, guard_table_, further_;
  int copies_made_ = 0;
  bool needs_restore_ = false;
};

}  // namespace jitune::measure
