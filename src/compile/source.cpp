#include "compile/source.hpp"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace jitune::compile {
namespace {

constexpr std::string_view kSpace = " \t\r\v\f";

/// One logical line: physical lines joined by backslashes, comments taken out.
struct Line {
  size_t end = 0;    ///< offset after its newline
  std::string text;  ///< without comments and without space at its ends
};

/// Reads the logical line at `at`. A block comment that goes on makes the line go on.
Line read_line(std::string_view source, size_t at) {
  Line line;
  while (at < source.size()) {
    const std::string_view rest = source.substr(at);
    if (rest.starts_with("\\\n") || rest.starts_with("\\\r\n")) {
      at += rest[1] == '\n' ? 2 : 3;
    } else if (rest.starts_with("/*")) {
      const size_t close = source.find("*/", at + 2);
      at = close == std::string_view::npos ? source.size() : close + 2;
      line.text += ' ';
    } else if (rest.starts_with("//")) {
      at = std::min(source.find('\n', at), source.size());
    } else if (rest.front() == '\n') {
      ++at;
      break;
    } else {
      line.text += rest.front();
      ++at;
    }
  }
  line.end = at;
  const size_t first = line.text.find_first_not_of(kSpace);
  if (first == std::string::npos) {
    line.text.clear();
  } else {
    line.text = line.text.substr(first, line.text.find_last_not_of(kSpace) - first + 1);
  }
  return line;
}

/// Takes the next word off a directive.
std::string_view take_word(std::string_view& text) {
  const size_t first = std::min(text.find_first_not_of(kSpace), text.size());
  text.remove_prefix(first);
  const size_t end = std::min(text.find_first_of(" \t\r\v\f(<\""), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(end);
  return word;
}

/// An #if that is open while the leading block is read.
struct Conditional {
  std::string guard;      ///< the name after #ifndef while nothing else has come
  bool is_guard = false;  ///< #ifndef X, #define X: an include guard, which never hides the source's own code
  bool had_include = false;
};

/// The offset after the last #include of the source's leading block of comments and directives, with the conditionals
/// around it closed. Zero when there is none. Code ends the block; so does a conditional that the code itself stands
/// in, because defines inside it could be skipped.
size_t end_of_includes(std::string_view source) {
  std::vector<Conditional> open;
  size_t end = 0, at = 0;
  const auto visible = [&] { return std::all_of(open.begin(), open.end(), [](const auto& c) { return c.is_guard; }); };
  while (at < source.size()) {
    const Line line = read_line(source, at);
    at = line.end;
    if (line.text.empty()) continue;
    if (line.text.front() != '#') break;
    std::string_view rest = std::string_view(line.text).substr(1);
    const std::string_view directive = take_word(rest);
    if (directive == "if" || directive == "ifdef" || directive == "ifndef") {
      open.push_back({directive == "ifndef" ? std::string(take_word(rest)) : "", false, false});
      continue;
    }
    if (!open.empty()) {
      Conditional& innermost = open.back();
      if (directive == "define" && !innermost.guard.empty() && take_word(rest) == innermost.guard)
        innermost.is_guard = true;
      innermost.guard.clear();
    }
    if (directive == "include") {
      if (visible()) end = line.end;
      for (Conditional& conditional : open) conditional.had_include = true;
    } else if (directive == "endif" && !open.empty()) {
      const bool had_include = open.back().had_include;
      open.pop_back();
      if (had_include && visible()) end = line.end;
    }
  }
  return end;
}

std::string line_directive(size_t number, const std::string& name) {
  std::string out = "#line " + std::to_string(number) + " \"";
  for (const char c : name) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out + "\"\n";
}

/// The source in the order in which NVRTC gets it. The parts joined are the text but for the #line before `block`.
struct Pieces {
  std::string type_headers, block, defines, code;
};

Pieces take_apart(const space::BuildSpec& spec) {
  std::string_view source = spec.source_text;
  if (source.starts_with("\xEF\xBB\xBF")) source.remove_prefix(3);  // no compiler takes a byte order mark in mid-file

  Pieces pieces;
  for (const std::string& header : spec.headers) pieces.type_headers += "#include <" + header + ">\n";
  for (const auto& [name, value] : spec.defines) {
    // The source may bring a value of its own for a build without jitune; the config's is the one that counts.
    pieces.defines += "#undef " + name + "\n#define " + name + " " + value + "\n";
  }
  const size_t split = spec.defines_before_includes ? 0 : end_of_includes(source);
  pieces.block = source.substr(0, split);
  if (split > 0 && pieces.block.back() != '\n') pieces.block += '\n';
  const auto lines = static_cast<size_t>(std::count(source.begin(), source.begin() + static_cast<long>(split), '\n'));
  pieces.code = line_directive(lines + 1, spec.source_name);
  pieces.code += source.substr(split);
  return pieces;
}

}  // namespace

std::string specialise(const space::BuildSpec& spec) {
  const Pieces pieces = take_apart(spec);
  const std::string line = pieces.block.empty() ? "" : line_directive(1, spec.source_name);
  return pieces.type_headers + line + pieces.block + pieces.defines + pieces.code;
}

SourceParts split_source(const space::BuildSpec& spec) {
  Pieces pieces = take_apart(spec);
  return {pieces.type_headers + pieces.block, pieces.defines + pieces.code};
}

}  // namespace jitune::compile
