#include "base/random.hpp"

#include <cmath>

namespace jitune {

uint64_t mix_bits(uint64_t bits) {
  bits += 0x9E3779B97F4A7C15U;
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9U;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBU;
  return bits ^ (bits >> 31);
}

size_t Random::below(size_t bound) {
  return static_cast<size_t>((static_cast<unsigned __int128>(bits()) * bound) >> 64);
}

double Random::normal() {
  constexpr double kTwoPi = 6.283185307179586;
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(kTwoPi * uniform());
}

Permutation::Permutation(Wide size, uint64_t seed) : size_(size), seed_(mix_bits(seed)), half_bits_(1) {
  while (half_bits_ < 64 && (Wide{1} << (2 * half_bits_)) < size) ++half_bits_;
}

/// A Feistel network over the next even power of two, walked until it lands inside.
Permutation::Wide Permutation::operator()(Wide position) const {
  constexpr uint64_t kRounds = 6;
  const uint64_t mask = half_bits_ == 64 ? ~uint64_t{0} : (uint64_t{1} << half_bits_) - 1;
  do {
    uint64_t left = static_cast<uint64_t>(position >> half_bits_) & mask;
    uint64_t right = static_cast<uint64_t>(position) & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const uint64_t next = left ^ (mix_bits(right ^ mix_bits(seed_ + round)) & mask);
      left = right;
      right = next;
    }
    position = (Wide{left} << half_bits_) | right;
  } while (position >= size_);
  return position;
}

}  // namespace jitune
