#include "space/toml_reader.hpp"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "space/names.hpp"

namespace jitune::space {
namespace {

struct Reason {
  std::string_view key;
  const char* why;
};

constexpr const char* kCallable =
    "is a function of the host; it can't stand in a file, give it to the Kernel in C++ beside what `load` returns";
constexpr const char* kPipeline =
    "kernels of several steps are to come; define one kernel a step and launch them in turn";

constexpr Reason kReasons[] = {
    {"steps", kPipeline},
    {"pipeline", kPipeline},
    {"kernels", kPipeline},
    {"prune", "a prune function is to come; say it as `require` where it can be an expression"},
    {"generator", kCallable},
    {"checker", kCallable},
    {"host_reference", kCallable},
    {"restrictions", "constraints are called `require`"},
    {"constraints", "constraints are called `require`"},
    {"tune_params", "they are called `params`"},
};

/// Where `label` stands in a message as a whole word; npos when nowhere.
size_t position(const std::string& message, const std::string& label) {
  for (size_t at = message.find(label); at != std::string::npos; at = message.find(label, at + 1)) {
    const char next = at + label.size() < message.size() ? message[at + label.size()] : ' ';
    if (!std::isalnum(static_cast<unsigned char>(next)) && next != '_') return at;
  }
  return std::string::npos;
}

}  // namespace

void TomlReader::fail(int line, const std::string& message) const {
  throw Error(ErrorCode::bad_definition, path_ + (line > 0 ? ":" + std::to_string(line) : "") + ": " + message);
}

std::string TomlReader::kind(const toml::node& node) {
  std::stringstream text;
  text << node.type();
  return text.str();
}

void TomlReader::check_keys(const toml::table& table, const std::string& where,
                            const std::vector<std::string>& known) const {
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const int line = static_cast<int>(key.source().begin.line);
    for (const Reason& reason : kReasons)
      if (name == reason.key) fail(line, "`" + name + "`: " + reason.why);
    fail(line, where + " has no key `" + name + "`" + did_you_mean(name, known) + "; it has " + join(known));
  }
}

std::string TomlReader::text(const toml::node& node, const std::string& what) {
  if (!node.is_string()) fail(node, what + " must be a string, not " + kind(node));
  const std::string& text = node.as_string()->get();
  note(text, line(node));
  return text;
}

bool TomlReader::flag(const toml::node& node, const std::string& what) const {
  if (!node.is_boolean()) fail(node, what + " must be true or false, not " + kind(node));
  return node.as_boolean()->get();
}

double TomlReader::real(const toml::node& node, const std::string& what) const {
  if (node.is_integer()) return static_cast<double>(node.as_integer()->get());
  if (!node.is_floating_point()) fail(node, what + " must be a number, not " + kind(node));
  return node.as_floating_point()->get();
}

int TomlReader::integer(const toml::node& node, const std::string& what) const {
  if (!node.is_integer()) fail(node, what + " must be an integer, not " + kind(node));
  const int64_t value = node.as_integer()->get();
  if (value < INT32_MIN || value > INT32_MAX) fail(node, what + " is too large");
  return static_cast<int>(value);
}

const toml::table& TomlReader::table(const toml::node& node, const std::string& what) const {
  if (!node.is_table()) fail(node, what + " must be a table, not " + kind(node));
  return *node.as_table();
}

const toml::array& TomlReader::array(const toml::node& node, const std::string& what) const {
  if (!node.is_array()) fail(node, what + " must be an array, not " + kind(node));
  return *node.as_array();
}

std::string TomlReader::expression(const toml::node& node, const std::string& what) {
  std::string out;
  if (node.is_integer())
    out = std::to_string(node.as_integer()->get());
  else if (node.is_boolean())
    out = node.as_boolean()->get() ? "true" : "false";
  else if (node.is_string())
    out = node.as_string()->get();
  else
    fail(node, what + " must be an expression in quotes or an integer, not " + kind(node));
  note(out, line(node));
  return out;
}

std::vector<std::string> TomlReader::expressions(const toml::node& node, const std::string& what) {
  std::vector<std::string> list;
  if (!node.is_array()) {
    list.push_back(expression(node, what));
    return list;
  }
  for (const toml::node& entry : *node.as_array()) list.push_back(expression(entry, "an entry of " + what));
  return list;
}

std::vector<std::string> TomlReader::texts(const toml::node& node, const std::string& what) {
  std::vector<std::string> list;
  for (const toml::node& entry : array(node, what)) list.push_back(text(entry, "an entry of " + what));
  return list;
}

Value TomlReader::value(const toml::node& node, const std::string& what) {
  if (node.is_integer()) return Value(static_cast<long>(node.as_integer()->get()));
  if (node.is_boolean()) return Value(node.as_boolean()->get());
  if (node.is_string()) return Value(text(node, what));
  fail(node, what + " must be an integer, true, false or a word, not " + kind(node));
}

TomlReader::Part TomlReader::part(std::vector<std::string> labels, int line) {
  const int before = current_;
  scopes_.push_back({std::move(labels), line, current_});
  current_ = static_cast<int>(scopes_.size()) - 1;
  return {*this, before};
}

bool TomlReader::is_within(int scope, int outer) const {
  while (scope > outer) scope = scopes_[static_cast<size_t>(scope)].parent;  // parents come first
  return scope == outer;
}

/// The innermost part all of whose labels, from the current part on, stand in the message; of several the one that is
/// named first. The current part when it names none.
int TomlReader::scope_of(const std::string& message) const {
  int best = current_;
  std::pair<int, size_t> best_rank{0, 0};  // depth; bytes of the message from the label on
  for (size_t i = 0; i < scopes_.size(); ++i) {
    if (!is_within(static_cast<int>(i), current_)) continue;
    int depth = 0;
    size_t at = std::string::npos;
    bool named = true;
    for (int scope = static_cast<int>(i); scope != current_ && named;
         scope = scopes_[static_cast<size_t>(scope)].parent) {
      size_t first = std::string::npos;
      for (const std::string& label : scopes_[static_cast<size_t>(scope)].labels)
        first = std::min(first, position(message, label));
      named = first != std::string::npos;
      if (depth++ == 0) at = first;
    }
    if (!named || depth == 0) continue;
    const std::pair rank{depth, message.size() - at};
    if (rank > best_rank) {
      best_rank = rank;
      best = static_cast<int>(i);
    }
  }
  return best;
}

/// The line of the first note of `text` within a part; 0 when there is none. Of a file with several kernels only what
/// they share is looked at beside the current one.
int TomlReader::find(const std::string& text, int scope) const {
  const bool cut = text.size() > 3 && text.ends_with("...");
  const std::string_view begin = std::string_view(text).substr(0, cut ? text.size() - 3 : text.size());
  for (const Note& note : notes_) {
    if (scope < current_ ? note.scope != scope : !is_within(note.scope, scope)) continue;
    if (note.text == text || (cut && note.text.starts_with(begin))) return note.line;
  }
  return 0;
}

int TomlReader::line_of(const Error& error) const {
  const std::string& message = error.message();
  const int scope = scope_of(message);
  if (!error.text().empty())
    for (int outer = scope; outer >= 0; outer = scopes_[static_cast<size_t>(outer)].parent)
      if (const int found = find(error.text(), outer); found > 0) return found;
  for (size_t open = message.find('\''); open != std::string::npos; open = message.find('\'', open + 1)) {
    const size_t close = message.find('\'', open + 1);
    if (close == std::string::npos) break;
    if (const int found = find(message.substr(open + 1, close - open - 1), scope); found > 0) return found;
  }
  return scopes_[static_cast<size_t>(scope)].line;
}

}  // namespace jitune::space
