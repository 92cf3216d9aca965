#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "space/model.hpp"

namespace jitune::space {

/// A definition as JSON text, with everything that the C++ aggregates hold.
std::string definition_text(const KernelDefinition& definition);

/// Reads it back. Unknown names are passed over, missing ones keep their defaults; anything else is a failure that
/// names the place. The result is not validated: Model::make does that.
Result<KernelDefinition> parse_definition(std::string_view text);

/// The model's definition as others can use it without the files it came from: source texts in it, include directories
/// absolute. Headers are still read from those directories.
KernelDefinition self_contained(const Model& model);

}  // namespace jitune::space
