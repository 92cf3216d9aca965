#pragma once

#include <string>

#include "space/instance.hpp"

namespace jitune::compile {

/// The text that NVRTC gets: headers of type words, then the author's source with the defines placed after its leading
/// block of comments, #include lines and preprocessor conditionals around them (or before everything where the
/// definition asks for it). #line directives keep the author's line numbers in messages.
std::string specialise(const space::BuildSpec& spec);

/// The same text in two parts: up to the end of the include block, which is equal for all configs of a kernel unless
/// its type words need other headers, and what comes after. `head` is empty when nothing is included there, and has no
/// #line, before which NVRTC makes no precompiled header: lines are right again from `rest` on.
struct SourceParts {
  std::string head, rest;
};
SourceParts split_source(const space::BuildSpec& spec);

}  // namespace jitune::compile
