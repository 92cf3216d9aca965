#include "measure/protocol.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "measure/messages.hpp"

namespace jitune::measure {
namespace {

constexpr std::array kMethodWords{"auto", "stream", "graph", "cupti"};
constexpr std::array kStatusWords{
    "ok",           "early_stopped", "skipped",   "compile_error", "compile_timeout", "compile_crash",
    "launch_error", "run_timeout",   "run_crash", "wrong_result",  "out_of_bounds"};

Result<void> expect_op(const Json& json, const std::string& op) {
  if (!json.is_object()) return Failure{"the message is no map"};
  const std::string found = wire::get_string(json, "op");
  if (found != op) return Failure{"the message's op is `" + found + "`, not `" + op + "`"};
  return {};
}

Json policy_to_json(const Policy& policy) {
  return {{"method", number(policy.method)},   {"cold_l2", policy.cold_l2}, {"min_samples", policy.min_samples},
          {"max_samples", policy.max_samples}, {"margins", policy.margins}, {"lost_best", policy.lost_best},
          {"fixed_ms", policy.fixed_ms},       {"tie", policy.tie},         {"check", policy.check}};
}

Policy policy_from_json(const Json& json) {
  Policy policy;
  (void)read_enum(json, "method", Policy::Method::cupti, policy.method);
  policy.cold_l2 = wire::get_bool(json, "cold_l2", policy.cold_l2);
  policy.min_samples = to_int(wire::get_int(json, "min_samples", policy.min_samples));
  policy.max_samples = to_int(wire::get_int(json, "max_samples", policy.max_samples));
  if (json.contains("margins")) policy.margins = numbers<double>(json, "margins");
  policy.lost_best = wire::get_double(json, "lost_best", policy.lost_best);
  policy.fixed_ms = wire::get_double(json, "fixed_ms", policy.fixed_ms);
  policy.tie = wire::get_double(json, "tie", policy.tie);
  policy.check = wire::get_bool(json, "check", policy.check);
  return policy;
}

Json source_to_json(const DataSource& source) {
  return {{"kind", number(source.kind)},
          {"ipc_handle", wire::to_binary(source.ipc_handle)},
          {"offset", source.offset},
          {"shm_name", source.shm_name},
          {"address", static_cast<int64_t>(source.address)}};
}

Result<DataSource> source_from_json(const Json& json) {
  DataSource source;
  if (!json.is_object() || !read_enum(json, "kind", DataSource::Kind::device, source.kind))
    return Failure{"a data source of the message is malformed"};
  source.ipc_handle = wire::get_bytes(json, "ipc_handle");
  source.offset = wire::get_int(json, "offset");
  source.shm_name = wire::get_string(json, "shm_name");
  source.address = static_cast<uint64_t>(wire::get_int(json, "address"));
  if (source.offset < 0) return Failure{"a data source of the message has a negative offset"};
  return source;
}

Json facts_map(const space::KernelFacts& facts) {
  return {{"regs", facts.regs},
          {"static_smem_bytes", facts.static_smem_bytes},
          {"local_bytes", facts.local_bytes},
          {"max_blocks_per_sm", facts.max_blocks_per_sm}};
}

space::KernelFacts facts_of(const Json& json) {
  space::KernelFacts facts;
  const auto found = json.find("facts");
  if (found == json.end()) return facts;
  facts.regs = to_int(wire::get_int(*found, "regs"));
  facts.static_smem_bytes = wire::get_int(*found, "static_smem_bytes");
  facts.local_bytes = wire::get_int(*found, "local_bytes");
  facts.max_blocks_per_sm = to_int(wire::get_int(*found, "max_blocks_per_sm"));
  return facts;
}

/// Of a graph sample; 0: not decided.
int launches_of(const Json& json) {
  return to_int(std::clamp<int64_t>(wire::get_int(json, "launches"), 0, 1024));
}

std::string percent(double share) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g", share * 100);
  return text.data();
}

}  // namespace

std::string Policy::text() const {
  std::string stops;
  for (const double margin : margins) stops += (stops.empty() ? "" : "/") + percent(margin);
  std::string text = std::string(cold_l2 ? "cold-l2 " : "hot-l2 ") + to_string(method);
  if (fixed_ms > 0) {
    text += " fixed=" + percent(fixed_ms / 100) + "ms";
  } else {
    text += " samples=" + std::to_string(min_samples) + ".." + std::to_string(max_samples);
    text += " stop=" + (stops.empty() ? "never" : stops + "% lost=" + percent(lost_best) + "%");
  }
  return text + " tie=" + percent(tie) + "%" + (check ? "" : " unchecked");
}

const char* to_string(Policy::Method method) noexcept {
  const auto index = static_cast<size_t>(method);
  return index < kMethodWords.size() ? kMethodWords[index] : "unknown";
}

std::optional<Policy::Method> parse_method(std::string_view word) noexcept {
  for (size_t i = 0; i < kMethodWords.size(); ++i)
    if (word == kMethodWords[i]) return static_cast<Policy::Method>(i);
  return std::nullopt;
}

Result<Policy> parse_policy(std::string_view words) {
  Policy policy;
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    const std::string_view word = words.substr(0, end);
    words.remove_prefix(std::min(end + 1, words.size()));
    if (word.empty()) continue;
    if (const auto method = parse_method(word))
      policy.method = *method;
    else if (word == "cold" || word == "hot")
      policy.cold_l2 = word == "cold";
    else if (word == "unchecked")
      policy.check = false;
    else
      return Failure{"`" + std::string(word) + "` is none of cold, hot, auto, stream, graph, cupti, unchecked"};
  }
  return policy;
}

const char* to_string(TrialStatus status) noexcept {
  const auto index = static_cast<size_t>(status);
  return index < kStatusWords.size() ? kStatusWords[index] : "unknown";
}

std::optional<TrialStatus> parse_trial_status(std::string_view word) noexcept {
  for (size_t i = 0; i < kStatusWords.size(); ++i)
    if (word == kStatusWords[i]) return static_cast<TrialStatus>(i);
  return std::nullopt;
}

Json to_json(const Setup& setup) {
  Json data = Json::array();
  for (const DataSource& source : setup.data) data.push_back(source_to_json(source));
  Json also = Json::array();
  for (const Setup::Problem& problem : setup.also)
    also.push_back({{"text", problem.text},
                    {"weight", problem.weight},
                    {"args", args_to_json(problem.args)},
                    {"launches", problem.launches}});
  return {{"op", "setup"},
          {"also", std::move(also)},
          {"text", setup.text},
          {"weight", setup.weight},
          {"device_uuid", setup.device_uuid},
          {"args", args_to_json(setup.args)},
          {"data", std::move(data)},
          {"seed", static_cast<int64_t>(setup.seed)},
          {"policy", policy_to_json(setup.policy)},
          {"utility_cubin", wire::to_binary(setup.utility_cubin)},
          {"toolkit_dir", setup.toolkit_dir},
          {"memory_limit_bytes", setup.memory_limit_bytes},
          {"launches", setup.launches}};
}

Json to_json(const TrialRequest& request) {
  Json json{{"op", "trial"},
            {"candidate", candidate_to_json(request.candidate)},
            {"reference", request.reference},
            {"group", request.group}};
  json["margins"] = request.margins;
  if (request.launches > 0) {
    json["method"] = static_cast<int>(request.method);
    json["launches"] = request.launches;
    json["also_launches"] = request.also_launches;
  }
  if (std::isfinite(request.bound_us)) json["bound_us"] = request.bound_us;  // absent: infinite
  return json;
}

Json to_json(const RematchRequest& request) {
  Json candidates = Json::array();
  for (const Candidate& candidate : request.candidates) candidates.push_back(candidate_to_json(candidate));
  return {{"op", "rematch"},
          {"candidates", std::move(candidates)},
          {"fewest_rounds", request.fewest_rounds},
          {"most_rounds", request.most_rounds},
          {"default_index", request.default_index},
          {"share", request.share}};
}

Json to_json(const FactsRequest& request) {
  return {{"op", "facts"},
          {"cubin", wire::to_binary(request.cubin)},
          {"lowered_name", request.lowered_name},
          {"geometry", geometry_to_json(request.geometry)}};
}

Json to_json(const HostDataRequest& request) {
  return {{"op", "host_data"},
          {"what", number(request.what)},
          {"shm_name", request.shm_name},
          {"offsets", request.offsets},
          {"poison", static_cast<int64_t>(request.poison)},
          {"second_poison", static_cast<int64_t>(request.second_poison)},
          {"problem", request.problem}};
}

Json to_json(const HostDataReply& reply) {
  return {{"op", "host_data"}, {"ok", reply.ok}, {"error", reply.error}, {"context_lost", reply.context_lost}};
}

Result<HostDataRequest> host_data_request_from_json(const Json& json) {
  if (auto op = expect_op(json, "host_data"); !op) return op.failure();
  HostDataRequest request;
  if (!read_enum(json, "what", HostDataRequest::What::outputs_again, request.what))
    return Failure{"the message wants an unknown kind of the host's data"};
  request.shm_name = wire::get_string(json, "shm_name");
  request.offsets = numbers<int64_t>(json, "offsets");
  request.poison = static_cast<uint32_t>(wire::get_int(json, "poison"));
  request.second_poison = static_cast<uint32_t>(wire::get_int(json, "second_poison"));
  request.problem = to_int(wire::get_int(json, "problem"));
  return request;
}

Result<HostDataReply> host_data_reply_from_json(const Json& json) {
  if (auto op = expect_op(json, "host_data"); !op) return op.failure();
  HostDataReply reply;
  reply.ok = wire::get_bool(json, "ok");
  reply.error = wire::get_string(json, "error");
  reply.context_lost = wire::get_bool(json, "context_lost");
  return reply;
}

Json to_json(const SetupReply& reply) {
  return {{"op", "setup"},
          {"ok", reply.ok},
          {"out_of_memory", reply.out_of_memory},
          {"error", reply.error},
          {"ready_ms", reply.ready_ms},
          {"buffer_bytes", reply.buffer_bytes},
          {"free_bytes", reply.free_bytes}};
}

Json to_json(const TrialReply& reply) {
  return {{"op", "trial"},
          {"status", to_string(reply.status)},
          {"samples_us", reply.samples_us},
          {"first_us", reply.first_us},
          {"facts", facts_map(reply.facts)},
          {"clock_mhz", reply.clock_mhz},
          {"method", number(reply.method)},
          {"launches", reply.launches},
          {"also_launches", reply.also_launches},
          {"stop", reply.stop},
          {"load_ms", reply.load_ms},
          {"check_ms", reply.check_ms},
          {"run_ms", reply.run_ms},
          {"error", reply.error},
          {"group", reply.group},
          {"context_lost", reply.context_lost},
          {"device_lost", reply.device_lost},
          {"wall_ms", reply.wall_ms}};
}

Json to_json(const RematchReply& reply) {
  return {{"op", "rematch"},
          {"ok", reply.ok},
          {"error", reply.error},
          {"samples_us", reply.samples_us},
          {"discarded", reply.discarded},
          {"launches", reply.launches},
          {"context_lost", reply.context_lost}};
}

Result<Setup> setup_from_json(const Json& json) {
  if (auto op = expect_op(json, "setup"); !op) return op.failure();
  Setup setup;
  setup.device_uuid = wire::get_string(json, "device_uuid");
  Result<std::vector<space::ArgSpec>> args = args_from_json(json);
  if (!args) return args.failure();
  setup.args = std::move(*args);
  if (const Json* data = find_array(json, "data"); data != nullptr)
    for (const Json& item : *data) {
      Result<DataSource> source = source_from_json(item);
      if (!source) return source.failure();
      setup.data.push_back(std::move(*source));
    }
  if (!setup.data.empty() && setup.data.size() != setup.args.size())
    return Failure{"the message has " + std::to_string(setup.data.size()) + " data sources for " +
                   std::to_string(setup.args.size()) + " args"};
  setup.seed = static_cast<uint64_t>(wire::get_int(json, "seed", 1));
  if (const auto policy = json.find("policy"); policy != json.end()) setup.policy = policy_from_json(*policy);
  setup.utility_cubin = wire::get_bytes(json, "utility_cubin");
  setup.toolkit_dir = wire::get_string(json, "toolkit_dir");
  setup.memory_limit_bytes = wire::get_int(json, "memory_limit_bytes");
  setup.launches = launches_of(json);
  setup.text = wire::get_string(json, "text");
  setup.weight = wire::get_double(json, "weight", 1);
  if (const Json* also = find_array(json, "also"); also != nullptr)
    for (const Json& item : *also) {
      Setup::Problem problem;
      Result<std::vector<space::ArgSpec>> own = args_from_json(item);
      if (!own) return own.failure();
      problem.args = std::move(*own);
      problem.text = wire::get_string(item, "text");
      problem.weight = wire::get_double(item, "weight", 1);
      problem.launches = launches_of(item);
      setup.also.push_back(std::move(problem));
    }
  for (const Setup::Problem& problem : setup.also)
    if (!(problem.weight > 0) || !(setup.weight > 0) || problem.args.size() != setup.args.size())
      return Failure{"a problem of the message is malformed: `" + problem.text + "`"};
  return setup;
}

Result<TrialRequest> trial_request_from_json(const Json& json) {
  if (auto op = expect_op(json, "trial"); !op) return op.failure();
  const auto found = json.find("candidate");
  if (found == json.end()) return Failure{"the message has no candidate"};
  Result<Candidate> candidate = candidate_from_json(*found);
  if (!candidate) return candidate.failure();
  TrialRequest request;
  request.candidate = std::move(*candidate);
  request.reference = wire::get_bool(json, "reference");
  request.group = wire::get_bool(json, "group");
  request.bound_us = wire::get_double(json, "bound_us", request.bound_us);
  request.margins = numbers<double>(json, "margins");
  request.launches = to_int(wire::get_int(json, "launches"));
  request.also_launches = numbers<int>(json, "also_launches");
  if (request.launches < 0 || !read_enum(json, "method", Policy::Method::cupti, request.method))
    return Failure{"the trial's way of measuring is malformed"};
  return request;
}

Result<RematchRequest> rematch_request_from_json(const Json& json) {
  if (auto op = expect_op(json, "rematch"); !op) return op.failure();
  const Json* candidates = find_array(json, "candidates");
  if (candidates == nullptr) return Failure{"the message has no candidates"};
  RematchRequest request;
  for (const Json& item : *candidates) {
    Result<Candidate> candidate = candidate_from_json(item);
    if (!candidate) return candidate.failure();
    request.candidates.push_back(std::move(*candidate));
  }
  request.fewest_rounds = to_int(wire::get_int(json, "fewest_rounds", request.fewest_rounds));
  request.most_rounds = to_int(wire::get_int(json, "most_rounds", request.most_rounds));
  request.default_index = to_int(wire::get_int(json, "default_index", request.default_index));
  request.share = wire::get_double(json, "share", request.share);
  if (request.default_index < -1 || request.default_index >= static_cast<int>(request.candidates.size()))
    return Failure{"the message's default config is none of its candidates"};
  if (!(request.share > 0 && request.share <= 1)) return Failure{"the message has no share of the GPU's time"};
  if (request.fewest_rounds < 1 || request.most_rounds < request.fewest_rounds || request.most_rounds > 10'000)
    return Failure{"the message asks for " + std::to_string(request.fewest_rounds) + " to " +
                   std::to_string(request.most_rounds) + " rounds"};
  return request;
}

Result<FactsRequest> facts_request_from_json(const Json& json) {
  if (auto op = expect_op(json, "facts"); !op) return op.failure();
  FactsRequest request;
  request.cubin = wire::get_bytes(json, "cubin");
  request.lowered_name = wire::get_string(json, "lowered_name");
  Result<space::Geometry> geometry = geometry_from_json(json);
  if (!geometry) return geometry.failure();
  request.geometry = *geometry;
  return request;
}

Result<SetupReply> setup_reply_from_json(const Json& json) {
  if (auto op = expect_op(json, "setup"); !op) return op.failure();
  SetupReply reply;
  reply.ok = wire::get_bool(json, "ok");
  reply.out_of_memory = wire::get_bool(json, "out_of_memory");
  reply.error = wire::get_string(json, "error");
  reply.ready_ms = wire::get_double(json, "ready_ms");
  reply.buffer_bytes = wire::get_int(json, "buffer_bytes");
  reply.free_bytes = wire::get_int(json, "free_bytes");
  return reply;
}

Result<TrialReply> trial_reply_from_json(const Json& json) {
  if (auto op = expect_op(json, "trial"); !op) return op.failure();
  const std::string word = wire::get_string(json, "status");
  const auto status = parse_trial_status(word);
  if (!status) return Failure{"the worker's trial status is unknown: `" + word + "`"};
  TrialReply reply;
  reply.status = *status;
  reply.samples_us = numbers<double>(json, "samples_us");
  reply.first_us = wire::get_double(json, "first_us");
  reply.facts = facts_of(json);
  reply.clock_mhz = to_int(wire::get_int(json, "clock_mhz"));
  (void)read_enum(json, "method", Policy::Method::cupti, reply.method);
  reply.launches = to_int(wire::get_int(json, "launches", 1));
  reply.also_launches = numbers<int>(json, "also_launches");
  reply.stop = wire::get_string(json, "stop");
  reply.load_ms = wire::get_double(json, "load_ms");
  reply.check_ms = wire::get_double(json, "check_ms");
  reply.run_ms = wire::get_double(json, "run_ms");
  reply.error = wire::get_string(json, "error");
  reply.group = to_int(wire::get_int(json, "group"));
  reply.context_lost = wire::get_bool(json, "context_lost");
  reply.device_lost = wire::get_bool(json, "device_lost");
  reply.wall_ms = wire::get_double(json, "wall_ms");
  return reply;
}

Result<RematchReply> rematch_reply_from_json(const Json& json) {
  if (auto op = expect_op(json, "rematch"); !op) return op.failure();
  RematchReply reply;
  reply.ok = wire::get_bool(json, "ok");
  reply.error = wire::get_string(json, "error");
  reply.context_lost = wire::get_bool(json, "context_lost");
  reply.discarded = to_int(wire::get_int(json, "discarded"));
  reply.launches = to_int(wire::get_int(json, "launches", 1));
  if (const Json* series = find_array(json, "samples_us"); series != nullptr)
    for (const Json& item : *series) {
      std::vector<double> samples;
      if (item.is_array())
        for (const Json& value : item)
          if (value.is_number()) samples.push_back(value.get<double>());
      reply.samples_us.push_back(std::move(samples));
    }
  return reply;
}

Json facts_to_json(const space::KernelFacts& facts, const std::string& error) {
  return {{"op", "facts"}, {"facts", facts_map(facts)}, {"error", error}};
}

Result<space::KernelFacts> facts_from_json(const Json& json) {
  if (auto op = expect_op(json, "facts"); !op) return op.failure();
  if (std::string error = wire::get_string(json, "error"); !error.empty()) return Failure{std::move(error)};
  return facts_of(json);
}

}  // namespace jitune::measure
