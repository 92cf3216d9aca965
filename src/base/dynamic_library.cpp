#include "base/dynamic_library.hpp"

#include <dlfcn.h>

namespace jitune {

DynamicLibrary::~DynamicLibrary() {
  if (handle_ != nullptr) ::dlclose(handle_);
}

Result<DynamicLibrary> DynamicLibrary::open(const std::string& path) {
  DynamicLibrary library;
  library.handle_ = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library.handle_ == nullptr) {
    const char* reason = ::dlerror();
    return Failure{reason != nullptr ? reason : "cannot load " + path};
  }
  return library;
}

void* DynamicLibrary::find(const char* name) const {
  return ::dlsym(handle_, name);
}

}  // namespace jitune
