#pragma once

namespace jitune::measure {

/// The measuring worker: says hello, then answers requests with a CUDA context of its own until the input ends or the
/// context is lost. Returns the exit code: 0, or 70 after a lost context. `in` and `out` carry frames.
int serve(int in, int out);

}  // namespace jitune::measure
