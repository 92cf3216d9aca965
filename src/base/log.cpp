#include "base/log.hpp"

#include <cstdio>

namespace jitune {
namespace {

thread_local bool in_hook = false;  // a hook that calls jitune back must not be called from within itself

}  // namespace

void Log::send(const Event& event) noexcept {
  if (in_hook) return;
  if (hook_.function != nullptr) {
    in_hook = true;
    hook_.function(hook_.user, event);
    in_hook = false;
    return;
  }
  const Threshold needed = event.level == LogLevel::warning ? Threshold::warn
                           : event.level == LogLevel::info  ? Threshold::info
                                                            : Threshold::debug;
  if (threshold_ < needed) return;
  const char* level = event.level == LogLevel::warning ? "warning" : event.level == LogLevel::info ? "info" : "debug";
  std::fprintf(stderr, "jitune %s [%.*s]%s%.*s: %.*s\n", level, static_cast<int>(event.code.size()), event.code.data(),
               event.kernel.empty() ? "" : " ", static_cast<int>(event.kernel.size()), event.kernel.data(),
               static_cast<int>(event.text.size()), event.text.data());
}

void Log::warning(std::string_view code, std::string_view kernel, const std::string& text, std::string_view once_per) {
  if (!once_per.empty()) {
    const std::lock_guard lock(mutex_);
    if (!said_.insert(std::string(code) + '\n' + std::string(once_per)).second) return;
  }
  send({LogLevel::warning, code, kernel, text});
}

void Log::info(std::string_view code, std::string_view kernel, const std::string& text) {
  send({LogLevel::info, code, kernel, text});
}

void Log::debug(std::string_view code, std::string_view kernel, const std::string& text) {
  send({LogLevel::debug, code, kernel, text});
}

void Log::key(std::string_view kernel, const std::string& text) {
  if (!keys_) return;
  std::fprintf(stderr, "jitune key %.*s\n%s", static_cast<int>(kernel.size()), kernel.data(), text.c_str());
}

}  // namespace jitune
