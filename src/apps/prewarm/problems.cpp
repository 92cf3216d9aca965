#include "apps/prewarm/problems.hpp"

#include <optional>
#include <set>

#include "apps/prewarm/text.hpp"

namespace jitune::prewarm {
namespace {

constexpr const char* kExample =
    "; write NAME=VALUE pairs with commas between them, T=half,rows=4096,hidden=8192 for instance";

/// A value, or why `text` is none. Second names of types become the first, so that equal problems have equal keys.
Result<Value> parse_value(const std::string& name, std::string_view text) {
  if (text.empty()) return Failure{"'" + name + "' has no value"};
  const Value value = Value::parse(text);
  if (!value.is_word()) return value;
  const std::string& word = value.as_word();
  if (word.find_first_not_of("+-0123456789") == std::string::npos)
    return Failure{"the value of '" + name + "', " + word + ", is not a number that fits 64 bits"};
  if (word.find_first_of(" \t\"'=") != std::string::npos || (word[0] >= '0' && word[0] <= '9'))
    return Failure{"the value of '" + name + "', " + word +
                   ", is neither a whole number, true, false nor a word like half"};
  const TypeInfo* type = find_type(word);
  return type != nullptr ? Value(type->type) : value;
}

/// The fields of one line. Nothing when a quote is not closed.
std::optional<std::vector<std::string>> split_fields(std::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted && c == '"' && i + 1 < line.size() && line[i + 1] == '"') {
      fields.back() += c;
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  if (quoted) return std::nullopt;
  for (std::string& field : fields) field = std::string(trim(field));
  return fields;
}

Result<void> check_header(const std::vector<std::string>& names, const std::string& place) {
  std::set<std::string> seen;
  for (const std::string& name : names) {
    if (name.empty())
      return Failure{place + ": the header row has an empty name; it holds the names of the problem values"};
    if (!seen.insert(name).second) return Failure{place + ": the header row names '" + name + "' twice"};
  }
  return {};
}

Result<ProblemSpec> parse_row(const std::vector<std::string>& names, const std::vector<std::string>& fields,
                              const std::string& place) {
  if (fields.size() != names.size())
    return Failure{place + ": " + count_text(fields.size(), "value") + ", but the header row names " +
                   std::to_string(names.size()) + ": " + join_words(names)};
  ProblemSpec spec;
  spec.place = place;
  for (size_t i = 0; i < names.size(); ++i) {
    Result<Value> value = parse_value(names[i], fields[i]);
    if (!value) return Failure{place + ": " + value.error()};
    spec.text += (i > 0 ? "," : "") + names[i] + "=" + value->text();
    spec.values.emplace(names[i], *value);
  }
  return spec;
}

}  // namespace

Result<ProblemSpec> parse_problem(std::string_view text) {
  ProblemSpec spec;
  spec.text = std::string(trim(text));
  spec.place = "--problem " + spec.text;
  if (spec.text.empty()) return Failure{"--problem: it is empty" + std::string(kExample)};
  std::string_view rest = spec.text;
  while (true) {
    const size_t comma = rest.find(',');
    const std::string_view part = trim(rest.substr(0, comma));
    const size_t equals = part.find('=');
    if (part.empty()) return Failure{spec.place + ": there is nothing between two commas, or at an end" + kExample};
    const std::string name(trim(part.substr(0, equals)));
    if (equals == std::string_view::npos) return Failure{spec.place + ": '" + name + "' has no value" + kExample};
    if (name.empty()) return Failure{spec.place + ": '" + std::string(part) + "' has no name" + kExample};
    Result<Value> value = parse_value(name, trim(part.substr(equals + 1)));
    if (!value) return Failure{spec.place + ": " + value.error() + kExample};
    if (!spec.values.emplace(name, *value).second) return Failure{spec.place + ": '" + name + "' is given twice"};
    if (comma == std::string_view::npos) return spec;
    rest = rest.substr(comma + 1);
  }
}

Result<std::vector<ProblemSpec>> parse_problem_table(std::string_view csv, const std::string& path) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // spreadsheets write one
  if (csv.substr(0, kByteOrderMark.size()) == kByteOrderMark) csv.remove_prefix(kByteOrderMark.size());
  std::vector<std::string> names;
  std::vector<ProblemSpec> specs;
  for (int number = 1; !csv.empty(); ++number) {
    const size_t end = csv.find('\n');
    const std::string_view line = trim(csv.substr(0, end));
    csv = end == std::string_view::npos ? std::string_view() : csv.substr(end + 1);
    if (line.empty() || line[0] == '#') continue;
    const std::string place = path + ":" + std::to_string(number);
    const std::optional<std::vector<std::string>> fields = split_fields(line);
    if (!fields) return Failure{place + ": a quote is not closed on this line"};
    if (names.empty()) {
      names = *fields;
      if (Result<void> checked = check_header(names, place); !checked) return checked.failure();
      continue;
    }
    Result<ProblemSpec> spec = parse_row(names, *fields, place);
    if (!spec) return spec.failure();
    specs.push_back(std::move(spec).value());
  }
  if (names.empty()) return Failure{path + ": the file is empty; its first row holds the names of the problem values"};
  if (specs.empty()) return Failure{path + ": there is a header row but no problem below it"};
  return specs;
}

}  // namespace jitune::prewarm
