#include <cstdio>

#include "base/hash.hpp"
#include "exchange/fields.hpp"
#include "space/config.hpp"

// {"format": "jitune-winners-1", "winners": [{"kernel": ..., "problem": {...}, "config": {...}, "key": {...}, ...}]}
namespace jitune::exchange {
namespace {

constexpr const char* kFormat = "jitune-winners-1";
constexpr size_t kLongestName = 160;  // of a problem in a file's name

/// Text that is canonical JSON as JSON, so that a person can read it; anything else as it is.
Json readable(const std::string& text) {
  if (!is_shallow(text)) return text;
  const Json json = Json::parse(text, nullptr, false);
  return json.is_structured() && canonical(json) == text ? json : Json(text);
}

std::string text_of(const Json& json) {
  return json.is_string() ? json.get<std::string>() : canonical(json);
}

Json time_json(double us) {
  return us > 0 ? Json(us) : Json();
}

Json record_json(const store::WinnerRecord& record) {
  const store::WinnerRow& winner = record.winner;
  Json key = Json::object();
  for (const auto& [name, text] : key_texts(record.key))
    key[name] = is_number_field(name) ? Json::parse(text) : readable(text);
  Json json{{"kernel", record.key.kernel},
            {"variant", record.key.variant},
            {"problem", readable(record.key.problem)},
            {"config", readable(winner.config)},
            {"median_us", time_json(winner.median_us)},
            {"default_us", time_json(winner.default_us)},
            {"decided_at", utc_text(winner.decided_at)},
            {"device", record.device},
            {"driver", record.driver},
            {"key", key},
            {"sha256", record.key.sha256}};
  if (winner.pinned) json["pinned"] = true;
  if (!record.origin.empty()) json["origin"] = record.origin;
  return json;
}

/// What is wrong with an entry, "" when it was read.
std::string read_record(const Json& json, store::WinnerRecord& record) {
  record.key.kernel = json.at("kernel").get<std::string>();
  record.key.variant = json.value("variant", "");
  record.key.problem = text_of(json.at("problem"));
  for (const auto& [name, value] : json.at("key").items())
    if (!set_key_field(record.key, name, text_of(value))) return "a field of its key is unknown or no number";
  store::WinnerRow& winner = record.winner;
  winner.config = text_of(json.at("config"));
  const auto time = [&](const char* name) {
    const Json value = json.value(name, Json());
    return value.is_null() ? 0.0 : value.get<double>();
  };
  winner.median_us = time("median_us");
  winner.default_us = time("default_us");
  winner.pinned = json.value("pinned", false);
  const auto decided = parse_utc(text_of(json.value("decided_at", Json(""))));
  if (!decided) return "decided_at is no time";
  winner.decided_at = *decided;
  record.device = json.value("device", "");
  record.driver = json.value("driver", "");
  record.origin = json.value("origin", "");
  return complete(record, json.at("sha256").get<std::string>());
}

std::string file_name(std::string text) {
  const std::string whole = text;
  for (char& c : text)
    if (std::string_view("/\\:*?\"<>|{}[]() '`$&;!~\n\t").find(c) != std::string_view::npos || c < ' ') c = '_';
  if (text.size() > kLongestName) text = text.substr(0, kLongestName) + "-" + sha256_hex(whole).substr(0, 12);
  return text;
}

std::string path_of(const store::WinnerRecord& record) {
  const key::TuningKey& key = record.key;
  std::string problem;
  if (const auto values = space::parse_values(key.problem))
    for (const auto& [name, value] : *values) problem += name + "=" + value.text() + ",";
  const std::string toolchain = key.nvrtc.empty() ? "no-nvrtc" : "nvrtc-" + key.nvrtc;
  const std::string device = record.device.empty() ? key.arch : record.device;
  return file_name(toolchain) + "/" + file_name(key.kernel + (key.variant.empty() ? "" : "." + key.variant)) + "/" +
         file_name(problem) + "device_name=" + file_name(device) + ".json";
}

}  // namespace

std::string to_json(const std::vector<store::WinnerRecord>& records) {
  Json winners = Json::array();
  for (const store::WinnerRecord& record : records) winners.push_back(record_json(record));
  return Json{{"format", kFormat}, {"winners", winners}}.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::map<std::string, std::string> to_json_tree(const std::vector<store::WinnerRecord>& records) {
  std::map<std::string, std::vector<store::WinnerRecord>> groups;
  for (const store::WinnerRecord& record : records) groups[path_of(record)].push_back(record);
  std::map<std::string, std::string> files;
  for (const auto& [path, group] : groups) files[path] = to_json(group);
  return files;
}

bool is_shallow(const std::string& json) {
  constexpr int kDeepest = 32;
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string && c == '\\')
      ++i;
    else if (c == '"')
      in_string = !in_string;
    else if (!in_string && (c == '{' || c == '['))
      ++depth;
    else if (!in_string && (c == '}' || c == ']'))
      --depth;
    if (depth > kDeepest) return false;
  }
  return true;
}

Result<void> read_json(const std::string& text, const std::string& place, Winners& into) {
  if (!is_shallow(text)) return Failure{place + ": its JSON is nested deeper than winners are"};
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || json.value("format", Json()) != kFormat || !json.value("winners", Json()).is_array())
    return Failure{place + ": not a file of winners (\"format\": \"" + kFormat + "\")"};
  size_t number = 0;
  for (const Json& entry : json["winners"]) {
    const std::string where = place + " (winner " + std::to_string(++number) + ")";
    Item item{{}, where};
    std::string wrong;
    try {
      wrong = read_record(entry, item.record);
    } catch (const Json::exception&) {
      wrong = "a field is missing or of the wrong kind";
    }
    if (wrong.empty())
      into.items.push_back(std::move(item));
    else
      into.refused[wrong].push_back(where);
  }
  return {};
}

}  // namespace jitune::exchange
