#include "space/text_template.hpp"

#include <algorithm>

#include "jitune/error.hpp"
#include "space/names.hpp"

namespace jitune::space {

TextTemplate TextTemplate::parse(std::string_view text,
                                 const std::function<int(const std::string& name, int column)>& resolve) {
  const auto fail = [&](const std::string& message, size_t at) {
    throw Error(ErrorCode::bad_definition, message, "", std::string(text), static_cast<int>(at) + 1);
  };
  TextTemplate result;
  result.text_ = std::string(text);
  std::string literal;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c != '{' && c != '}') {
      literal += c;
      continue;
    }
    if (at + 1 < text.size() && text[at + 1] == c) {
      literal += c;
      ++at;
      continue;
    }
    if (c == '}') fail("a closing brace without an opening one; write }} for a brace of the text itself", at);
    const size_t close = text.find('}', at);
    if (close == std::string_view::npos)
      fail("the closing brace is missing; write {{ for a brace of the text itself", at);
    const std::string name(text.substr(at + 1, close - at - 1));
    const bool is_dotted = name.rfind("device.", 0) == 0 || name.rfind("kernel.", 0) == 0;
    if (!is_identifier(name) && !is_dotted)
      fail("braces hold one name; make a derived value of a formula, and write {{ for a brace of the text itself", at);
    const int slot = resolve(name, static_cast<int>(at) + 2);
    if (!literal.empty()) result.pieces_.push_back({literal, -1});
    literal.clear();
    result.pieces_.push_back({name, slot});
    at = close;
  }
  if (!literal.empty()) result.pieces_.push_back({literal, -1});
  return result;
}

std::string TextTemplate::fill(const std::function<std::string(int slot)>& value) const {
  std::string out;
  for (const Piece& piece : pieces_) out += piece.slot < 0 ? piece.text : value(piece.slot);
  return out;
}

bool TextTemplate::uses(int slot) const {
  return std::any_of(pieces_.begin(), pieces_.end(), [slot](const Piece& piece) { return piece.slot == slot; });
}

}  // namespace jitune::space
