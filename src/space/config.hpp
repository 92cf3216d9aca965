#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "jitune/value.hpp"

namespace jitune::space {

/// One value for every param, by name.
using Config = std::map<std::string, Value>;

/// One value for every problem value, by name.
using ProblemValues = std::map<std::string, Value>;

/// Canonical JSON: {"BLOCK":128,"T":"half"}. Equal values give equal text.
std::string canonical(const std::map<std::string, Value>& values);

/// Reads canonical JSON back. Anything but an object of integers, bools and strings is a failure that says what it is.
Result<std::map<std::string, Value>> parse_values(std::string_view json);

/// `BLOCK=128 VEC=4`: for tables and messages.
std::string short_text(const std::map<std::string, Value>& values);

}  // namespace jitune::space
