#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstddef>
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
  uint32_t kinds = 0;  ///< two bits a value: 1, true and the first word share a number
  uint8_t count = 0;
  bool heuristic = false;  ///< the default config was asked for, whatever is stored
  uint32_t config = 0;     ///< the number of the config that was given by hand; 0: none

  friend bool operator==(const PlanKey&, const PlanKey&) = default;
  /// The hash that a Problem keeps: of all but context and track. It says where a plan lies, so that a processor can
  /// look there while the driver is still asked for the context.
  uint64_t hash() const noexcept { return hash_of(values, kinds, count, config); }
  static uint64_t hash_of(const std::array<int64_t, Problem::kMaxValues>& values, uint32_t kinds, size_t count,
                          uint32_t config) noexcept;
  /// What tells plans of one hash apart without looking into them.
  uint64_t tag() const noexcept { return tag_of(hash(), context, heuristic); }
  static uint64_t tag_of(uint64_t hash, uint64_t context, bool heuristic) noexcept {
    return hash + (context * 2 + (heuristic ? 1 : 0)) * 0x9E3779B97F4A7C15u;
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
///
/// A launch reads its first 64 bytes and the line beside them: with a thousand problems in use it is cache lines that
/// cost time, not instructions.
class alignas(128) Plan {
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
    PackedCounter counter;             ///< where, if it is
  };
  explicit Plan(Making making);

  /// Whether a launch is nothing but cuLaunchKernel with the caller's own arguments.
  bool is_plain() const { return hot_.plain; }

  /// For plain plans. Takes no lock, allocates nothing and writes nothing.
  CUresult launch_plain(const gpu::Driver& driver, CUstream stream, std::span<const void* const> arguments) const {
    return driver.cuLaunchKernel(hot_.function, hot_.grid[0], hot_.grid[1], hot_.grid[2], hot_.block[0], hot_.block[1],
                                 hot_.block[2], hot_.shared_bytes, stream, const_cast<void**>(arguments.data()),
                                 nullptr);
  }

  /// Whether it is the plan of this problem in this context. `kinds` to `values`: as in PlanKey.
  bool fits(uint64_t context, bool heuristic, uint32_t kinds, uint32_t config, size_t count,
            const int64_t* values) const noexcept {
    if (hot_.context != context || hot_.heuristic != heuristic || hot_.kinds != kinds || hot_.config != config)
      return false;
    // What no Problem of a kernel sets is zero in both. A call of memcmp would cost more than the few values do.
    for (size_t i = 0; i < count; ++i)
      if (hot_.values[i] != values[i]) return false;
    return true;
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
    if (hot_.misses) hot_.misses.add(1);
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
    hot_.fresh_for.store(fresh_for(), std::memory_order_relaxed);
  }

  /// Makes the next launch look again: there may be a better config now.
  void supersede() noexcept {
    superseded_.store(true, std::memory_order_relaxed);
    hot_.fresh_for.store(0, std::memory_order_relaxed);
  }

  /// Whether a launch on `track` should look for a better config than this plan's.
  bool is_stale(Track track) const noexcept {
    if ((hot_.fresh_for.load(std::memory_order_relaxed) >> static_cast<unsigned>(track) & 1) != 0) [[likely]]
      return false;
    return is_stale_now(track);
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
  /// What the launch of a plain plan reads, in 64 bytes and the values behind them.
  struct Hot {
    uint64_t context = 0;
    CUfunction function = nullptr;
    PackedCounter misses;
    uint32_t kinds = 0, config = 0;
    std::array<uint32_t, 3> grid{1, 1, 1}, block{1, 1, 1};
    uint32_t shared_bytes = 0;
    bool heuristic = false;
    bool plain = false;
    std::atomic<uint8_t> fresh_for{0};  // a bit for each track whose launches need not look for a better config
    std::array<int64_t, Problem::kMaxValues> values{};
  };
  static_assert(offsetof(Hot, values) == 64);
  uint8_t fresh_for() const noexcept;
  [[gnu::noinline]] bool is_stale_now(Track track) const noexcept;
  Launched launch_any(CUstream stream, std::span<const void* const> arguments, void** params);
  bool encode(size_t index, CUdeviceptr base, CUtensorMap& map, Launched& launched);
  Launched scratch_for(CUstream stream, bool may_allocate, const std::vector<CUdeviceptr>*& buffers);

  Hot hot_;
  PlanKey key_;
  std::atomic<bool> superseded_{false};
  bool provisional_;
  Track track_;
  const gpu::Driver* driver_;
  CUfunction function_;
  space::Geometry geometry_;
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
