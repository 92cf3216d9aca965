#pragma once

#include <string>
#include <vector>

namespace jitune::compile {

/// A header that NVRTC gets from memory.
struct MemoryHeader {
  std::string name;  ///< as in `#include <name>`
  std::string text;
};

/// Stand-ins for the C and C++ headers that kernels name but NVRTC has none of: `<cstdint>`, `<type_traits>` and so on.
/// They hand on to `<cuda/std/...>` and make its names known in `std`. A header that an include folder of the author
/// offers is left out; one whose counterpart `toolkit_dirs` lack too, but for a few that are short enough to bring
/// along. `light`: `<type_traits>` is kLightTypeTraits.
std::vector<MemoryHeader> std_headers(const std::vector<std::string>& author_dirs,
                                      const std::vector<std::string>& toolkit_dirs, bool light);

/// The traits that kernels commonly use, read by NVRTC in a fiftieth of the time that <cuda/std/type_traits> takes.
extern const char* const kLightTypeTraits;

}  // namespace jitune::compile
