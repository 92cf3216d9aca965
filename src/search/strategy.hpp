#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "space/space.hpp"

namespace jitune::search {

/// What became of a config.
struct Told {
  bool ok = false;     ///< it ran and was right; time_us holds
  double time_us = 0;  ///< median; an upper-bounded estimate for early-stopped ones
};

/// Chooses which configs to try. Pure: no clock, no CUDA; equal seeds and equal answers give equal questions.
/// Not thread-safe: one study owns one strategy.
class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual std::string name() const = 0;

  /// At most `count` configs that were not proposed before and are not in the `known` ones it was made with. Fewer, and
  /// in the end none, when the space is used up.
  virtual std::vector<space::Config> ask(size_t count) = 0;
  virtual void tell(const space::Config& config, const Told& told) = 0;

  /// How many configs it can propose at most; 0 when not known.
  virtual uint64_t total() const = 0;
};

/// Spaces of up to `exhaustive_limit` valid configs are tried whole, in an order shuffled by `seed`; larger ones by
/// random draws without repeats. Configs in `known` are never proposed.
std::unique_ptr<Strategy> make_strategy(const space::Space& space, uint64_t seed,
                                        const std::vector<space::Config>& known, size_t exhaustive_limit = 20'000);

}  // namespace jitune::search
