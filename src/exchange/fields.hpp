#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "exchange/files.hpp"

namespace jitune::exchange {

/// The fields of a key but problem and hash, as texts, in the order in which they are written.
std::vector<std::pair<const char*, std::string>> key_texts(const key::TuningKey& key);

/// Sets one of those fields. False where `name` is none of them, or the text of a number is no number.
bool set_key_field(key::TuningKey& key, const std::string& name, const std::string& text);

/// Whether a field is a number.
bool is_number_field(const std::string& name);

/// Why a record that was read can't be used, "" when it can. `sha256` is what the file says the key's hash is; the
/// key is sealed with it.
std::string complete(store::WinnerRecord& record, const std::string& sha256);

/// `2026-11-30T05:00:00Z`; reads it back, or plain seconds.
std::string utc_text(int64_t seconds);
std::optional<int64_t> parse_utc(const std::string& text);

}  // namespace jitune::exchange
