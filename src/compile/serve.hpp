#pragma once

namespace jitune::compile {

/// The compile worker: says hello, then answers requests until the input ends. Returns the exit code.
/// `in` and `out` carry frames; nothing else may write to `out`.
int serve(int in, int out);

}  // namespace jitune::compile
