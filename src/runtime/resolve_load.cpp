#include <fnmatch.h>

#include <cstdio>
#include <utility>

#include "gpu/driver.hpp"
#include "runtime/caller_data.hpp"
#include "runtime/capture_file.hpp"
#include "runtime/kernel_state.hpp"
#include "runtime/resolver.hpp"
#include "tune/compiler.hpp"

namespace jitune::runtime {
namespace {

std::string microseconds(double us) {
  char text[48];
  std::snprintf(text, sizeof text, "%.2f us", us);
  return text;
}

}  // namespace

/// For JITUNE_CAPTURE: stores this launch, if it is one of those.
void Resolver::capture_launch() {
  const auto& settings = tuner_.settings();
  const std::string& name = kernel_.model().name();
  if (arguments_.empty() || capturing_ || ::fnmatch(settings.capture.c_str(), name.c_str(), 0) != 0) return;
  auto stored = write_capture(driver_, stream_, capture_directory(settings.database), kernel_.definition_text(),
                              *instance_, *key_, arguments_, settings.capture_bytes);
  if (!stored)
    tuner_.log().warning("capture_failed", name, "the launch is not captured: " + stored.error(), key_->sha256);
  else if (!stored->empty())
    tuner_.log().info("captured", name, *stored);
}

/// What keeps a loaded function from running at this geometry, as far as only the driver knows it; "" for nothing.
std::string Resolver::device_limit(const gpu::Module& module, const space::Geometry& geometry) const {
  int most = 0;
  const CUresult code = driver_.cuFuncGetAttribute(&most, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, module.function());
  if (code != CUDA_SUCCESS || geometry.threads() <= static_cast<uint64_t>(most)) return "";
  return "its registers leave room for " + std::to_string(most) + " threads in a block on this GPU, it asks for " +
         std::to_string(geometry.threads());
}

/// The compiled config from the build cache, if it is there with its cubin. Compiles nothing and loads no NVRTC.
std::optional<store::ArtifactRow> Resolver::stored_artifact(const space::Config& config) {
  auto nvrtc = services_->nvrtc();
  auto source = services_->source_hash(*instance_);
  if (!nvrtc || !source) return std::nullopt;
  auto job = tune::make_job(*instance_, config, *source, nvrtc->build);
  if (!job) return std::nullopt;
  auto row = services_->store().find_artifact(job->build.sha256);
  if (!row || !*row || (*row)->status != "ok" || (*row)->cubin.empty()) return std::nullopt;
  return std::move(**row);
}

std::unique_ptr<Plan> Resolver::load(const PlanKey& key, Answer answer) {
  std::unique_ptr<Plan> plan;
  const std::string trouble = load_into(key, answer, plan);
  if (!plan && answer.choice.source == Choice::Source::given && !capturing_)
    kernel_.raise(ErrorCode::no_runnable_config,
                  "the config given by hand, " + answer.choice.config + ", can't be used: " + trouble);
  if (!plan)
    kernel_.raise(
        capturing_ ? ErrorCode::not_prepared : ErrorCode::no_runnable_config,
        (capturing_ ? "the stream is being captured into a graph and nothing is loaded for this problem; call "
                      "prepare before the capture: "
                    : "not even the default config can be used: ") +
            trouble);
  return plan;
}

std::unique_ptr<Plan> Resolver::default_plan(const PlanKey& key, bool may_compile) {
  std::unique_ptr<Plan> plan;
  reserves_ = false;  // it may never be launched
  try {
    bind();
    Answer answer = default_answer("the track is heuristic");
    answer.artifact = stored_artifact(answer.config);
    std::string trouble = "its cubin is not in the database";
    if (answer.artifact || may_compile) trouble = load_into(key, answer, plan);
    if (plan == nullptr)
      tuner_.log().info("default_not_loaded", kernel_.model().name(),
                        "the default config " + answer.choice.config + " was not loaded ahead: " + trouble);
  } catch (const Error& error) {
    tuner_.log().info("default_not_loaded", kernel_.model().name(), error.message());
  }
  return plan;
}

/// Gets the artifact (compiling it where it is not at hand), loads it and makes the plan. Returns what went wrong.
std::string Resolver::load_into(const PlanKey& key, Answer& answer, std::unique_ptr<Plan>& plan) {
  auto& services = *services_;
  if (capturing_ && (!answer.artifact || answer.artifact->cubin.empty())) {
    answer.artifact = stored_artifact(answer.config);
    if (!answer.artifact) return "its cubin is not in the database";
  }
  if (!answer.artifact || answer.artifact->cubin.empty()) {
    auto compiler = services.compiler();
    if (!compiler) return compiler.error();
    auto source = services.source_hash(*instance_);
    if (!source) return source.error();
    auto job = tune::make_job(*instance_, answer.config, *source, (*compiler)->nvrtc().build);
    if (!job) return job.error();
    const int before = (*compiler)->compilations();
    auto compiled = (*compiler)->compile(std::move(*job));
    tuner_.compilations.fetch_add((*compiler)->compilations() - before, std::memory_order_relaxed);
    if (compiled.artifact.status != "ok")
      return "it does not compile (" + compiled.artifact.status + "):\n" + compiled.artifact.log;
    answer.artifact = std::move(compiled.artifact);
  }
  const auto& artifact = *answer.artifact;
  Plan::Making making;
  making.key = key;
  making.driver = &driver_;
  auto loaded = kernel_.modules_.get(driver_, key.context, artifact);
  if (loaded.trouble) return loaded.trouble.message;
  making.module = loaded.module;

  space::KernelFacts facts{artifact.regs, artifact.static_smem_bytes, artifact.local_bytes, 1};
  auto geometry = instance_->geometry(answer.config, facts);
  if (!geometry) return geometry.error();
  if (auto trouble = kernel_.modules_.prepare(*making.module, *geometry)) return trouble.message;
  if (const std::string wrong = device_limit(*making.module, *geometry); !wrong.empty()) return wrong;
  if (instance_->needs_kernel_facts()) {
    // Occupancy is known only now; the grid may depend on it.
    if (auto trouble = making.module->facts(*geometry, facts)) return trouble.message;
    geometry = instance_->geometry(answer.config, facts);
    if (!geometry) return geometry.error();
  }
  auto args = instance_->args(answer.config, facts);
  if (!args) return args.error();
  making.geometry = *geometry;
  making.args = std::move(*args);
  if (!arguments_.empty()) {
    if (auto checked = check_buffers(driver_, making.args, arguments_); !checked)
      kernel_.raise(ErrorCode::bad_arguments, checked.error());
  }
  if (answer.choice.time_us > 0 && answer.choice.why.empty()) answer.choice.why = microseconds(answer.choice.time_us);
  making.choice = answer.choice;
  making.provisional = answer.provisional;
  if (answer.is_miss) making.miss = miss_;
  if (making.miss != nullptr) making.counter = kernel_.counters_.make();
  making.track = (may_tune_ && !capturing_) || reasons_ ? track_ : Track::lookup;
  auto made = std::make_unique<Plan>(std::move(making));
  if (!capturing_ && reserves_) {
    if (auto reserved = made->reserve(stream_); reserved.code != CUDA_SUCCESS)
      return driver_.describe(reserved.what, reserved.code);
  }
  const std::lock_guard lock(kernel_.mutex_);
  // Copies to a module's variables wait for the GPU; one that was loaded before has them already.
  if (capturing_ && loaded.fresh && !kernel_.symbols_.empty())
    return "its symbols can't be set while a stream is being captured";
  for (const auto& [name, bytes] : kernel_.symbols_)
    if (capturing_)
      break;
    else if (auto trouble = made->set_symbol(name, bytes.data(), bytes.size()))
      return trouble.message;
  plan = std::move(made);
  return "";
}

}  // namespace jitune::runtime
