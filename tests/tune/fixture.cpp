#include "tune/fixture.hpp"

#include <cstdlib>

#include "tune/compiler.hpp"

namespace jitune::test {
namespace {

std::string in_front(const std::string& directory) {
  const char* old = std::getenv("LD_LIBRARY_PATH");
  return old == nullptr ? directory : directory + ":" + old;
}

}  // namespace

Bench::Bench(const std::string& spec, std::chrono::milliseconds compile_timeout)
    : compile_timeout_(compile_timeout),
      library_path_("LD_LIBRARY_PATH", in_front(std::string(JITUNE_BINARY_DIR) + "/tests/fake_cuda").c_str()),
      spec_("JITUNE_FAKE_CUDA", spec.c_str()),
      log_({&Bench::note, this}, Log::Threshold::debug, false) {
  reopen();
}

Bench::~Bench() = default;

void Bench::note(void* bench, const Event& event) noexcept {
  auto* self = static_cast<Bench*>(bench);
  const std::lock_guard lock(self->mutex_);
  ++self->events_[std::string(event.code)];
}

int Bench::logged(const std::string& code) const {
  const std::lock_guard lock(mutex_);
  const auto at = events_.find(code);
  return at == events_.end() ? 0 : at->second;
}

void Bench::reopen() {
  services_.reset();
  tune::ServiceOptions options;
  options.store.path = dir_ / "jitune.db";
  options.store.must_be_file = true;
  options.worker = std::string(JITUNE_BINARY_DIR) + "/bin/jitune-worker";
  options.cuda_home = std::getenv("CUDA_HOME") != nullptr ? std::getenv("CUDA_HOME") : "";
  options.compile_workers = 2;
  options.compile_timeout = compile_timeout_;
  options.log = &log_;
  auto services = tune::Services::open(options);
  REQUIRE_MESSAGE(services.ok(), services.error());
  services_ = std::move(*services);
}

Reference Bench::plain() {
  return {.entry = "scale<float>",
          .source_text =
              "template <class T> __global__ void scale(T* y, const T* x, float a, int n) "
              "{ int i = blockIdx.x * 256 + threadIdx.x; if (i < n) y[i] = a * x[i]; }",
          .grid = {"ceil_div(n, 256)"},
          .block = {"256"}};
}

KernelDefinition Bench::scale() {
  return {.name = "scale",
          .source_text =
              "template <int BLOCK, int ITEMS> __global__ void scale(float* y, const float* x, float a, int n) "
              "{ for (int k = 0; k < ITEMS; ++k) { int i = (blockIdx.x * ITEMS + k) * BLOCK + threadIdx.x; "
              "if (i < n) y[i] = a * x[i]; } }",
          .entry = "scale<{BLOCK}, {ITEMS}>",
          .problem = {"n"},
          .params = {{"BLOCK", {64, 128, 256}}, {"ITEMS", {1, 2, 4}}},
          .launch = {.grid = {"ceil_div(n, BLOCK * ITEMS)"}, .block = {"BLOCK"}},
          .args = {out("y", "float", "n"), in("x", "float", "n"), scalar("a", "float", "2.0"), scalar("n", "int", "n")},
          .defaults = {{.config = {{"BLOCK", "64"}, {"ITEMS", "1"}}}}};
}

space::DeviceInfo Bench::device() const {
  space::DeviceInfo info = *space::nominal_device("sm_90");
  info.name = "Fake H200";
  info.uuid = "GPU-fa4e0000-0000-4000-8000-000000000000";
  return info;
}

tune::Request Bench::request(const KernelDefinition& definition) {
  auto bound = space::Instance::bind(space::Model::make(definition), {{"n", Value(4096)}}, device());
  REQUIRE_MESSAGE(bound.ok(), bound.error());
  instance_ = std::make_shared<space::Instance>(*bound);
  tune::Request request;
  request.instance = instance_.get();
  auto key = services_->tuning_key(*instance_);
  REQUIRE_MESSAGE(key.ok(), key.error());
  request.key = *key;
  return request;
}

tune::Outcome Bench::tune(const KernelDefinition& definition, const std::function<void(tune::Request&)>& change) {
  tune::Request asked = request(definition);
  change(asked);
  return tune::tune(*services_, asked);
}

bool have_nvrtc() {
  compile::NvrtcSearchOptions where;
  if (const char* home = std::getenv("CUDA_HOME")) where.cuda_home = home;
  const auto search = compile::find_nvrtc(where);
  if (search.found.empty()) skip("nvrtc", compile::explain_missing(search));
  return !search.found.empty();
}

}  // namespace jitune::test
