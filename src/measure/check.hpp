#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "measure/timing.hpp"

namespace jitune::measure {

/// What a check run found.
struct Finding {
  TrialStatus status = TrialStatus::ok;
  std::string error;
  int group = 0;              ///< as in TrialReply
  bool data_spoiled = false;  ///< inputs or our copies were overwritten: nothing measured on them counts any more
};

/// Runs candidates over poisoned outputs and compares what they leave with the reference, on the GPU.
class Checker {
 public:
  Checker(const gpu::Driver& driver, const Utility& utility, Buffers& buffers, Timer& timer, CUstream stream)
      : driver_(driver), utility_(utility), buffers_(buffers), timer_(timer), stream_(stream) {}

  /// Allocates the results and remembers the inputs' checksums.
  gpu::Trouble prepare();

  /// Runs once over fresh poison; `first_us` is that launch's duration. Guards and inputs are looked at, and the
  /// outputs where a reference is there.
  gpu::Trouble run(Loaded& loaded, double& first_us, Finding& finding);

  /// Runs twice, over a poison of NaN and one of finite numbers (a kernel that adds to its output would make NaN of the
  /// first in any case, and NaN equals NaN), and keeps the outputs as the reference. Elements that keep both poisons
  /// were never written and are not compared later. Two runs that disagree otherwise are wrong_result: nothing could be
  /// checked against such a reference.
  gpu::Trouble make_reference(Loaded& loaded, double& first_us, Finding& finding);

  /// What was copied to the buffers' references counts as the reference from now on, all of its elements. Waits.
  gpu::Trouble use_reference();

  /// Marks elements of outputs that hold `first_poison` in the reference and `second_poison` in the checked buffers:
  /// nobody wrote them, and they are not compared. Waits.
  gpu::Trouble mask_unwritten(uint32_t first_poison, uint32_t second_poison);

  /// After a wrong result: which of the earlier wrong results it equals, by the outputs' tolerances. A new one is kept
  /// while there are few and memory allows. Waits.
  gpu::Trouble sort(int& group);

  /// Looks at guards and inputs again, after timed runs.
  gpu::Trouble look_again(Finding& finding);

 private:
  gpu::Trouble launch_over_poison(Loaded& loaded, uint32_t poison, double& us);
  gpu::Trouble inspect(bool outputs, Finding& finding);
  gpu::Trouble equals(const std::vector<DeviceMemory>& outputs, bool& equal);
  gpu::Trouble judge(const std::vector<uint64_t>& results, bool outputs, Finding& finding);
  gpu::Trouble describe(size_t arg, const Comparison& comparison, Finding& finding);

  const gpu::Driver& driver_;
  const Utility& utility_;
  Buffers& buffers_;
  Timer& timer_;
  CUstream stream_;
  DeviceMemory results_;
  std::vector<DeviceMemory> skips_;  // by arg; empty where every element was written
  struct Checksums {
    std::optional<uint64_t> input, pristine, reference;
  };
  std::vector<Checksums> checksums_;              // by arg; taken at the first look
  std::vector<std::vector<DeviceMemory>> wrong_;  // by group, by arg: outputs that were not the reference's
  uint64_t runs_ = 0;
  uint32_t poison_ = 0;  // of the last run
  bool has_reference_ = false;
};

}  // namespace jitune::measure
