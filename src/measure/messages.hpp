#pragma once

#include <string>
#include <vector>

#include "measure/protocol.hpp"
#include "wire/frame.hpp"

/// What the messages of protocol.hpp are made of.
namespace jitune::measure {

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

/// Cut off at the ends of int.
int to_int(int64_t value);

/// The array `name` of a map, or null.
const Json* find_array(const Json& json, const char* name);

template <class Number>
std::vector<Number> numbers(const Json& json, const char* name) {
  std::vector<Number> values;
  if (const Json* array = find_array(json, name); array != nullptr)
    for (const Json& value : *array)
      if (value.is_number()) values.push_back(value.get<Number>());
  return values;
}

Json geometry_to_json(const space::Geometry& geometry);
Result<space::Geometry> geometry_from_json(const Json& json);
Json args_to_json(const std::vector<space::ArgSpec>& args);
Result<std::vector<space::ArgSpec>> args_from_json(const Json& json);
Json candidate_to_json(const Candidate& candidate);
Result<Candidate> candidate_from_json(const Json& json);

}  // namespace jitune::measure
