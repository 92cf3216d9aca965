#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "gpu/module.hpp"
#include "jitune/kernel.hpp"
#include "jitune/tuner.hpp"
#include "key/key.hpp"
#include "runtime/striped_counter.hpp"
#include "space/instance.hpp"

namespace jitune::runtime {

/// What a plan is found by: a context and the values of a problem.
struct PlanKey {
  uint64_t context = 0;  ///< the driver's number for it, since pointers recycle
  std::array<int64_t, Problem::kMaxValues> values{};
  std::array<uint8_t, Problem::kMaxValues> kinds{};  ///< 1, true and the first word share a number
  uint8_t count = 0;
  bool heuristic = false;  ///< the default config was asked for, whatever is stored
  uint32_t config = 0;     ///< the number of the config that was given by hand; 0: none

  friend bool operator==(const PlanKey&, const PlanKey&) = default;
  uint64_t hash() const noexcept { return mix(hash_of(values, kinds, count, config), context, heuristic); }

  /// The part of the hash that a Problem keeps.
  static uint64_t hash_of(const std::array<int64_t, Problem::kMaxValues>& values,
                          const std::array<uint8_t, Problem::kMaxValues>& kinds, size_t count,
                          uint32_t config) noexcept;
  static uint64_t mix(uint64_t values_hash, uint64_t context, bool heuristic) noexcept {
    const uint64_t h = (values_hash ^ (context * 2 + (heuristic ? 1 : 0))) * 0x9E3779B97F4A7C15u;
    return h ^ (h >> 32);
  }
};

/// What a launch that found no winner leaves in the database.
struct Miss {
  key::TuningKey key;
  std::string problem;  ///< canonical JSON, exact
  std::string device;
  long long told = 0;  ///< launches that the database knows of already
};

/// All that a launch of one problem needs, in memory. Launching is safe from many threads at once.
class Plan {
 public:
  struct Making {
    PlanKey key;
    const gpu::Driver* driver = nullptr;
    std::shared_ptr<gpu::Module> module;  ///< null only where nothing is launched
    space::Geometry geometry;
    std::vector<space::ArgSpec> args;
    Choice choice;
    bool provisional = false;          ///< someone else tunes this key: look again after a while
    Track track = Track::lookup;       ///< how far it went for its config; lookup where it could not tune
    std::shared_ptr<const Miss> miss;  ///< set where no winner was found: launches are counted
  };
  explicit Plan(Making making);

  /// Whether a launch is nothing but cuLaunchKernel with the caller's own arguments.
  bool is_plain() const { return plain_; }

  /// For plain plans. Takes no lock, allocates nothing and writes nothing that other threads read.
  CUresult launch_plain(CUstream stream, std::span<const void* const> arguments) const {
    return driver_->cuLaunchKernel(function_, geometry_.grid[0], geometry_.grid[1], geometry_.grid[2],
                                   geometry_.block[0], geometry_.block[1], geometry_.block[2], geometry_.shared_bytes,
                                   stream, const_cast<void**>(arguments.data()), nullptr);
  }

  /// Enqueues prologue and kernel on `stream`, for any plan. `arguments`: as UntypedKernel::launch. A stream that is
  /// being captured gets no allocation: `needs_memory` tells why nothing was launched.
  struct Launched {
    CUresult code = CUDA_SUCCESS;
    bool needs_memory = false;
    std::string what;
  };
  Launched launch(CUstream stream, std::span<const void* const> arguments);

  const Miss* miss() const { return miss_.get(); }  ///< null where a winner serves

  /// For misses only: counts a launch; and how many the database does not know of yet, which are told then.
  void count_miss() noexcept {
    if (misses_ != nullptr) misses_->add(1);
  }
  long long take_misses();

  /// Allocates scratch memory for launches on `stream`.
  Launched reserve(CUstream stream);

  /// The streams that scratch memory was allocated for.
  std::vector<CUstream> streams() const;

  /// Copies `data` into a symbol of this plan's module.
  gpu::Trouble set_symbol(const std::string& name, const void* data, size_t bytes);

  const PlanKey& key() const { return key_; }
  const Choice& choice() const { return choice_; }

  /// Before it is in use: why this config, and whether to look again after a while.
  void explain(std::string why, bool provisional) {
    choice_.why = std::move(why);
    provisional_ = provisional;
  }

  /// Makes the next launch look again: there may be a better config now.
  void supersede() noexcept { superseded_.store(true, std::memory_order_relaxed); }

  /// Whether a launch on `track` should look for a better config than this plan's.
  bool is_stale(Track track) const noexcept {
    if (superseded_.load(std::memory_order_relaxed)) return true;
    if (provisional_ && Clock::now() >= look_again_) return true;
    if (track == Track::tune || track == Track::background)
      return track_ == Track::lookup && (miss_ != nullptr || choice_.source == Choice::Source::default_config);
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

  PlanKey key_;  // from here on in the order in which a launch reads them
  std::atomic<bool> superseded_{false};
  bool provisional_;
  bool plain_ = false;
  Track track_;
  const gpu::Driver* driver_;
  CUfunction function_;
  space::Geometry geometry_;
  std::unique_ptr<StripedCounter<8>> misses_;
  Choice choice_;
  std::shared_ptr<gpu::Module> module_;
  Clock::time_point look_again_;
  std::shared_ptr<const Miss> miss_;
  std::atomic<long long> misses_taken_;
  std::vector<Parameter> parameters_;
  std::vector<Zeroed> zeroed_;
  std::vector<TensorMap> maps_;
  std::vector<size_t> scratch_bytes_;
  mutable std::shared_mutex mutex_;                                 // of the two below; launches only read them
  std::vector<Encoded> encoded_;                                    // the latest encoding of each map
  std::unordered_map<CUstream, std::vector<CUdeviceptr>> scratch_;  // kept for good: launches may be under way
};

}  // namespace jitune::runtime
