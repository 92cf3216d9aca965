#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/prewarm/captures.hpp"
#include "apps/prewarm/options.hpp"
#include "apps/prewarm/problems.hpp"
#include "space/instance.hpp"
#include "store/store.hpp"

namespace jitune::prewarm {

/// A kernel and one of its problems.
struct Work {
  std::shared_ptr<const space::Model> model;
  ProblemSpec problem;
  std::shared_ptr<const CapturedData> data = {};  ///< of a captured launch; null: fills
};

/// Loads the kernels of `options.files` and gives each the problems whose names are exactly its own. Opens nothing
/// else. `warn` hears of kernels that no problem fits. Throws jitune::Error for what is wrong in a definition and Stop
/// for a problem that fits no kernel, or when there is nothing to do.
std::vector<Work> load_work(const Options& options, const std::function<void(const std::string&)>& warn);

/// The misses of `store` that are of this GPU, most wanted first, by the definitions that launches left with them.
/// `warn` hears of those that can't be tuned. Throws Stop where there is nothing to do.
std::vector<Work> load_misses(const Options& options, store::Store& store, const std::string& device,
                              const std::function<void(const std::string&)>& warn);

/// A kernel, its problem and a device.
struct Task {
  space::Instance instance;
  ProblemSpec problem;
  std::shared_ptr<const CapturedData> data = {};
  std::string label() const;  ///< `rmsnorm T=half hidden=8192 rows=4096`
};

/// Throws Stop{usage} where a value is of a kind that the kernel can't use.
std::vector<Task> bind_work(const std::vector<Work>& work, const space::DeviceInfo& device);

/// Throws Stop{no_valid_config}, with what rejects the points, when a task has an empty space. A space too large to be
/// walked in about a second counts as not empty.
void check_not_empty(const std::vector<Task>& tasks);

/// `BLOCK=128 VEC=4` of canonical JSON, or the text itself when it is not that.
std::string values_text(const std::string& canonical);

/// More than 100,000 valid configs, or too many points to say quickly: trying all of them needs a bound.
bool is_vast(const space::Instance& instance);

/// `no config is valid: ...`, with the constraints that reject points.
std::string explain_empty(const space::SpaceCount& count);

}  // namespace jitune::prewarm
