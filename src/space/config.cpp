#include "space/config.hpp"

#include "base/json.hpp"

namespace jitune::space {

std::string canonical(const std::map<std::string, Value>& values) {
  Json json = Json::object();
  for (const auto& [name, value] : values) {
    if (value.is_int())
      json[name] = value.as_int();
    else if (value.is_bool())
      json[name] = value.as_int() != 0;
    else
      json[name] = value.as_word();
  }
  return jitune::canonical(json);
}

Result<std::map<std::string, Value>> parse_values(std::string_view json) {
  // The depth is capped before decoding: what is read here may come from another machine's file.
  const Json parsed = Json::parse(
      json, [](int depth, Json::parse_event_t, Json&) { return depth <= 2; }, false);
  if (parsed.is_discarded()) return Failure{"not JSON: " + std::string(json.substr(0, 80))};
  if (!parsed.is_object())
    return Failure{std::string("a JSON object of values was expected, not ") + parsed.type_name()};
  std::map<std::string, Value> values;
  for (const auto& [name, value] : parsed.items()) {
    if (value.is_boolean()) {
      values.emplace(name, Value(value.get<bool>()));
    } else if (value.is_number_integer()) {
      if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
        return Failure{"'" + name + "' does not fit a signed 64-bit integer"};
      values.emplace(name, Value(static_cast<long>(value.get<int64_t>())));
    } else if (value.is_string()) {
      values.emplace(name, Value(value.get<std::string>()));
    } else {
      return Failure{"'" + name + "' is " + value.type_name() + "; an integer, true, false or a word was expected"};
    }
  }
  return values;
}

std::string short_text(const std::map<std::string, Value>& values) {
  std::string text;
  for (const auto& [name, value] : values) text += (text.empty() ? "" : " ") + name + "=" + value.text();
  return text;
}

}  // namespace jitune::space
