#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace jitune::space {

/// Whether `name` matches [A-Za-z_][A-Za-z0-9_]*.
bool is_identifier(std::string_view name);

/// Why `name` can't be the name of a param, derived or problem value ("" when it can): C++ keywords, type words, and
/// the words of the expression language.
std::string why_reserved(std::string_view name);

/// Why `name` can't be a macro in kernel source ("" when it can). `before_includes` is stricter: such a macro changes
/// what the headers mean.
std::string why_not_macro(std::string_view name, bool before_includes);

/// The entry of `known` that `name` was probably meant to be, or "".
std::string nearest(std::string_view name, const std::vector<std::string>& known);

/// ` (did you mean 'x'?)` or "".
std::string did_you_mean(std::string_view name, const std::vector<std::string>& known);

/// `a, b, c`.
std::string join(const std::vector<std::string>& words, const char* between = ", ");

}  // namespace jitune::space
