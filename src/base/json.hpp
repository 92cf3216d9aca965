#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace jitune {

/// JSON as jitune stores and sends it. Objects keep their names sorted, so `canonical` needs no further work.
using Json = nlohmann::json;

/// Canonical text: sorted names, no spaces, integers as integers; bytes that are not UTF-8 become U+FFFD.
inline std::string canonical(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace jitune
