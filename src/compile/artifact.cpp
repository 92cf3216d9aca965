#include "compile/artifact.hpp"

#include <array>
#include <optional>

#include "base/hash.hpp"
#include "wire/frame.hpp"

namespace jitune::compile {
namespace {

constexpr size_t kMaxLogBytes = 16384;

Json to_json(const std::vector<std::string>& list) {
  Json json = Json::array();
  for (const std::string& item : list) json.push_back(item);
  return json;
}

Result<std::vector<std::string>> strings(const Json& json, const char* name) {
  std::vector<std::string> list;
  const auto at = json.find(name);
  if (at == json.end() || !at->is_array())
    return Failure{std::string("a compile request lacks the list '") + name + "'"};
  for (const Json& item : *at) {
    if (!item.is_string())
      return Failure{std::string("'") + name + "' of a compile request holds something that is no text"};
    list.push_back(item.get<std::string>());
  }
  return list;
}

}  // namespace

const char* to_string(Status status) noexcept {
  switch (status) {
    case Status::ok:
      return "ok";
    case Status::error:
      return "error";
    case Status::timeout:
      return "timeout";
    case Status::crash:
      return "crash";
  }
  return "unknown";
}

std::optional<Status> parse_status(std::string_view word) noexcept {
  for (const Status status : {Status::ok, Status::error, Status::timeout, Status::crash})
    if (word == to_string(status)) return status;
  return std::nullopt;
}

Json to_json(const Request& request) {
  const space::BuildSpec& spec = request.spec;
  Json defines = Json::array();
  for (const auto& [name, value] : spec.defines) defines.push_back(Json::array({name, value}));
  Json header_texts = Json::array();
  for (const HeaderText& header : spec.header_texts) header_texts.push_back(Json::array({header.name, header.text}));
  return {{"source_text", spec.source_text},
          {"source_name", spec.source_name},
          {"include_dirs", to_json(spec.include_dirs)},
          {"header_texts", std::move(header_texts)},
          {"entry", spec.entry},
          {"is_template", spec.is_template},
          {"defines", std::move(defines)},
          {"defines_before_includes", spec.defines_before_includes},
          {"headers", to_json(spec.headers)},
          {"options", to_json(spec.options)},
          {"arch", spec.arch},
          {"nvrtc_path", request.nvrtc_path},
          {"toolkit_include_dirs", to_json(request.toolkit_include_dirs)},
          {"header_directory", request.header_directory}};
}

Result<Request> request_from_json(const Json& json) {
  if (!json.is_object()) return Failure{"a compile request is not a map"};
  Request request;
  space::BuildSpec& spec = request.spec;
  spec.source_text = wire::get_string(json, "source_text");
  spec.source_name = wire::get_string(json, "source_name", "kernel.cu");
  spec.entry = wire::get_string(json, "entry");
  spec.is_template = wire::get_bool(json, "is_template");
  spec.defines_before_includes = wire::get_bool(json, "defines_before_includes");
  spec.arch = wire::get_string(json, "arch");
  request.nvrtc_path = wire::get_string(json, "nvrtc_path");
  request.header_directory = wire::get_string(json, "header_directory");
  if (spec.entry.empty() || spec.arch.empty()) return Failure{"a compile request lacks 'entry' or 'arch'"};
  const std::array<std::pair<const char*, std::vector<std::string>*>, 4> lists{
      {{"include_dirs", &spec.include_dirs},
       {"headers", &spec.headers},
       {"options", &spec.options},
       {"toolkit_include_dirs", &request.toolkit_include_dirs}}};
  for (const auto& [name, list] : lists) {
    auto read = strings(json, name);
    if (!read) return read.failure();
    *list = *std::move(read);
  }
  const auto header_texts = json.find("header_texts");
  if (header_texts == json.end() || !header_texts->is_array())
    return Failure{"a compile request lacks the list 'header_texts'"};
  for (const Json& pair : *header_texts) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string())
      return Failure{"'header_texts' of a compile request holds something that is no pair of texts"};
    spec.header_texts.push_back({pair[0].get<std::string>(), pair[1].get<std::string>()});
  }
  const auto defines = json.find("defines");
  if (defines == json.end() || !defines->is_array()) return Failure{"a compile request lacks the list 'defines'"};
  for (const Json& pair : *defines) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string())
      return Failure{"'defines' of a compile request holds something that is no pair of texts"};
    spec.defines.emplace_back(pair[0].get<std::string>(), pair[1].get<std::string>());
  }
  return request;
}

Json to_json(const Artifact& artifact) {
  return {{"status", to_string(artifact.status)},
          {"cubin", wire::to_binary(artifact.cubin)},
          {"cubin_sha256", sha256_hex(artifact.cubin)},
          {"lowered_name", artifact.lowered_name},
          {"regs", artifact.regs},
          {"static_smem_bytes", artifact.static_smem_bytes},
          {"local_bytes", artifact.local_bytes},
          {"spill_bytes", artifact.spill_bytes},
          {"compile_ms", artifact.compile_ms},
          {"headers", artifact.headers},
          {"log", artifact.log}};
}

Result<Artifact> artifact_from_json(const Json& json) {
  const auto status = parse_status(wire::get_string(json, "status"));
  if (!status) return Failure{"a worker's answer is not a compile result (no known 'status')"};
  Artifact artifact;
  artifact.status = *status;
  artifact.cubin = wire::get_bytes(json, "cubin");
  artifact.lowered_name = wire::get_string(json, "lowered_name");
  artifact.regs = static_cast<int>(wire::get_int(json, "regs"));
  artifact.static_smem_bytes = wire::get_int(json, "static_smem_bytes");
  artifact.local_bytes = wire::get_int(json, "local_bytes");
  artifact.spill_bytes = wire::get_int(json, "spill_bytes");
  artifact.compile_ms = wire::get_double(json, "compile_ms");
  artifact.headers = wire::get_string(json, "headers");
  artifact.log = shorten_log(wire::get_string(json, "log"));
  if (wire::get_string(json, "cubin_sha256") != sha256_hex(artifact.cubin))
    return Failure{"a cubin was damaged on its way from the worker (its SHA-256 differs)"};
  if (artifact.status == Status::ok) {
    const auto checked = check_cubin(artifact.cubin, artifact.lowered_name);
    if (!checked) return checked.failure();
  }
  return artifact;
}

std::string shorten_log(std::string log) {
  if (log.size() <= kMaxLogBytes) return log;
  // The first errors matter most, then the summary at the end.
  constexpr size_t kHead = 11000, kTail = 5000;
  const size_t cut = log.size() - kHead - kTail;
  return log.substr(0, kHead) + "\n[... " + std::to_string(cut) + " bytes cut ...]\n" + log.substr(log.size() - kTail);
}

}  // namespace jitune::compile
