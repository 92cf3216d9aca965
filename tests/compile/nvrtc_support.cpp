#include "compile/nvrtc_support.hpp"

#include <cstdlib>

#include "support/support.hpp"

namespace jitune::test {

std::optional<compile::NvrtcFile> find_nvrtc_or_skip() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  compile::NvrtcSearchOptions options;
  options.explicit_path = variable("JITUNE_NVRTC");
  options.cuda_home = variable("CUDA_HOME");
  options.cuda_path = variable("CUDA_PATH");
  options.extra_roots = {JITUNE_SOURCE_DIR "/.deps/cuda"};
  const auto search = compile::find_nvrtc(options);
  if (!search.found.empty()) return search.found.front();
  skip("nvrtc", compile::explain_missing(search));
  return std::nullopt;
}

compile::Request request_for(const compile::NvrtcFile& nvrtc, const std::string& source, const std::string& entry) {
  compile::Request request;
  request.nvrtc_path = nvrtc.path;
  request.toolkit_include_dirs = nvrtc.include_dirs;
  request.spec.source_text = source;
  request.spec.source_name = "kernel.cu";
  request.spec.entry = entry;
  request.spec.is_template = entry.find('<') != std::string::npos;
  request.spec.arch = "sm_90";
  return request;
}

}  // namespace jitune::test
