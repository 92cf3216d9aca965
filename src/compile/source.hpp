#pragma once

#include <string>

#include "space/instance.hpp"

namespace jitune::compile {

/// The text that NVRTC gets: headers of type words, then the author's source with the defines placed after its leading
/// block of comments, #include lines and preprocessor conditionals around them (or before everything where the
/// definition asks for it). #line directives keep the author's line numbers in messages.
std::string specialise(const space::BuildSpec& spec);

}  // namespace jitune::compile
