#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace jitune::tune {

/// What an artifact and its launch say of how fast a config can be.
struct Promise {
  double occupancy = 0;     ///< share of an SM's threads; 0: not known
  int64_t spill_bytes = 0;  ///< stores and loads of spilled registers
};

/// Which compiled configs need not be run: those that spill registers, or fill less than a quarter of an SM, where that
/// is a sign of slowness for this kernel. For many it is none: a gemm on tensor cores is fastest with one block of few
/// warps on an SM. So a config is in doubt only where it is worse in this than the default config and than all that
/// came within 10 % of the best; and it is skipped only where at least twelve others in doubt for the same, and no
/// worse, have run and all took 30 % longer than the best. Of those that would be skipped every eighth runs all the
/// same.
class Doubts {
 public:
  /// The default config: never skipped, and what it has is never a doubt.
  void set_default(const Promise& promise);
  /// A config has run; `us`: its time, as far as it was seen.
  void note(const Promise& promise, double us);
  /// A sentence why a config is not to be run, or "". Counts those that it is asked for.
  std::string why_skip(const Promise& promise);
  /// Whether it would still be in doubt; asked of a skipped one when more is known.
  bool doubted(const Promise& promise) const;

 private:
  struct Seen {
    Promise promise;
    double us = 0;
  };
  struct Limits {
    double occupancy = 0;
    int64_t spill_bytes = 0;
  };
  Limits limits() const;

  bool has_default_ = false;
  Promise default_;
  std::vector<Seen> seen_;
  double best_us_ = 0;
  int asked_ = 0;  // of those that it had cause to skip
};

}  // namespace jitune::tune
