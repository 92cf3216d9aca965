#pragma once

#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

#include <string>
#include <string_view>
#include <vector>

#include "jitune/definition.hpp"

namespace jitune::space {

/// Reads nodes of one TOML file; every complaint names the file and the line.
class TomlReader {
 public:
  explicit TomlReader(std::string path) : path_(std::move(path)) {}

  [[noreturn]] void fail(int line, const std::string& message) const;
  [[noreturn]] void fail(const toml::node& node, const std::string& message) const { fail(line(node), message); }
  static int line(const toml::node& node) { return static_cast<int>(node.source().begin.line); }

  /// Refuses keys that are not in `known`, with the nearest of them, or with the reason that there is for it.
  void check_keys(const toml::table& table, const std::string& where, const std::vector<std::string>& known) const;

  // `what` names the key in complaints. All of these fail on a node of another kind.
  std::string text(const toml::node& node, const std::string& what);
  bool flag(const toml::node& node, const std::string& what) const;
  double real(const toml::node& node, const std::string& what) const;
  int integer(const toml::node& node, const std::string& what) const;
  const toml::table& table(const toml::node& node, const std::string& what) const;
  const toml::array& array(const toml::node& node, const std::string& what) const;
  std::string expression(const toml::node& node, const std::string& what);  ///< a string, an integer or a bool
  std::vector<std::string> expressions(const toml::node& node, const std::string& what);  ///< one, or an array of them
  std::vector<std::string> texts(const toml::node& node, const std::string& what);
  Value value(const toml::node& node, const std::string& what);

  /// Remembers where a name that is a key stands.
  void note(const toml::key& key) { note(std::string(key.str()), static_cast<int>(key.source().begin.line)); }

  /// Ends a part of the file where it goes out of scope.
  class Part {
   public:
    Part(TomlReader& reader, int before) : reader_(reader), before_(before) {}
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;
    ~Part() { reader_.current_ = before_; }

   private:
    TomlReader& reader_;
    int before_;
  };
  /// What is read while the result lives is part of what complaints call one of `labels`: `arg 'y'`. A kernel of a file
  /// with several has no label: complaints are looked for in it alone.
  [[nodiscard]] Part part(std::vector<std::string> labels, int line);

  /// Where the text that `error` is about stands, or a name that its message quotes, in the part of the file that the
  /// message names; the line of that part when neither is found.
  int line_of(const Error& error) const;
  const std::string& path() const { return path_; }

 private:
  struct Scope {
    std::vector<std::string> labels;
    int line = 1;
    int parent = -1;
  };
  struct Note {
    std::string text;
    int line = 0;
    int scope = 0;
  };
  static std::string kind(const toml::node& node);
  void note(std::string text, int line) { notes_.push_back({std::move(text), line, current_}); }
  bool is_within(int scope, int outer) const;
  int scope_of(const std::string& message) const;
  int find(const std::string& text, int scope) const;

  std::string path_;
  std::vector<Scope> scopes_{Scope{}};
  std::vector<Note> notes_;
  int current_ = 0;
};

/// The args of a kernel or variant. In toml_args.cpp.
std::vector<Arg> read_args(TomlReader& reader, const toml::node& node);

}  // namespace jitune::space
