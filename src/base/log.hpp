#pragma once

#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include "jitune/options.hpp"

namespace jitune {

/// Sends events to the hook, or to stderr as far as JITUNE_LOG asks for them. Safe from any thread; never throws.
class Log {
 public:
  enum class Threshold : uint8_t { off, warn, info, debug };

  Log() = default;
  Log(LogHook hook, Threshold threshold, bool keys) : hook_(hook), threshold_(threshold), keys_(keys) {}

  /// `once_per`: a warning with this code is said only once for each value of it (a key, a path).
  void warning(std::string_view code, std::string_view kernel, const std::string& text, std::string_view once_per = {});
  void info(std::string_view code, std::string_view kernel, const std::string& text);
  void debug(std::string_view code, std::string_view kernel, const std::string& text);

  /// JITUNE_LOG=key: what was hashed behind a key.
  bool keys() const { return keys_; }
  void key(std::string_view kernel, const std::string& text);

 private:
  void send(const Event& event) noexcept;

  LogHook hook_;
  Threshold threshold_ = Threshold::warn;
  bool keys_ = false;
  std::mutex mutex_;
  std::set<std::string> said_;
};

}  // namespace jitune
