#include "store/text.hpp"

namespace jitune::store {
namespace {

/// The length of the UTF-8 character at the start of `text`, or 0 when there is none.
size_t character_size(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t size = first >= 0xC2 && first < 0xE0   ? 2
                      : first >= 0xE0 && first < 0xF0 ? 3
                      : first >= 0xF0 && first < 0xF5 ? 4
                                                      : 0;
  if (size == 0 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  // Overlong forms, surrogates and what lies above U+10FFFF show in the second byte.
  if ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F) || (first == 0xF0 && byte(1) < 0x90) ||
      (first == 0xF4 && byte(1) > 0x8F))
    return 0;
  return size;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t size = character_size(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

std::string clean_text(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  while (!text.empty()) {
    const size_t size = text.front() == '\0' ? 0 : character_size(text);
    if (size == 0)
      clean += "\xEF\xBF\xBD";
    else
      clean.append(text.substr(0, size));
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return clean;
}

}  // namespace jitune::store
