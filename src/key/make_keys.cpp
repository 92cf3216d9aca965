#include "base/hash.hpp"
#include "base/json.hpp"
#include "key/device_class.hpp"
#include "key/key.hpp"

namespace jitune::key {
namespace {

/// A string as JSON without loss: bytes that are no UTF-8 become {"hex": ...}, for the key must tell them apart.
Json exact(const std::string& text) {
  try {
    const Json json = text;
    (void)json.dump();  // strict: throws on what is not UTF-8
    return json;
  } catch (const Json::exception&) {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string hex;
    for (const char c : text) {
      hex += kDigits[static_cast<unsigned char>(c) >> 4];
      hex += kDigits[static_cast<unsigned char>(c) & 15];
    }
    return Json{{"hex", hex}};
  }
}

/// Options that can't change the code are none of a key's business.
std::vector<std::string> that_change_code(std::vector<std::string> options) {
  std::erase_if(
      options, [](const std::string& option) { return !space::changes_code(option.substr(0, option.find(" when "))); });
  return options;
}

Json exact_list(const std::vector<std::string>& texts) {
  Json list = Json::array();
  for (const std::string& text : texts) list.push_back(exact(text));
  return list;
}

int64_t to_gib(int64_t bytes) {
  constexpr int64_t kGib = int64_t{1} << 30;
  return (bytes + kGib / 2) / kGib;  // drivers differ by some MiB in what they reserve
}

void set_class(TuningKey& key, const space::DeviceInfo& device) {
  key.cc = device.cc();
  key.sm_count = device.sm_count;
  key.memory_gib = to_gib(device.memory_bytes);
  key.l2_bytes = device.l2_bytes;
  key.max_clock_mhz = device.max_clock_mhz;
  key.max_memory_clock_mhz = device.max_memory_clock_mhz;
}

}  // namespace

BuildKey make_build_key(const SourceHash& source, const space::BuildSpec& spec, const space::Config& config,
                        const std::string& nvrtc_build) {
  BuildKey key;
  key.source_sha256 = source.sha256;
  key.entry = spec.entry;
  key.is_template = spec.is_template;
  key.config = space::canonical(config);
  Json defines = Json::array();
  for (const auto& [name, value] : spec.defines) defines.push_back({exact(name), exact(value)});
  key.defines = canonical(defines);
  key.defines_before_includes = spec.defines_before_includes;
  key.headers = canonical(exact_list(spec.headers));
  key.options = canonical(exact_list(that_change_code(spec.options)));
  key.nvrtc = nvrtc_build;
  key.arch = spec.arch;
  key.sha256 = FieldHasher()
                   .field("schema", kKeySchema)
                   .field("source_sha256", key.source_sha256)
                   .field("entry", key.entry)
                   .field("is_template", int{key.is_template})
                   .field("config", key.config)
                   .field("defines", key.defines)
                   .field("defines_before_includes", int{key.defines_before_includes})
                   .field("headers", key.headers)
                   .field("options", key.options)
                   .field("nvrtc", key.nvrtc)
                   .field("arch", key.arch)
                   .finish();
  return key;
}

TuningKey make_tuning_key(const space::Instance& instance, const SourceHash& source, const std::string& nvrtc_build,
                          const std::string& policy, const std::string& environment, const std::string& callables) {
  const space::Instance::BuildPattern pattern = instance.build_pattern();
  TuningKey key;
  key.kernel = instance.model().name();
  key.variant = instance.variant();
  key.source_sha256 = source.sha256;
  key.entry = pattern.entry;
  key.options = canonical({{"defines_before_includes", pattern.defines_before_includes},
                           {"headers", exact_list(pattern.headers)},
                           {"macros", exact_list(pattern.macros)},
                           {"options", exact_list(that_change_code(pattern.options))}});
  key.launch_sha256 = sha256_hex(instance.launch_pattern());
  key.problem = space::canonical(instance.bucketed_problem());
  key.arch = pattern.arch;
  set_class(key, instance.device());
  key.nvrtc = nvrtc_build;
  key.policy = policy;
  key.environment = environment;
  key.callables = callables;
  seal(key);
  return key;
}

std::string reference_callables(const space::Instance& instance, const SourceHash& source) {
  if (const auto& host = instance.model().definition().host_reference)
    return canonical({{"reference", "host " + host->version}});
  if (!instance.has_reference()) return "{}";
  const std::string sha256 = FieldHasher()
                                 .field("source_sha256", source.sha256)
                                 .field("pattern", instance.reference_pattern().pattern)
                                 .finish();
  return canonical({{"reference", "kernel " + sha256.substr(0, 32)}});
}

std::vector<std::string> class_differences(const space::DeviceInfo& a, const space::DeviceInfo& b) {
  TuningKey left, right;
  set_class(left, a);
  set_class(right, b);
  return differences(left, right);
}

}  // namespace jitune::key
