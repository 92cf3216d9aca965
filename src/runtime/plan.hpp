#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "gpu/module.hpp"
#include "jitune/kernel.hpp"
#include "jitune/tuner.hpp"
#include "space/instance.hpp"

namespace jitune::runtime {

/// What a plan is found by: a context and the values of a problem.
struct PlanKey {
  CUcontext context = nullptr;
  std::array<int64_t, Problem::kMaxValues> values{};
  uint8_t count = 0;
  bool heuristic = false;  ///< the default config was asked for, whatever is stored

  friend bool operator==(const PlanKey&, const PlanKey&) = default;
  uint64_t hash() const noexcept;
};

/// All that a launch of one problem needs, in memory. Launching is safe from many threads at once.
class Plan {
 public:
  struct Making {
    PlanKey key;
    const gpu::Driver* driver = nullptr;
    gpu::Module module;
    space::Geometry geometry;
    std::vector<space::ArgSpec> args;
    Choice choice;
    bool provisional = false;     ///< someone else tunes this key: look again after a while
    Track track = Track::lookup;  ///< how far it went for its config; lookup where it could not tune
  };
  explicit Plan(Making making);

  /// Enqueues prologue and kernel on `stream`. `arguments`: as UntypedKernel::launch. A stream that is being captured
  /// gets no allocation: `needs_memory` tells why nothing was launched.
  struct Launched {
    CUresult code = CUDA_SUCCESS;
    bool needs_memory = false;
    std::string what;
  };
  Launched launch(CUstream stream, std::span<const void* const> arguments);

  /// Allocates scratch memory for launches on `stream`.
  Launched reserve(CUstream stream);

  /// Copies `data` into a symbol of this plan's module.
  gpu::Trouble set_symbol(const std::string& name, const void* data, size_t bytes);

  const PlanKey& key() const { return key_; }
  const Choice& choice() const { return choice_; }

  /// Whether a launch on `track` should look for a better config than this plan's.
  bool is_stale(Track track) const {
    if (provisional_ && Clock::now() >= look_again_) return true;
    if (track == Track::tune) return track_ == Track::lookup && choice_.source == Choice::Source::default_config;
    return track == Track::retune && track_ != Track::retune;
  }

 private:
  /// Where a kernel parameter's value comes from.
  struct Parameter {
    enum class From : uint8_t { caller, scratch, tensor_map };
    From from = From::caller;
    size_t index = 0;  // of the caller's argument, the scratch buffer or the tensor map
  };
  struct Zeroed {
    size_t caller = 0;
    size_t bytes = 0;
  };
  struct TensorMap {
    space::ArgSpec arg;
    Type element = Type::half;
    size_t caller = 0;  // the buffer it describes
  };
  struct Encoded {
    CUdeviceptr base = 0;
    alignas(64) CUtensorMap map{};
  };
  Launched launch_any(CUstream stream, std::span<const void* const> arguments, void** params);
  bool encode(size_t index, CUdeviceptr base, CUtensorMap& map, Launched& launched);
  Launched scratch_for(CUstream stream, bool may_allocate, const std::vector<CUdeviceptr>*& buffers);

  PlanKey key_;
  const gpu::Driver* driver_;
  gpu::Module module_;
  space::Geometry geometry_;
  Choice choice_;
  bool provisional_;
  Track track_;
  Clock::time_point look_again_;
  std::vector<Parameter> parameters_;
  std::vector<Zeroed> zeroed_;
  std::vector<TensorMap> maps_;
  std::vector<size_t> scratch_bytes_;
  std::mutex mutex_;                                                // of the two below
  std::vector<Encoded> encoded_;                                    // the latest encoding of each map
  std::unordered_map<CUstream, std::vector<CUdeviceptr>> scratch_;  // kept for good: launches may be under way
};

}  // namespace jitune::runtime
