#include "measure/messages.hpp"

#include <algorithm>
#include <array>

namespace jitune::measure {
namespace {

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

}  // namespace

int to_int(int64_t value) {
  return static_cast<int>(std::max<int64_t>(std::min<int64_t>(value, INT32_MAX), INT32_MIN));
}

const Json* find_array(const Json& json, const char* name) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(name);
  return found != json.end() && found->is_array() ? &*found : nullptr;
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
  Json json{{"cubin", wire::to_binary(candidate.cubin)},
            {"lowered_name", candidate.lowered_name},
            {"geometry", geometry_to_json(candidate.geometry)},
            {"args", args_to_json(candidate.args)},
            {"order", candidate.order}};
  for (const Candidate& other : candidate.also)
    json["also"].push_back({{"geometry", geometry_to_json(other.geometry)}, {"args", args_to_json(other.args)}});
  return json;
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
  candidate.order = numbers<int>(json, "order");
  for (const int index : candidate.order)
    if (index < 0 || index >= static_cast<int>(candidate.args.size()) ||
        candidate.args[static_cast<size_t>(index)].kind == ArgKind::tensor_map)
      return Failure{"a candidate of the message has no arg " + std::to_string(index) + " that can be passed"};
  if (const Json* also = find_array(json, "also"); also != nullptr)
    for (const Json& item : *also) {
      Candidate other{candidate.cubin, candidate.lowered_name, {}, {}, candidate.order};
      Result<space::Geometry> own_geometry = geometry_from_json(item);
      if (!own_geometry) return own_geometry.failure();
      Result<std::vector<space::ArgSpec>> own_args = args_from_json(item);
      if (!own_args) return own_args.failure();
      other.geometry = *own_geometry;
      other.args = std::move(*own_args);
      if (other.args.size() != candidate.args.size())
        return Failure{"a candidate of the message has not the same args at all problems"};
      candidate.also.push_back(std::move(other));
    }
  return candidate;
}

}  // namespace jitune::measure
