#pragma once

#include <string>

namespace jitune::compile {

/// The compile worker: says hello, then answers requests until the input ends. Returns the exit code.
/// `in` and `out` carry frames; nothing else may write to `out`. NVRTC is loaded at the first request, from the path
/// that it names; with `nvrtc_path` right after the hello, and warmed up by a tiny compile, so that the first request
/// finds it.
int serve(int in, int out, const std::string& nvrtc_path = {});

}  // namespace jitune::compile
