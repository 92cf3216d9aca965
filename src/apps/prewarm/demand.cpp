// Work that launches left in the database: misses.
#include <map>
#include <set>
#include <utility>

#include "apps/prewarm/exit_codes.hpp"
#include "apps/prewarm/kernels.hpp"
#include "space/definition_json.hpp"

namespace jitune::prewarm {
namespace {

/// Models by definition, each made once.
class Definitions {
 public:
  explicit Definitions(store::Store& store) : store_(store) {}

  Result<std::shared_ptr<const space::Model>> find(const std::string& sha256) {
    if (const auto known = models_.find(sha256); known != models_.end()) return known->second;
    auto made = make(sha256);
    return models_.emplace(sha256, std::move(made)).first->second;
  }

 private:
  Result<std::shared_ptr<const space::Model>> make(const std::string& sha256) {
    if (sha256.empty()) return Failure{"its definition was not kept"};
    auto text = store_.definition(sha256);
    if (!text) return text.failure();
    auto definition = space::parse_definition(*text);
    if (!definition) return definition.failure();
    try {
      return space::Model::make(std::move(*definition));
    } catch (const Error& error) {
      return Failure{error.what()};
    }
  }

  store::Store& store_;
  std::map<std::string, Result<std::shared_ptr<const space::Model>>> models_;
};

/// What a row asks for; nothing, having said why, when it can't be tuned.
std::optional<Work> work_of(Definitions& definitions, const std::string& kernel, const std::string& problem,
                            const std::string& definition, const std::function<void(const std::string&)>& warn) {
  auto values = space::parse_values(problem);
  auto model = definitions.find(definition);
  if (!values || !model) {
    warn("kernel '" + kernel + "', problem " + problem + " is left out: " + (values ? model.error() : values.error()));
    return std::nullopt;
  }
  return Work{*model, {*values, space::short_text(*values), kernel + " " + space::short_text(*values)}};
}

[[noreturn]] void nothing_to_do(const std::string& what, const std::string& device, size_t others, size_t unusable) {
  std::string text = "there are no " + what + " of " + device + " in the database";
  if (others > 0) text += "; " + std::to_string(others) + " are of other GPUs or kernels";
  if (unusable > 0) text += "; " + std::to_string(unusable) + " can't be tuned";
  throw Stop(Exit::ok, text);
}

}  // namespace

std::vector<Work> load_misses(const Options& options, store::Store& store, const std::string& device,
                              const std::function<void(const std::string&)>& warn) {
  auto misses = store.misses();
  if (!misses) throw Stop(Exit::database, misses.error());
  Definitions definitions(store);
  std::vector<Work> work;
  std::set<std::string> keys;  // of several problems of one bucket the most wanted is tuned
  size_t others = 0, unusable = 0;
  for (const auto& miss : *misses) {
    if (miss.device != device || (!options.kernel.empty() && miss.kernel != options.kernel)) {
      ++others;
      continue;
    }
    if (!keys.insert(miss.key_sha256).second) continue;
    if (auto item = work_of(definitions, miss.kernel, miss.problem, miss.definition_sha256, warn))
      work.push_back(std::move(*item));
    else
      ++unusable;
  }
  if (work.empty()) nothing_to_do("misses", device, others, unusable);
  return work;
}

}  // namespace jitune::prewarm
