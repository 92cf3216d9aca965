#include "measure/protocol.hpp"

#include <array>
#include <cmath>
#include <cstdio>

#include "wire/frame.hpp"

namespace jitune::measure {
namespace {

constexpr std::array kStatusWords{
    "ok",           "early_stopped", "skipped",   "compile_error", "compile_timeout", "compile_crash",
    "launch_error", "run_timeout",   "run_crash", "wrong_result",  "out_of_bounds"};

// Numbers of enums on the wire: both ends are of one build, which the hello frame makes sure of.
template <class Enum>
Json number(Enum value) {
  return static_cast<int64_t>(value);
}

template <class Enum>
bool read_enum(const Json& json, const char* name, Enum last, Enum& value) {
  const int64_t raw = wire::get_int(json, name, 0);
  if (raw < 0 || raw > static_cast<int64_t>(last)) return false;
  value = static_cast<Enum>(raw);
  return true;
}

int to_int(int64_t value) {
  return static_cast<int>(std::max<int64_t>(std::min<int64_t>(value, INT32_MAX), INT32_MIN));
}

const Json* find_array(const Json& json, const char* name) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(name);
  return found != json.end() && found->is_array() ? &*found : nullptr;
}

template <class Number>
std::vector<Number> numbers(const Json& json, const char* name) {
  std::vector<Number> values;
  if (const Json* array = find_array(json, name); array != nullptr)
    for (const Json& value : *array)
      if (value.is_number()) values.push_back(value.get<Number>());
  return values;
}

Result<void> expect_op(const Json& json, const std::string& op) {
  if (!json.is_object()) return Failure{"the message is no map"};
  const std::string found = wire::get_string(json, "op");
  if (found != op) return Failure{"the message's op is `" + found + "`, not `" + op + "`"};
  return {};
}

Json sizes_to_json(const std::array<uint32_t, 3>& sizes) {
  return Json::array({sizes[0], sizes[1], sizes[2]});
}

bool sizes_from_json(const Json& json, const char* name, std::array<uint32_t, 3>& sizes) {
  const std::vector<int64_t> values = numbers<int64_t>(json, name);
  if (values.size() != 3) return false;
  for (size_t i = 0; i < 3; ++i) {
    if (values[i] < 0 || values[i] > int64_t{UINT32_MAX}) return false;
    sizes[i] = static_cast<uint32_t>(values[i]);
  }
  return true;
}

Json geometry_to_json(const space::Geometry& geometry) {
  return {{"grid", sizes_to_json(geometry.grid)},       {"block", sizes_to_json(geometry.block)},
          {"cluster", sizes_to_json(geometry.cluster)}, {"shared_bytes", geometry.shared_bytes},
          {"cooperative", geometry.cooperative},        {"programmatic_dependent", geometry.programmatic_dependent}};
}

Result<space::Geometry> geometry_from_json(const Json& json) {
  space::Geometry geometry;
  const auto found = json.find("geometry");
  if (found == json.end() || !found->is_object()) return Failure{"the message has no geometry"};
  const int64_t shared_bytes = wire::get_int(*found, "shared_bytes");
  if (!sizes_from_json(*found, "grid", geometry.grid) || !sizes_from_json(*found, "block", geometry.block) ||
      !sizes_from_json(*found, "cluster", geometry.cluster) || shared_bytes < 0 || shared_bytes > int64_t{INT32_MAX})
    return Failure{"the message's geometry is malformed"};
  geometry.shared_bytes = static_cast<uint32_t>(shared_bytes);
  geometry.cooperative = wire::get_bool(*found, "cooperative");
  geometry.programmatic_dependent = wire::get_bool(*found, "programmatic_dependent");
  return geometry;
}

Json fill_to_json(const Fill& fill) {
  return {{"kind", number(fill.kind)}, {"low", fill.low}, {"high", fill.high}, {"path", fill.path}};
}

Json arg_to_json(const space::ArgSpec& arg) {
  Json json{{"kind", number(arg.kind)}, {"name", arg.name}, {"element_bytes", arg.element_bytes}};
  if (!arg.pass) json["no_pass"] = true;
  if (arg.type) json["type"] = number(*arg.type);
  if (arg.kind == ArgKind::scalar) {
    json["scalar"] = wire::to_binary({reinterpret_cast<const char*>(arg.scalar.data()), arg.scalar.size()});
    return json;
  }
  if (arg.kind == ArgKind::tensor_map) {
    json["over"] = arg.over;
    json["dims"] = arg.dims;
    json["strides_bytes"] = arg.strides_bytes;
    json["box"] = arg.box;
    json["element_strides"] = arg.element_strides;
    json["swizzle"] = arg.swizzle;
    json["interleave"] = arg.interleave;
    json["l2_promotion"] = arg.l2_promotion;
    json["oob_nan"] = arg.oob_nan;
    return json;
  }
  json["count"] = arg.count;
  json["fill"] = fill_to_json(arg.fill);
  json["index_bound"] = arg.index_bound;
  const Tolerance& tolerance = arg.tolerance;
  json["tolerance"] = {{"exact", tolerance.exact},
                       {"rtol", tolerance.rtol},
                       {"atol", tolerance.atol},
                       {"mismatch", tolerance.mismatch},
                       {"nan_equal", tolerance.nan_equal}};
  return json;
}

bool fill_from_json(const Json& json, Fill& fill) {
  const auto found = json.find("fill");
  if (found == json.end()) return true;
  fill.low = wire::get_double(*found, "low");
  fill.high = wire::get_double(*found, "high");
  fill.path = wire::get_string(*found, "path");
  return read_enum(*found, "kind", Fill::Kind::file, fill.kind);
}

Result<space::ArgSpec> arg_from_json(const Json& json) {
  space::ArgSpec arg;
  const Failure malformed{"an arg of the message is malformed: `" + wire::get_string(json, "name") + "`"};
  if (!json.is_object() || !read_enum(json, "kind", ArgKind::symbol, arg.kind)) return malformed;
  arg.name = wire::get_string(json, "name");
  arg.pass = !wire::get_bool(json, "no_pass");
  if (Type type{}; json.contains("type")) {
    if (!read_enum(json, "type", Type::boolean, type)) return malformed;
    arg.type = type;
  }
  arg.element_bytes = wire::get_int(json, "element_bytes", 1);
  arg.count = wire::get_int(json, "count");
  // 2^56 bytes are more than any GPU has; sums of such sizes still fit.
  if (arg.element_bytes < 1 || arg.element_bytes > 4096 || arg.count < 0 ||
      arg.count > (int64_t{1} << 56) / arg.element_bytes)
    return malformed;
  if (!fill_from_json(json, arg.fill)) return malformed;
  arg.index_bound = wire::get_int(json, "index_bound");
  if (const auto found = json.find("tolerance"); found != json.end()) {
    arg.tolerance.exact = wire::get_bool(*found, "exact", true);
    arg.tolerance.rtol = wire::get_double(*found, "rtol");
    arg.tolerance.atol = wire::get_double(*found, "atol");
    arg.tolerance.mismatch = wire::get_double(*found, "mismatch");
    arg.tolerance.nan_equal = wire::get_bool(*found, "nan_equal", true);
  }
  const std::string scalar = wire::get_bytes(json, "scalar");
  arg.scalar.assign(scalar.begin(), scalar.end());
  if (arg.kind == ArgKind::scalar && (arg.scalar.empty() || arg.scalar.size() > 4096)) return malformed;
  arg.over = to_int(wire::get_int(json, "over", -1));
  arg.dims = numbers<int64_t>(json, "dims");
  arg.strides_bytes = numbers<int64_t>(json, "strides_bytes");
  arg.box = numbers<int64_t>(json, "box");
  arg.element_strides = numbers<int64_t>(json, "element_strides");
  arg.swizzle = to_int(wire::get_int(json, "swizzle"));
  arg.interleave = to_int(wire::get_int(json, "interleave"));
  arg.l2_promotion = to_int(wire::get_int(json, "l2_promotion"));
  arg.oob_nan = wire::get_bool(json, "oob_nan");
  return arg;
}

Json args_to_json(const std::vector<space::ArgSpec>& args) {
  Json json = Json::array();
  for (const space::ArgSpec& arg : args) json.push_back(arg_to_json(arg));
  return json;
}

Result<std::vector<space::ArgSpec>> args_from_json(const Json& json) {
  const Json* array = find_array(json, "args");
  if (array == nullptr) return Failure{"the message has no args"};
  std::vector<space::ArgSpec> args;
  for (const Json& item : *array) {
    Result<space::ArgSpec> arg = arg_from_json(item);
    if (!arg) return arg.failure();
    args.push_back(std::move(*arg));
  }
  for (const space::ArgSpec& arg : args)
    if (arg.kind == ArgKind::tensor_map && (arg.over < 0 || arg.over >= to_int(static_cast<int64_t>(args.size())) ||
                                            !args[static_cast<size_t>(arg.over)].is_buffer()))
      return Failure{"tensor map `" + arg.name + "` is over no buffer"};
  return args;
}

Json candidate_to_json(const Candidate& candidate) {
  return {{"cubin", wire::to_binary(candidate.cubin)},
          {"lowered_name", candidate.lowered_name},
          {"geometry", geometry_to_json(candidate.geometry)},
          {"args", args_to_json(candidate.args)}};
}

Result<Candidate> candidate_from_json(const Json& json) {
  if (!json.is_object()) return Failure{"a candidate of the message is no map"};
  Candidate candidate;
  candidate.cubin = wire::get_bytes(json, "cubin");
  candidate.lowered_name = wire::get_string(json, "lowered_name");
  Result<space::Geometry> geometry = geometry_from_json(json);
  if (!geometry) return geometry.failure();
  candidate.geometry = *geometry;
  Result<std::vector<space::ArgSpec>> args = args_from_json(json);
  if (!args) return args.failure();
  candidate.args = std::move(*args);
  return candidate;
}

Json policy_to_json(const Policy& policy) {
  return {{"cold_l2", policy.cold_l2},
          {"min_samples", policy.min_samples},
          {"max_samples", policy.max_samples},
          {"margins", policy.margins},
          {"tie", policy.tie}};
}

Policy policy_from_json(const Json& json) {
  Policy policy;
  policy.cold_l2 = wire::get_bool(json, "cold_l2", policy.cold_l2);
  policy.min_samples = to_int(wire::get_int(json, "min_samples", policy.min_samples));
  policy.max_samples = to_int(wire::get_int(json, "max_samples", policy.max_samples));
  if (json.contains("margins")) policy.margins = numbers<double>(json, "margins");
  policy.tie = wire::get_double(json, "tie", policy.tie);
  return policy;
}

Json source_to_json(const DataSource& source) {
  return {{"kind", number(source.kind)},
          {"ipc_handle", wire::to_binary(source.ipc_handle)},
          {"offset", source.offset},
          {"shm_name", source.shm_name}};
}

Result<DataSource> source_from_json(const Json& json) {
  DataSource source;
  if (!json.is_object() || !read_enum(json, "kind", DataSource::Kind::shared_memory, source.kind))
    return Failure{"a data source of the message is malformed"};
  source.ipc_handle = wire::get_bytes(json, "ipc_handle");
  source.offset = wire::get_int(json, "offset");
  source.shm_name = wire::get_string(json, "shm_name");
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

std::string percent(double share) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g", share * 100);
  return text.data();
}

}  // namespace

std::string Policy::text() const {
  std::string stops;
  for (const double margin : margins) stops += (stops.empty() ? "" : "/") + percent(margin);
  return std::string(cold_l2 ? "cold-l2" : "warm-l2") + " events samples=" + std::to_string(min_samples) + ".." +
         std::to_string(max_samples) + " stop=" + (stops.empty() ? "never" : stops + "%") + " tie=" + percent(tie) +
         "%";
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
  return {{"op", "setup"},
          {"device_uuid", setup.device_uuid},
          {"args", args_to_json(setup.args)},
          {"data", std::move(data)},
          {"seed", static_cast<int64_t>(setup.seed)},
          {"policy", policy_to_json(setup.policy)},
          {"utility_cubin", wire::to_binary(setup.utility_cubin)},
          {"memory_limit_bytes", setup.memory_limit_bytes}};
}

Json to_json(const TrialRequest& request) {
  Json json{{"op", "trial"}, {"candidate", candidate_to_json(request.candidate)}, {"reference", request.reference}};
  if (std::isfinite(request.bound_us)) json["bound_us"] = request.bound_us;  // absent: infinite
  return json;
}

Json to_json(const RematchRequest& request) {
  Json candidates = Json::array();
  for (const Candidate& candidate : request.candidates) candidates.push_back(candidate_to_json(candidate));
  return {{"op", "rematch"}, {"candidates", std::move(candidates)}, {"rounds", request.rounds}};
}

Json to_json(const FactsRequest& request) {
  return {{"op", "facts"},
          {"cubin", wire::to_binary(request.cubin)},
          {"lowered_name", request.lowered_name},
          {"geometry", geometry_to_json(request.geometry)}};
}

Json to_json(const SetupReply& reply) {
  return {{"op", "setup"},
          {"ok", reply.ok},
          {"out_of_memory", reply.out_of_memory},
          {"error", reply.error},
          {"ready_ms", reply.ready_ms},
          {"buffer_bytes", reply.buffer_bytes}};
}

Json to_json(const TrialReply& reply) {
  return {{"op", "trial"},
          {"status", to_string(reply.status)},
          {"samples_us", reply.samples_us},
          {"first_us", reply.first_us},
          {"facts", facts_map(reply.facts)},
          {"clock_mhz", reply.clock_mhz},
          {"error", reply.error},
          {"context_lost", reply.context_lost},
          {"wall_ms", reply.wall_ms}};
}

Json to_json(const RematchReply& reply) {
  return {{"op", "rematch"},
          {"ok", reply.ok},
          {"error", reply.error},
          {"samples_us", reply.samples_us},
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
  setup.memory_limit_bytes = wire::get_int(json, "memory_limit_bytes");
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
  request.bound_us = wire::get_double(json, "bound_us", request.bound_us);
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
  request.rounds = to_int(wire::get_int(json, "rounds", request.rounds));
  if (request.rounds < 1 || request.rounds > 10'000)
    return Failure{"the message asks for " + std::to_string(request.rounds) + " rounds"};
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
  reply.error = wire::get_string(json, "error");
  reply.context_lost = wire::get_bool(json, "context_lost");
  reply.wall_ms = wire::get_double(json, "wall_ms");
  return reply;
}

Result<RematchReply> rematch_reply_from_json(const Json& json) {
  if (auto op = expect_op(json, "rematch"); !op) return op.failure();
  RematchReply reply;
  reply.ok = wire::get_bool(json, "ok");
  reply.error = wire::get_string(json, "error");
  reply.context_lost = wire::get_bool(json, "context_lost");
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
