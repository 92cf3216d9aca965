#include "space/names.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "jitune/value.hpp"

namespace jitune::space {
namespace {

constexpr auto kKeywords = std::to_array<std::string_view>(
    {"alignas",     "alignof",   "and",        "and_eq",    "asm",      "auto",         "bitand",
     "bitor",       "bool",      "break",      "case",      "catch",    "char",         "char8_t",
     "char16_t",    "char32_t",  "class",      "compl",     "concept",  "const",        "consteval",
     "constexpr",   "constinit", "const_cast", "continue",  "co_await", "co_return",    "co_yield",
     "decltype",    "default",   "delete",     "do",        "double",   "dynamic_cast", "else",
     "enum",        "explicit",  "export",     "extern",    "false",    "float",        "for",
     "friend",      "goto",      "if",         "inline",    "int",      "long",         "mutable",
     "namespace",   "new",       "noexcept",   "not",       "not_eq",   "nullptr",      "operator",
     "or",          "or_eq",     "private",    "protected", "public",   "register",     "reinterpret_cast",
     "requires",    "return",    "short",      "signed",    "sizeof",   "static",       "static_assert",
     "static_cast", "struct",    "switch",     "template",  "this",     "thread_local", "throw",
     "true",        "try",       "typedef",    "typeid",    "typename", "union",        "unsigned",
     "using",       "virtual",   "void",       "volatile",  "wchar_t",  "while",        "xor",
     "xor_eq"});

constexpr auto kExpressionWords = std::to_array<std::string_view>(
    {"ceil_div", "min", "max", "pow2_ceil", "pow2_floor", "log2", "abs", "align_up", "device", "kernel", "bytes"});

bool contains(const auto& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same =
          std::tolower(static_cast<unsigned char>(a[i - 1])) == std::tolower(static_cast<unsigned char>(b[j - 1]));
      const size_t changed = diagonal + (same ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row[b.size()];
}

}  // namespace

bool is_identifier(std::string_view name) {
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name.front())) != 0) return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  });
}

std::string why_reserved(std::string_view name) {
  if (find_type(name) != nullptr) return "it is a type word";
  if (contains(kKeywords, name)) return "it is a C++ keyword";
  if (contains(kExpressionWords, name)) return "expressions use this word";
  return "";
}

std::string why_not_macro(std::string_view name, bool before_includes) {
  if (contains(kKeywords, name)) return "it is a C++ keyword";
  if (name.find("__") != std::string_view::npos) return "names with two underscores belong to the compiler";
  if (name.size() > 1 && name[0] == '_' && name[1] >= 'A' && name[1] <= 'Z')
    return "names with an underscore and a capital letter belong to the compiler";
  if (!before_includes) return "";
  if (name.size() == 1) return "a macro of one letter before the includes changes what the headers mean";
  if (name[0] == '_') return "a macro with a leading underscore before the includes may change what the headers mean";
  return "";
}

std::string nearest(std::string_view name, const std::vector<std::string>& known) {
  std::string best;
  size_t best_distance = std::max<size_t>(1, name.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const size_t d = distance(name, candidate);
    if (d < best_distance) {
      best_distance = d;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& known) {
  const std::string word = nearest(name, known);
  return word.empty() ? "" : " (did you mean '" + word + "'?)";
}

std::string join(const std::vector<std::string>& words, const char* between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

}  // namespace jitune::space
