#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "space/instance.hpp"

namespace jitune::test {

/// One argument with its contents on the host. Inputs are filled as the definition says; scalars and outputs have no
/// values.
struct HostArg {
  space::ArgSpec spec;
  std::vector<uint8_t> bytes;
  std::vector<float> values;  ///< what `bytes` mean
};

/// Element `index` of `bytes`, for half, bfloat16 and float. Throws std::runtime_error for other types.
double element(Type type, const std::vector<uint8_t>& bytes, size_t index);

/// The args of a config with inputs filled. Equal for every config of an instance but for tensor maps. Throws
/// std::runtime_error for a fill that the bundled kernels don't use.
std::vector<HostArg> make_host_args(const std::vector<space::ArgSpec>& specs);

/// What one output must be, element by element in some places of it, within |a - b| <= atol + rtol * |b|.
struct Expected {
  struct Span {
    size_t first = 0;
    std::vector<double> values;
  };
  size_t arg = 0;
  double rtol = 0, atol = 0;  ///< both zero: every bit
  std::vector<Span> spans;
};

/// The outputs of `kernel`, computed here in float64. Where a problem is big, only some of their elements, the last
/// among them. Throws std::runtime_error when there is no reference for the kernel.
std::vector<Expected> reference(const std::string& kernel, const space::ProblemValues& problem,
                                const std::vector<HostArg>& args);

}  // namespace jitune::test
