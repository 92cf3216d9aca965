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

/// How many letters must be put in, left out, changed or swapped with their neighbour; case is not looked at.
size_t distance(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      const size_t change = lower(a[i - 1]) == lower(b[j - 1]) ? 0 : 1;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + change});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]))
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
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
