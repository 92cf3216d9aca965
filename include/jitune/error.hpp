#pragma once

#include <stdexcept>
#include <string>

#if defined(JITUNE_BUILDING_SHARED) || defined(JITUNE_USING_SHARED)
#define JITUNE_API __attribute__((visibility("default")))
#else
#define JITUNE_API
#endif

namespace jitune {

/// What kind of mistake or trouble an Error reports. The numbers are stable across releases.
enum class ErrorCode : int {
  bad_definition = 1,      ///< a kernel definition is not valid; thrown when it is defined or loaded
  bad_expression = 2,      ///< an expression does not parse or names something unknown; `text` and `column` say where
  bad_problem = 3,         ///< a problem value is missing, unknown or of the wrong kind
  bad_arguments = 4,       ///< launch arguments do not match the definition
  no_runnable_config = 5,  ///< not even the default config compiles, loads or satisfies the constraints
  not_prepared = 6,        ///< a CUDA graph is being captured and nothing is loaded for this problem
  launch_failed = 7,       ///< the CUDA driver refused this launch
  bad_options = 8,         ///< Options or an environment variable hold a value that makes no sense
  lifetime = 9,            ///< a Kernel or Problem is used after its Tuner or Kernel is gone
  no_gpu = 10,             ///< no CUDA driver or no GPU on this machine
};

/// The word for a code as it stands in the enum, `bad_definition` for instance. Never null.
JITUNE_API const char* to_string(ErrorCode code) noexcept;

/// The one exception of jitune. `what()` is a whole sentence with kernel, place and remedy; the parts are there too.
class JITUNE_API Error : public std::runtime_error {
 public:
  /// `column` counts from 1 within `text`; 0 means that no column applies.
  Error(ErrorCode code, std::string message, std::string kernel = {}, std::string text = {}, int column = 0);

  ErrorCode code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_; }  ///< without kernel, text and column
  const std::string& kernel() const noexcept { return kernel_; }    ///< the definition's name, if there is one
  const std::string& text() const noexcept { return text_; }        ///< the offending text, an expression for instance
  int column() const noexcept { return column_; }

 private:
  ErrorCode code_;
  std::string message_, kernel_, text_;
  int column_;
};

}  // namespace jitune
