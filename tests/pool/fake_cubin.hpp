#pragma once

#include <string>

namespace jitune::test {

/// The smallest file that jitune takes for a cubin: a CUDA ELF with one symbol. No driver would load it.
std::string fake_cubin(const std::string& symbol);

}  // namespace jitune::test
