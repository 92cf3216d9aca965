#include "compile/serve.hpp"

#include <malloc.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <memory>

#include "compile/nvrtc.hpp"
#include "wire/frame.hpp"

namespace jitune::compile {
namespace {

Artifact refusal(std::string reason) {
  Artifact artifact;
  artifact.log = std::move(reason);
  return artifact;
}

/// NVRTC takes some 50 MB for a compile and frees them after it; glibc would hand them back and fault the same 5,000
/// pages in again for the next one, 6 % of its processor time. Kept up to a bound, so that one large compile leaves
/// nothing behind.
void keep_heap() {
#ifdef __GLIBC__
  ::mallopt(M_TRIM_THRESHOLD, 256 << 20);
  ::mallopt(M_TOP_PAD, 4 << 20);
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);  // its largest value
#endif
}

/// Hands what is kept back while no work comes.
void trim_when_idle(int in) {
#ifdef __GLIBC__
  constexpr int kIdleMs = 1000;
  pollfd readable{.fd = in, .events = POLLIN, .revents = 0};
  if (::poll(&readable, 1, kIdleMs) == 0) ::malloc_trim(0);
#else
  (void)in;
#endif
}

/// The one NVRTC of this worker and the requests made of it.
class Compiler {
 public:
  Result<void> load(const std::string& path) {
    if (nvrtc_ && path == path_) return {};
    if (nvrtc_) return Failure{"this worker has loaded NVRTC '" + path_ + "' and can't change to '" + path + "'"};
    auto loaded = Nvrtc::load(path);
    if (!loaded) return loaded.failure();
    nvrtc_ = *std::move(loaded);
    path_ = path;
    return {};
  }

  /// The first compile in a process takes longer than later ones; better now than in a request.
  void warm_up() {
    Request request;
    request.spec.source_text = "extern \"C\" __global__ void jitune_warm_up() {}\n";
    request.spec.source_name = "warm_up.cu";
    request.spec.entry = "jitune_warm_up";
    const auto archs = nvrtc_->supported_archs();
    if (archs.empty()) return;
    request.spec.arch = "sm_" + std::to_string(archs.back());
    (void)nvrtc_->compile(request);
  }

  Artifact compile(const Json& json) {
    const auto request = request_from_json(json);
    if (!request) return refusal(request.error());
    const auto loaded = load(request->nvrtc_path);
    if (!loaded) return refusal(loaded.error());
    return nvrtc_->compile(*request);
  }

 private:
  std::unique_ptr<Nvrtc> nvrtc_;
  std::string path_;
};

int serve_requests(int in, int out, const std::string& nvrtc_path) {
  keep_heap();
  Compiler compiler;
  // Before the hello, so that no request's deadline pays for it. A library that can't be loaded is told by the first
  // request's answer.
  if (!nvrtc_path.empty() && compiler.load(nvrtc_path)) compiler.warm_up();
  const Json hello = {{"hello", "compile"},
                      {"protocol", wire::kProtocolVersion},
                      {"version", JITUNE_VERSION},
                      {"pid", static_cast<int64_t>(::getpid())}};
  if (!wire::write_frame(out, hello)) return 1;
  for (;;) {
    trim_when_idle(in);
    const auto message = wire::read_frame(in);
    if (!message) {
      std::fprintf(stderr, "jitune-worker: %s\n", message.error().c_str());
      return 1;
    }
    if (message->is_null()) return 0;  // the host is done with us
    const auto request = message->find("request");
    const Artifact artifact =
        request == message->end() ? refusal("a message without 'request'") : compiler.compile(*request);
    const auto sent = wire::write_frame(out, {{"id", wire::get_int(*message, "id")}, {"reply", to_json(artifact)}});
    if (!sent) return 1;
  }
}

}  // namespace

int serve(int in, int out, const std::string& nvrtc_path) {
  try {
    return serve_requests(in, out, nvrtc_path);
  } catch (const std::exception& error) {  // out of memory: the host sees an exit and our last words
    std::fprintf(stderr, "jitune-worker: %s\n", error.what());
    return 1;
  }
}

}  // namespace jitune::compile
