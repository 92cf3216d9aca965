#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace jitune::space {

/// A point of a space, valid or not: for each param, sorted by name, the index of its value.
using Point = std::vector<uint16_t>;

struct PointHash {
  size_t operator()(const Point& point) const noexcept {
    uint64_t hash = 0x9E3779B97F4A7C15U;
    for (const uint16_t index : point) hash = (hash ^ index) * 0xFF51AFD7ED558CCDU + (hash >> 29);
    return static_cast<size_t>(hash ^ (hash >> 32));
  }
};

}  // namespace jitune::space
