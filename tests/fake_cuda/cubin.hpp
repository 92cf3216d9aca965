#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace fake_cuda {

/// A CUDA ELF file with nothing but names: `functions` and variables with their sizes. The stand-in loads it; a real
/// driver would not. Names of templates must be given mangled.
std::string make_cubin(const std::vector<std::string>& functions,
                       const std::vector<std::pair<std::string, size_t>>& variables = {});

/// One with the measuring worker's own kernels.
std::string utility_cubin();

}  // namespace fake_cuda
