#include "apps/prewarm/rows.hpp"

#include "apps/prewarm/kernels.hpp"
#include "apps/prewarm/text.hpp"

namespace jitune::prewarm {
namespace {

Json winner_json(const store::KeyRow& row) {
  if (!row.winner) return nullptr;
  const store::WinnerRow& winner = *row.winner;
  Json json{{"config", parsed(winner.config)},
            {"median_us", winner.median_us},
            {"default_us", winner.default_us},
            {"pinned", winner.pinned},
            {"decided_at", winner.decided_at}};
  if (winner.artifact)
    json["artifact"] = {{"lowered_name", winner.artifact->lowered_name},
                        {"registers", winner.artifact->regs},
                        {"spill_bytes", winner.artifact->spill_bytes},
                        {"static_smem_bytes", winner.artifact->static_smem_bytes},
                        {"cubin_sha256", winner.artifact->cubin_sha256}};
  return json;
}

}  // namespace

Json parsed(const std::string& json) {
  return json.empty() ? Json() : Json::parse(json, nullptr, false);
}

std::string document(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::vector<std::pair<const char*, std::string>> key_fields(const key::TuningKey& key) {
  return {{"kernel", key.kernel},
          {"variant", key.variant},
          {"problem", key.problem},
          {"entry", key.entry},
          {"options", key.options},
          {"source_sha256", key.source_sha256},
          {"launch_sha256", key.launch_sha256},
          {"arch", key.arch},
          {"cc", std::to_string(key.cc)},
          {"sm_count", std::to_string(key.sm_count)},
          {"memory_gib", std::to_string(key.memory_gib)},
          {"l2_bytes", std::to_string(key.l2_bytes)},
          {"max_clock_mhz", std::to_string(key.max_clock_mhz)},
          {"max_memory_clock_mhz", std::to_string(key.max_memory_clock_mhz)},
          {"nvrtc", key.nvrtc},
          {"policy", key.policy},
          {"environment", key.environment},
          {"callables", key.callables},
          {"schema", std::to_string(key.schema)},
          {"sha256", key.sha256}};
}

Json row_json(const store::KeyRow& row) {
  Json fields = Json::object();
  for (const auto& [name, value] : key_fields(row.key)) fields[name] = value;
  fields["problem"] = parsed(row.key.problem);
  return {{"key", row.key.sha256},    {"fields", fields},           {"winner", winner_json(row)},
          {"trials", row.trials},     {"ok_trials", row.ok_trials}, {"last_outcome", row.last_outcome},
          {"device", row.device_name}};
}

store::KeyRow find_key(store::Store& store, const std::string& prefix) {
  if (prefix.find_first_not_of("0123456789abcdef") != std::string::npos || prefix.size() > 64)
    throw Stop(Exit::usage, "'" + prefix +
                                "' is not the beginning of a key: keys are hexadecimal digits, as "
                                "`jit-prewarm list` prints them");
  const std::vector<store::KeyRow> rows = must(store.find_keys(prefix));
  if (rows.empty())
    throw Stop(Exit::usage,
               "no key in " + store.path() + " begins with " + prefix + "; `jit-prewarm list` prints them");
  if (rows.size() > 1) {
    std::string text = std::to_string(rows.size()) + " keys begin with " + prefix + "; give more digits:";
    for (const store::KeyRow& row : rows)
      text += "\n  " + row.key.sha256 + "  " + row.key.kernel + " " + values_text(row.key.problem);
    throw Stop(Exit::usage, text);
  }
  return rows[0];
}

}  // namespace jitune::prewarm
