#pragma once

#include <string>

#include "base/json.hpp"

namespace jitune::measure {

class Session;

/// The answer to one request: what serve() does between frames.
Json answer(Session& session, const Json& request);

/// The measuring worker: says hello, then answers requests with a CUDA context of its own until the input ends or the
/// context is lost. Returns the exit code: 0, or 70 after a lost context. `in` and `out` carry frames. The context of
/// the GPU `device_uuid` is made before the first request comes; of none named, where there is but one GPU.
int serve(int in, int out, const std::string& device_uuid = {});

}  // namespace jitune::measure
