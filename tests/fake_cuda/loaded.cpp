#include "fake_cuda/loaded.hpp"

#include <dlfcn.h>

#include <stdexcept>

namespace fake_cuda {

Loaded::Loaded(const std::string& path) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) throw std::runtime_error(::dlerror());
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    if (function == nullptr) throw std::runtime_error(path + " is not the stand-in: it lacks " + name);
  };
  find("fake_cuda_configure", configure_);
  find("fake_cuda_allocated_bytes", allocated_bytes_);
  find("fake_cuda_modules", modules_);
  find("fake_cuda_launches", launches_);
  find("fake_cuda_waits", waits_);
  find("fake_cuda_set_capturing", set_capturing_);
  find("fake_cuda_set_foreign_capture", set_foreign_capture_);
  find("fake_cuda_capture_spoiled", capture_spoiled_);
}

void Loaded::configure(const std::string& spec) const {
  if (configure_(spec.c_str()) != 0) throw std::runtime_error("the stand-in does not take this spec: " + spec);
}

}  // namespace fake_cuda
