#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace jitune::key {

/// One #include as it stands in a text.
struct Include {
  enum class Form : uint8_t {
    quoted,  ///< "name"
    angled,  ///< <name>
    macro,   ///< #include NAME: `name` is the macro's text
  };
  Form form = Form::quoted;
  bool next = false;  ///< #include_next
  std::string name;

  friend bool operator==(const Include&, const Include&) = default;
};

/// Every #include of `text` in order, as a preprocessor would tokenize it: not those in comments, in string, character
/// or raw string literals; line continuations are respected, conditionals are not evaluated. `text` is bytes: CRLF line
/// ends and a byte order mark are fine. Never fails; what is malformed is passed over.
std::vector<Include> scan_includes(std::string_view text);

}  // namespace jitune::key
