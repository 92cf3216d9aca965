#include "jitune/error.hpp"

#include <utility>

namespace jitune {
namespace {

std::string sentence(const std::string& message, const std::string& kernel, const std::string& text, int column) {
  std::string out = kernel.empty() ? message : "kernel '" + kernel + "': " + message;
  if (!text.empty()) {
    out += "\n  " + text;
    if (column > 0)
      out += "\n  " + std::string(static_cast<size_t>(column - 1), ' ') + "^ column " + std::to_string(column);
  }
  return out;
}

}  // namespace

const char* to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::bad_definition:
      return "bad_definition";
    case ErrorCode::bad_expression:
      return "bad_expression";
    case ErrorCode::bad_problem:
      return "bad_problem";
    case ErrorCode::bad_arguments:
      return "bad_arguments";
    case ErrorCode::no_runnable_config:
      return "no_runnable_config";
    case ErrorCode::not_prepared:
      return "not_prepared";
    case ErrorCode::launch_failed:
      return "launch_failed";
    case ErrorCode::bad_options:
      return "bad_options";
    case ErrorCode::lifetime:
      return "lifetime";
    case ErrorCode::no_gpu:
      return "no_gpu";
  }
  return "unknown";
}

Error::Error(ErrorCode code, std::string message, std::string kernel, std::string text, int column)
    : std::runtime_error(sentence(message, kernel, text, column)),
      code_(code),
      message_(std::move(message)),
      kernel_(std::move(kernel)),
      text_(std::move(text)),
      column_(column) {}

}  // namespace jitune
