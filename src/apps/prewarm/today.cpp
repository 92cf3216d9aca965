#include "apps/prewarm/today.hpp"

#include <algorithm>

#include "apps/prewarm/text.hpp"
#include "jitune/definition.hpp"

namespace jitune::prewarm {

Today::Today(const std::vector<std::string>& files) {
  for (const std::string& file : files)
    for (KernelDefinition& definition : load_all(file)) models_.push_back(space::Model::make(std::move(definition)));
}

std::shared_ptr<const space::Model> Today::find(const std::string& name) const {
  const auto at = std::find_if(models_.begin(), models_.end(), [&](const auto& each) { return each->name() == name; });
  return at == models_.end() ? nullptr : *at;
}

space::DeviceInfo device_of(const key::TuningKey& key) {
  const std::string arch = "sm_" + std::to_string(key.cc);
  space::DeviceInfo device = space::nominal_device(arch).value_or(space::nominal_device("sm_90").value());
  device.cc_major = key.cc / 10;
  device.cc_minor = key.cc % 10;
  device.sm_count = key.sm_count;
  device.memory_bytes = key.memory_gib << 30;
  device.l2_bytes = key.l2_bytes;
  device.max_clock_mhz = key.max_clock_mhz;
  device.max_memory_clock_mhz = key.max_memory_clock_mhz;
  return device;
}

Result<space::Instance> bind_to_key(std::shared_ptr<const space::Model> model, const key::TuningKey& key) {
  auto problem = space::parse_values(key.problem);
  if (!problem) return problem.failure();
  for (const ProblemValue& value : model->problem())
    if (value.ignore) problem->emplace(value.name, 1);
  return space::Instance::bind(std::move(model), *problem, device_of(key));
}

Result<key::TuningKey> key_as_of(const space::Instance& instance, const key::TuningKey& other) {
  const auto pattern = instance.build_pattern();
  const auto source =
      key::hash_source(pattern.source_text, pattern.source_directory, pattern.include_dirs, pattern.header_texts);
  if (!source) return source.failure();
  std::string callables = other.callables;
  if (instance.has_reference()) {
    const auto reference = instance.reference_pattern();
    const auto hash = key::hash_source(reference.source_text, "", reference.include_dirs, pattern.header_texts);
    if (!hash) return hash.failure();
    callables = key::reference_callables(instance, *hash);
  } else if (callables.find("\"kernel ") != std::string::npos) {
    callables = "{}";  // the definition has no reference kernel any more; a host's callable is not in files
  }
  return key::make_tuning_key(instance, *source, other.nvrtc, other.policy, other.environment, callables);
}

std::string field_names(const std::vector<std::string>& differences) {
  std::vector<std::string> names;
  for (const std::string& line : differences) names.push_back(line.substr(0, line.find(':')));
  return join_words(names);
}

Today::Judged Today::judge(const store::WinnerRecord& record) const {
  const auto model = find(record.key.kernel);
  if (!model) return {Verdict::unknown_kernel, "no definition of this kernel was given", {}};
  auto instance = bind_to_key(model, record.key);
  if (!instance) return {Verdict::stale, "its problem: " + instance.error(), {}};
  const auto today = key_as_of(*instance, record.key);
  if (!today) return {Verdict::stale, today.error(), *instance};
  if (today->sha256 != record.key.sha256) {
    const auto lines = key::differences(record.key, *today);
    if (field_names(lines) == "problem")
      return {Verdict::cannot_tell, "the bucket of its problem is not known to be today's: " + lines[0], *instance};
    return {Verdict::stale, field_names(lines) + " changed", *instance};
  }
  const auto config = space::parse_values(record.winner.config);
  if (!config) return {Verdict::invalid_config, config.error(), *instance};
  if (const auto wrong = instance->reject(*config)) return {Verdict::invalid_config, *wrong, *instance};
  if (const auto fallback = instance->default_config(); !fallback)
    return {Verdict::invalid_default, fallback.error(), *instance};
  return {Verdict::good, "", std::move(*instance)};
}

}  // namespace jitune::prewarm
