#pragma once

#include <optional>
#include <string>

#include "compile/nvrtc.hpp"

namespace jitune::test {

/// The NVRTC of this machine; nothing (and the test case is skipped) when there is none.
std::optional<compile::NvrtcFile> find_nvrtc_or_skip();

/// A request for a plain source whose kernel is `entry`.
compile::Request request_for(const compile::NvrtcFile& nvrtc, const std::string& source, const std::string& entry);

}  // namespace jitune::test
