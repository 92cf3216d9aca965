#pragma once

#include <cuda.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "gpu/module.hpp"
#include "space/instance.hpp"
#include "store/store.hpp"

namespace jitune::runtime {

/// The loaded modules of one kernel: one for each context and compilation, however many problems use it. They stay
/// loaded as long as their context lives, since captured graphs may hold their functions. Safe from any thread.
class Modules {
 public:
  struct Loaded {
    std::shared_ptr<gpu::Module> module;
    bool fresh = false;  ///< this call loaded it: symbols are as the source has them
    gpu::Trouble trouble;
  };

  /// The module of `artifact` in the current context, whose id is `context`; loaded if it is not yet.
  Loaded get(const gpu::Driver& driver, uint64_t context, const store::ArtifactRow& artifact);

  /// Raises the function's limits as far as `geometry` needs, never lowers them: other threads may be launching it.
  gpu::Trouble prepare(gpu::Module& module, const space::Geometry& geometry);

 private:
  std::mutex mutex_;
  std::map<std::pair<uint64_t, std::string>, std::shared_ptr<gpu::Module>> modules_;  // by context and build key
};

}  // namespace jitune::runtime
