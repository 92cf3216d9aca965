#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "space/form_builder.hpp"
#include "space/instance.hpp"

namespace jitune::space {
namespace {

struct Refused {
  std::string_view name;  ///< without leading dashes and without a value
  const char* reason;
};

constexpr const char* kArch = "jitune sets the architecture itself; ask for another with `arch`";
constexpr const char* kOwn = "jitune always gives this option itself";
constexpr const char* kWrites = "it writes files beside the caches that jitune keeps; leave it out";
constexpr const char* kDevice = "jitune loads finished cubins; code for a later link step can't be launched";
constexpr const char* kInclude = "give directories in `include`: keys must see what the headers hold";

constexpr std::array<Refused, 40> kRefused{{
    {"gpu-architecture", kArch},
    {"arch", kArch},
    {"gpu-code", kArch},
    {"code", kArch},
    {"gencode", kArch},
    {"generate-code", kArch},
    {"no-cache", kOwn},
    {"device-as-default-execution-space", kOwn},
    {"default-device", kOwn},
    {"pch", kWrites},
    {"create-pch", kWrites},
    {"use-pch", kWrites},
    {"pch-dir", kWrites},
    {"pch-verbose", kWrites},
    {"pch-messages", kWrites},
    {"instantiate-templates-in-pch", kWrites},
    {"time", kWrites},
    {"fdevice-time-trace", kWrites},
    {"device-time-trace", kWrites},
    {"fdevice-sanitize-report", kWrites},
    {"o", kWrites},
    {"output-file", kWrites},
    {"output-directory", kWrites},
    {"keep", kWrites},
    {"keep-dir", kWrites},
    {"relocatable-device-code", kDevice},
    {"rdc", kDevice},
    {"dc", kDevice},
    {"device-c", kDevice},
    {"c", kDevice},
    {"dlto", kDevice},
    {"dlink-time-opt", kDevice},
    {"gen-opt-lto", kDevice},
    {"ltoir", kDevice},
    {"ptx", kDevice},
    {"fatbin", kDevice},
    {"I", kInclude},
    {"include-path", kInclude},
    {"include", kInclude},
    {"pre-include", kInclude},
}};

}  // namespace

std::string why_refused(const std::string& option) {
  if (option.empty()) return "an option is empty";
  if (option.find_first_of(std::string_view("\n\r\0", 3)) != std::string::npos) return "an option holds a line end";
  if (std::isspace(static_cast<unsigned char>(option.front())) != 0) return "an option begins with a space";
  if (option.front() == '@' || option.rfind("--options-file", 0) == 0 || option.rfind("-optf", 0) == 0)
    return "files of options can't be used: keys must see every option";
  if (option.front() != '-') return "";
  std::string_view name = option;
  name.remove_prefix(name.size() > 1 && name[1] == '-' ? 2 : 1);
  const std::string_view value = name.find('=') == std::string_view::npos ? "" : name.substr(name.find('=') + 1);
  name = name.substr(0, name.find_first_of("= \t"));
  if ((name == "rdc" || name == "relocatable-device-code") && value == "false") return "";
  for (const Refused& refused : kRefused)
    if (name == refused.name) return refused.reason;
  // -Idir and -odir carry their value without a space.
  if (option[1] == 'I') return kInclude;
  return "";
}

bool changes_code(const std::string& option) {
  static constexpr std::array<std::string_view, 7> kSilent{
      "w",         "disable-warnings", "display-error-number", "err-no", "no-display-error-number",
      "no-err-no", "brief-diagnostics"};
  static constexpr std::array<std::string_view, 2> kLists{"diag-suppress", "diag-warn"};
  const size_t dashes = option.starts_with("--") ? 2 : option.starts_with("-") ? 1 : 0;
  if (dashes == 0) return true;
  const std::string_view whole = std::string_view(option).substr(dashes);
  const size_t equals = whole.find('=');
  const std::string_view name = whole.substr(0, equals);
  if (std::find(kSilent.begin(), kSilent.end(), name) != kSilent.end()) return false;
  if (equals == std::string_view::npos) return true;
  if (std::find(kLists.begin(), kLists.end(), name) != kLists.end()) return false;
  const std::string_view value = whole.substr(equals + 1);
  return !((name == "ptxas-options" || name == "Xptxas") && (value == "-v" || value == "--verbose"));
}

}  // namespace jitune::space
