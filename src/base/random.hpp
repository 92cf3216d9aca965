#pragma once

#include <cstddef>
#include <cstdint>

namespace jitune {

/// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014) over a stepped input.
uint64_t mix_bits(uint64_t bits);

/// A counter-based generator: the n-th number depends on the seed and n alone, the same on every machine. Not
/// thread-safe; two with different seeds are independent of each other.
class Random {
 public:
  explicit Random(uint64_t seed, uint64_t counter = 0) : seed_(mix_bits(seed)), counter_(counter) {}

  uint64_t bits() { return mix_bits(seed_ + counter_++ * 0xD1342543DE82EF95U); }
  /// 0 to bound - 1; `bound` is at least 1.
  size_t below(size_t bound);
  /// 0 <= number < 1.
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  bool chance(double probability) { return uniform() < probability; }
  /// Mean 0, standard deviation 1.
  double normal();

 private:
  uint64_t seed_, counter_;
};

/// A permutation of 0 .. size - 1 that needs no memory: position -> element, decided by the seed.
class Permutation {
 public:
  using Wide = unsigned __int128;
  Permutation(Wide size, uint64_t seed);
  Wide size() const { return size_; }
  Wide operator()(Wide position) const;

 private:
  Wide size_;
  uint64_t seed_;
  int half_bits_;
};

}  // namespace jitune
