#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "gpu/driver.hpp"
#include "measure/protocol.hpp"

namespace jitune::test {

/// A GPU, its driver with the primary context current, and an NVRTC; or not, and then the test was reported as skipped.
struct Bench {
  const gpu::Driver* driver = nullptr;
  space::DeviceInfo device;
  std::string toolkit_dir = {};  ///< of the NVRTC library
  explicit operator bool() const { return driver != nullptr; }
};
Bench bench();

/// A kernel compiled for the bench's GPU; a REQUIRE fails when it does not compile. Remembers what it compiled.
struct Compiled {
  std::string cubin, lowered_name;
};
Compiled compile(const Bench& bench, const std::string& source, const std::string& entry);

/// The measuring worker as a process of its own: this very program, started again.
class GpuWorker {
 public:
  GpuWorker();
  ~GpuWorker();

  measure::SetupReply setup(const measure::Setup& setup);
  measure::TrialReply trial(const measure::Candidate& candidate,
                            double bound_us = std::numeric_limits<double>::infinity(), bool reference = false);
  measure::RematchReply rematch(std::vector<measure::Candidate> candidates);
  void send(const Json& request);
  Json receive();

  /// Waits for its end; the exit code, or 128 + the signal. `kill_first`: with SIGKILL.
  int finish(bool kill_first = false);

 private:
  pid_t pid_ = -1;
  int to_ = -1, from_ = -1;
  int64_t id_ = 0;
};

}  // namespace jitune::test
