#include "spec.hpp"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace fake_cuda {
namespace {

using Json = nlohmann::json;

Fault parse_fault(const std::string& word) {
  static const std::map<std::string, Fault> words{{"", Fault::none},
                                                  {"hang", Fault::hang},
                                                  {"illegal_address", Fault::illegal_address},
                                                  {"launch_error", Fault::launch_error},
                                                  {"out_of_memory", Fault::out_of_memory},
                                                  {"wrong", Fault::wrong},
                                                  {"half", Fault::half},
                                                  {"out_of_bounds", Fault::out_of_bounds},
                                                  {"before_bounds", Fault::before_bounds},
                                                  {"input", Fault::input},
                                                  {"zero_time", Fault::zero_time},
                                                  {"device_lost", Fault::device_lost}};
  const auto found = words.find(word);
  if (found == words.end()) throw std::runtime_error("no such fault: " + word);
  return found->second;
}

Device parse_device(const Json& json) {
  Device device;
  device.name = json.value("name", device.name);
  device.uuid = json.value("uuid", device.uuid);
  const std::string cc = json.value("cc", "9.0");
  device.cc_major = std::stoi(cc);
  device.cc_minor = std::stoi(cc.substr(cc.find('.') + 1));
  device.sm_count = json.value("sm_count", device.sm_count);
  device.memory_bytes = json.value("memory_bytes", device.memory_bytes);
  device.l2_bytes = json.value("l2_bytes", device.l2_bytes);
  device.smem_optin_bytes = json.value("smem_optin_bytes", device.smem_optin_bytes);
  device.clock_mhz = json.value("clock_mhz", device.clock_mhz);
  device.memory_clock_mhz = json.value("memory_clock_mhz", device.memory_clock_mhz);
  device.ipc = json.value("ipc", device.ipc);
  device.compute_mode = json.value("compute_mode", device.compute_mode);
  device.mps = json.value("mps", device.mps);
  device.slower = json.value("slower", device.slower);
  device.factors = json.value("factors", device.factors);
  device.lost_after = json.value("lost_after", device.lost_after);
  device.busy_clocks_mhz = json.value("busy_clocks_mhz", device.busy_clocks_mhz);
  return device;
}

Rule parse_rule(const Json& json) {
  Rule rule;
  rule.match = json.value("match", std::string());
  rule.pattern = std::regex(rule.match);
  rule.time_us = json.value("time_us", rule.time_us);
  rule.per_block_us = json.value("per_block_us", rule.per_block_us);
  rule.factors = json.value("factors", rule.factors);
  rule.spread = json.value("spread", rule.spread);
  rule.noise = json.value("noise", rule.noise);
  rule.first = json.value("first", rule.first);
  rule.drift = json.value("drift", rule.drift);
  rule.regs = json.value("regs", rule.regs);
  rule.static_smem_bytes = json.value("static_smem", rule.static_smem_bytes);
  rule.local_bytes = json.value("local", rule.local_bytes);
  rule.fault = parse_fault(json.value("fault", std::string()));
  rule.after = json.value("after", rule.after);
  return rule;
}

}  // namespace

Spec parse_spec(const std::string& text) {
  const Json json = text.empty() ? Json::object() : Json::parse(text);
  Spec spec;
  spec.init = json.value("init", 0);
  spec.real_time = json.value("real_time", false);
  spec.log = json.value("log", std::string());
  spec.lost_file = json.value("lost_file", std::string());
  spec.plugins = json.value("plugins", spec.plugins);
  if (const auto devices = json.find("devices"); devices != json.end())
    for (const Json& device : *devices) spec.devices.push_back(parse_device(device));
  else
    spec.devices.emplace_back();
  if (const auto rules = json.find("kernels"); rules != json.end())
    for (const Json& rule : *rules) spec.rules.push_back(parse_rule(rule));
  Rule rest;
  rest.spread = 0.5;
  rest.noise = 0.005;
  spec.rules.push_back(rest);
  return spec;
}

Spec spec_from_environment() {
  const char* value = std::getenv("JITUNE_FAKE_CUDA");
  std::string text = value == nullptr ? "" : value;
  try {
    if (!text.empty() && text[0] == '@') {
      std::ifstream file(text.substr(1));
      if (!file) throw std::runtime_error("cannot read " + text.substr(1));
      text.assign(std::istreambuf_iterator<char>(file), {});
    }
    return parse_spec(text);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fake CUDA driver: JITUNE_FAKE_CUDA: %s\n", error.what());
    std::abort();
  }
}

const Rule& find_rule(const Spec& spec, const std::string& demangled) {
  for (const Rule& rule : spec.rules)
    if (rule.match.empty() || std::regex_search(demangled, rule.pattern)) return rule;
  return spec.rules.back();
}

}  // namespace fake_cuda
