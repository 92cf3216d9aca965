#pragma once

#include <string>
#include <utility>
#include <vector>

#include "apps/prewarm/exit_codes.hpp"
#include "base/json.hpp"
#include "store/store.hpp"

/// Rows of the database as the commands print them.
namespace jitune::prewarm {

/// The value, or a Stop that says what is wrong with the database.
template <class T>
T must(Result<T> result) {
  if (!result) throw Stop(Exit::database, result.error());
  return std::move(result).value();
}

Json parsed(const std::string& json);

/// Indented, with a line feed at the end.
std::string document(const Json& json);

/// The fields of a key as people read them, in the key's own order.
std::vector<std::pair<const char*, std::string>> key_fields(const key::TuningKey& key);

Json row_json(const store::KeyRow& row);

/// The one key of the database that begins with `prefix`; a Stop when there is none or several.
store::KeyRow find_key(store::Store& store, const std::string& prefix);

}  // namespace jitune::prewarm
