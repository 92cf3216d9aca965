#include "base/hash.hpp"
#include "key/key.hpp"

namespace jitune::key {
namespace {

/// Calls visit(label, value as text) for every hashed field of a tuning key, in the order in which they are hashed.
template <class Visit>
void visit_fields(const TuningKey& key, Visit visit) {
  visit("schema", std::to_string(key.schema));
  visit("kernel", key.kernel);
  visit("variant", key.variant);
  visit("source_sha256", key.source_sha256);
  visit("entry", key.entry);
  visit("options", key.options);
  visit("launch_sha256", key.launch_sha256);
  visit("problem", key.problem);
  visit("arch", key.arch);
  visit("cc", std::to_string(key.cc));
  visit("sm_count", std::to_string(key.sm_count));
  visit("memory_gib", std::to_string(key.memory_gib));
  visit("l2_bytes", std::to_string(key.l2_bytes));
  visit("max_clock_mhz", std::to_string(key.max_clock_mhz));
  visit("max_memory_clock_mhz", std::to_string(key.max_memory_clock_mhz));
  visit("nvrtc", key.nvrtc);
  visit("policy", key.policy);
  visit("environment", key.environment);
  visit("callables", key.callables);
}

}  // namespace

void seal(TuningKey& key) {
  FieldHasher hasher;
  visit_fields(key, [&](const char* label, const std::string& value) { hasher.field(label, value); });
  key.hashed_text = hasher.text();
  key.sha256 = hasher.finish();
}

std::vector<std::string> differences(const TuningKey& a, const TuningKey& b) {
  std::vector<std::string> labels, left, right, lines;
  visit_fields(a, [&](const char* label, const std::string& value) {
    labels.emplace_back(label);
    left.push_back(value);
  });
  visit_fields(b, [&](const char*, const std::string& value) { right.push_back(value); });
  for (size_t i = 0; i < labels.size(); ++i)
    if (left[i] != right[i])
      lines.push_back(labels[i] + ": " + (left[i].empty() ? "(none)" : left[i]) + " / " +
                      (right[i].empty() ? "(none)" : right[i]));
  return lines;
}

}  // namespace jitune::key
