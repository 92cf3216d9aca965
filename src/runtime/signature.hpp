#pragma once

#include <span>
#include <string>
#include <vector>

#include "jitune/kernel.hpp"

namespace jitune::runtime {

/// The args that a caller passes, in order: buffers (also those with pass = false) and scalars.
std::vector<const Arg*> caller_args(const std::vector<Arg>& args);

/// Checks a C++ signature against a definition's args. Throws Error{bad_definition} naming the first that differs:
/// number, pointer against value, const for outputs, size of elements and scalars where the definition fixes the type.
void check_signature(const std::string& kernel, const std::vector<Arg>& args, std::span<const ArgumentType> signature);

}  // namespace jitune::runtime
