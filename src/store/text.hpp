#pragma once

#include <string>
#include <string_view>

namespace jitune::store {

bool is_utf8(std::string_view text);

/// `text` for a TEXT column: what is not UTF-8, and NUL, becomes U+FFFD. SQLite stores such bytes, and its readers
/// fail.
std::string clean_text(std::string_view text);

}  // namespace jitune::store
