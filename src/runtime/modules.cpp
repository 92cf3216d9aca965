#include "runtime/modules.hpp"

namespace jitune::runtime {

Modules::Loaded Modules::get(const gpu::Driver& driver, uint64_t context, const store::ArtifactRow& artifact) {
  const std::lock_guard lock(mutex_);
  const std::pair<uint64_t, std::string> key(context, artifact.build_sha256);
  if (!artifact.build_sha256.empty())
    if (const auto known = modules_.find(key); known != modules_.end()) return {known->second, false, {}};
  auto module = std::make_shared<gpu::Module>();
  if (auto trouble = module->load(driver, artifact.cubin, artifact.lowered_name)) return {nullptr, false, trouble};
  module->keep();
  if (!artifact.build_sha256.empty()) modules_.emplace(key, module);
  return {std::move(module), true, {}};
}

gpu::Trouble Modules::prepare(gpu::Module& module, const space::Geometry& geometry) {
  const std::lock_guard lock(mutex_);  // two threads that ask and raise by turns could lower the limit
  return module.prepare(geometry);
}

}  // namespace jitune::runtime
