#pragma once

#include <cstdint>
#include <vector>

#include "base/result.hpp"
#include "jitune/value.hpp"

namespace jitune::space {

/// `value` as the kernel's `type` has it in memory, little-endian. Fails when an integer type can't hold it, and for
/// fp8.
Result<std::vector<uint8_t>> scalar_bytes(Type type, int64_t value);

/// The same for a floating type; rounded once, to nearest, ties to even. Fails for other types.
Result<std::vector<uint8_t>> scalar_bytes(Type type, double value);

}  // namespace jitune::space
