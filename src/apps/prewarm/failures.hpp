#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/json.hpp"

namespace jitune::prewarm {

/// What failed, by what was said of it: a kernel that does not compile is one line, not one for each config.
class Failures {
 public:
  /// `config` is canonical JSON; `message` may be a whole log, of which the line that names an error is kept.
  void add(const std::string& status, const std::string& message, const std::string& config);

  /// Lines for a report, indented by two: the most frequent first, at most kShown of them, each with an example.
  std::string text() const;
  /// All of them: an array of count, status, message and example.
  Json json() const;

  static constexpr size_t kShown = 10;

 private:
  struct Group {
    uint64_t count = 0;
    std::string status, message, example;
  };
  std::map<std::pair<std::string, std::string>, Group> groups_;  ///< by status and message
};

}  // namespace jitune::prewarm
