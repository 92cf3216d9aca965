#include "exchange/fields.hpp"

#include <charconv>
#include <cmath>
#include <ctime>

#include "space/config.hpp"

namespace jitune::exchange {
namespace {

template <class Key, class Visit>
void visit_texts(Key& key, Visit visit) {
  visit("arch", key.arch);
  visit("cc", key.cc);
  visit("sm_count", key.sm_count);
  visit("memory_gib", key.memory_gib);
  visit("l2_bytes", key.l2_bytes);
  visit("max_clock_mhz", key.max_clock_mhz);
  visit("max_memory_clock_mhz", key.max_memory_clock_mhz);
  visit("nvrtc", key.nvrtc);
  visit("policy", key.policy);
  visit("environment", key.environment);
  visit("callables", key.callables);
  visit("entry", key.entry);
  visit("options", key.options);
  visit("source_sha256", key.source_sha256);
  visit("launch_sha256", key.launch_sha256);
  visit("schema", key.schema);
}

template <class Number>
bool read_number(const std::string& text, Number& value) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  return code == std::errc() && end == text.data() + text.size() && !text.empty();
}

struct AsText {
  std::string operator()(const std::string& text) const { return text; }
  std::string operator()(int64_t number) const { return std::to_string(number); }
  std::string operator()(int number) const { return std::to_string(number); }
};

struct Set {
  const std::string& text;
  bool operator()(std::string& field) const {
    field = text;
    return true;
  }
  bool operator()(int64_t& field) const { return read_number(text, field); }
  bool operator()(int& field) const { return read_number(text, field); }
};

bool is_time(double us) {
  return std::isfinite(us) && us >= 0 && us < 1e12;
}

bool is_sha256(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

std::vector<std::pair<const char*, std::string>> key_texts(const key::TuningKey& key) {
  std::vector<std::pair<const char*, std::string>> texts;
  visit_texts(key, [&](const char* name, const auto& field) { texts.emplace_back(name, AsText()(field)); });
  return texts;
}

bool set_key_field(key::TuningKey& key, const std::string& name, const std::string& text) {
  bool known = false, good = false;
  visit_texts(key, [&](const char* each, auto& field) {
    if (name != each) return;
    known = true;
    good = Set{text}(field);
  });
  return known && good;
}

bool is_number_field(const std::string& name) {
  key::TuningKey key;
  bool number = false;
  visit_texts(key, [&](const char* each, const auto& field) {
    if (name == each) number = !std::is_same_v<std::decay_t<decltype(field)>, std::string>;
  });
  return number;
}

std::string complete(store::WinnerRecord& record, const std::string& sha256) {
  key::TuningKey& key = record.key;
  if (key.schema != key::kKeySchema) return "its key is of another schema than this jitune's";
  if (key.kernel.empty()) return "it names no kernel";
  if (!is_sha256(key.source_sha256) || !is_sha256(key.launch_sha256)) return "a hash is not 64 hexadecimal digits";
  const auto problem = space::parse_values(key.problem), config = space::parse_values(record.winner.config);
  if (!problem) return "its problem is not names with values";
  if (!config || config->empty()) return "its config is not names with values";
  if (!is_time(record.winner.median_us) || !is_time(record.winner.default_us)) return "a time is not a time";
  record.winner.config = space::canonical(*config);
  key::seal(key);
  if (key.sha256 != sha256) return "the fields of its key do not give its hash";
  record.winner.key_sha256 = key.sha256;
  record.winner.nvrtc = key.nvrtc;
  return "";
}

std::string utc_text(int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::optional<int64_t> parse_utc(const std::string& text) {
  int64_t seconds = 0;
  if (read_number(text, seconds)) return seconds;
  std::tm parts{};
  const char* end = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  if (end == nullptr || *end != '\0') return std::nullopt;
  return ::timegm(&parts);
}

}  // namespace jitune::exchange
