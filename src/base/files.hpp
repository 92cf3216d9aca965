#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"

namespace jitune {

/// Reads a whole regular file as bytes. The failure names the path and the system's reason.
Result<std::string> read_file(const std::string& path);

/// Writes `bytes` to a new file beside `path` and renames it over `path`: readers see the old file or the new one.
Result<void> write_file_atomically(const std::string& path, std::string_view bytes);

/// The path of the file (library or program) that holds jitune's own code, or "" when the system does not tell.
std::string own_module_path();

}  // namespace jitune
