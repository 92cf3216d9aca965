#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace jitune::space {

/// A text with `{NAME}`s; `{{` and `}}` stand for braces.
class TextTemplate {
 public:
  struct Piece {
    std::string text;
    int slot = -1;  ///< -1: text stands for itself, else it is the name
  };

  /// `resolve` gives the slot of a name, or throws with the column at which the name begins (counted from 1).
  /// Throws Error{bad_definition} with text and column where a brace is left open or holds more than a name.
  static TextTemplate parse(std::string_view text,
                            const std::function<int(const std::string& name, int column)>& resolve);

  std::string fill(const std::function<std::string(int slot)>& value) const;
  const std::string& text() const { return text_; }  ///< as the author wrote it
  const std::vector<Piece>& pieces() const { return pieces_; }
  bool uses(int slot) const;

 private:
  std::string text_;
  std::vector<Piece> pieces_;
};

}  // namespace jitune::space
