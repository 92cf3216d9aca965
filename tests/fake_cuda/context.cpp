#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>

#include "fake_cuda.hpp"
#include "state.hpp"

namespace fake_cuda {
namespace {

thread_local std::vector<Context*> stack;

void load_plugins() {
  for (const std::string& path : state().spec.plugins) {
    void* library = ::dlopen(path.c_str(), RTLD_NOW);
    auto* entry =
        library == nullptr ? nullptr : reinterpret_cast<void (*)(Register)>(::dlsym(library, "fake_cuda_plugin"));
    if (entry == nullptr)
      std::fprintf(stderr, "fake CUDA driver: %s is no plugin\n", path.c_str());
    else
      entry(add_kernel);
  }
}

/// One primary context for each device that a spec may name.
Context& primary(CUdevice device) {
  static std::array<Context, 16> contexts;
  Context& context = contexts.at(static_cast<size_t>(device));
  context.device = device;
  return context;
}

}  // namespace

State& state() {
  static State* driver = new State;  // never destroyed: threads may outlive main
  return *driver;
}

CUresult ready() {
  if (!state().initialised) return CUDA_ERROR_NOT_INITIALIZED;
  return state().sticky;
}

CUresult in_context() {
  if (const CUresult bad = ready(); bad != CUDA_SUCCESS) return bad;
  return stack.empty() || stack.back() == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

CUresult wait() {
  if (const CUresult bad = in_context(); bad != CUDA_SUCCESS) return bad;
  if (state().capturing || spoils_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (state().foreign_capture == 1) {
    state().spoiled = true;  // the legacy stream would wait for the capturing one
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  ++state().waits;
  while (state().hung) ::pause();
  return CUDA_SUCCESS;
}

CUdevice current_device() {
  return stack.empty() || stack.back() == nullptr ? 0 : stack.back()->device;
}

}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

CUresult cuInit(unsigned) {
  const std::lock_guard lock(state().mutex);
  if (!state().initialised) {
    state().spec = spec_from_environment();
    load_plugins();
  }
  if (!state().spec.lost_file.empty() && ::access(state().spec.lost_file.c_str(), F_OK) == 0)
    return CUDA_ERROR_NO_DEVICE;
  if (state().spec.init != 0) return static_cast<CUresult>(state().spec.init);
  if (state().spec.devices.empty()) return CUDA_ERROR_NO_DEVICE;
  state().initialised = true;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = ready(); bad != CUDA_SUCCESS) return bad;
  if (device < 0 || static_cast<size_t>(device) >= state().spec.devices.size()) return CUDA_ERROR_INVALID_DEVICE;
  if (const int mode = state().spec.devices[static_cast<size_t>(device)].compute_mode; mode == 2 || mode == 3)
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
  *context = reinterpret_cast<CUcontext>(&primary(device));
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = ready(); bad != CUDA_SUCCESS) return bad;
  if (stack.empty()) stack.push_back(nullptr);
  stack.back() = reinterpret_cast<Context*>(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  const std::lock_guard lock(state().mutex);
  if (!state().initialised) return CUDA_ERROR_NOT_INITIALIZED;
  *context = reinterpret_cast<CUcontext>(stack.empty() ? nullptr : stack.back());
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = ready(); bad != CUDA_SUCCESS) return bad;
  stack.push_back(reinterpret_cast<Context*>(context));
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext* context) {
  const std::lock_guard lock(state().mutex);
  if (!state().initialised) return CUDA_ERROR_NOT_INITIALIZED;
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context != nullptr) *context = reinterpret_cast<CUcontext>(stack.back());
  stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = in_context(); bad != CUDA_SUCCESS) return bad;
  *device = current_device();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext context, unsigned long long* id) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult bad = context == nullptr ? in_context() : ready(); bad != CUDA_SUCCESS) return bad;
  const Context* asked = context == nullptr ? stack.back() : reinterpret_cast<Context*>(context);
  *id = static_cast<unsigned long long>(asked->device) + 1;
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() {
  const std::lock_guard lock(state().mutex);
  return wait();
}

int fake_cuda_configure(const char* spec) {
  const std::lock_guard lock(state().mutex);
  try {
    state().spec = parse_spec(spec);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fake CUDA driver: %s\n", error.what());
    return 1;
  }
  state().initialised = !state().spec.devices.empty() && state().spec.init == 0;
  state().sticky = CUDA_SUCCESS;
  state().hung = false;
  state().capturing = false;
  state().launches = 0;
  state().waits = 0;
  state().rule_launches.clear();
  load_plugins();
  return 0;
}

int64_t fake_cuda_modules() {
  const std::lock_guard lock(state().mutex);
  return static_cast<int64_t>(state().modules.size());
}

int64_t fake_cuda_launches() {
  const std::lock_guard lock(state().mutex);
  return static_cast<int64_t>(state().launches);
}

int64_t fake_cuda_waits() {
  const std::lock_guard lock(state().mutex);
  return static_cast<int64_t>(state().waits);
}
double fake_cuda_last_start_us() {
  const std::lock_guard lock(state().mutex);
  return state().last_start_us;
}
double fake_cuda_last_us() {
  const std::lock_guard lock(state().mutex);
  return state().last_us;
}

void fake_cuda_set_foreign_capture(int kind) {
  const std::lock_guard lock(state().mutex);
  state().foreign_capture = kind;
  state().spoiled = false;
}

int fake_cuda_capture_spoiled() {
  const std::lock_guard lock(state().mutex);
  return state().spoiled ? 1 : 0;
}

void fake_cuda_set_capturing(int capturing) {
  const std::lock_guard lock(state().mutex);
  state().capturing = capturing != 0;
}
}
