#include <cstdlib>
#include <set>

#include "exchange/csv.hpp"
#include "exchange/fields.hpp"
#include "space/config.hpp"

// kernel,variant,problem.M,problem.T,config.BM,...,median_us,default_us,...,key: shapes in, winners out.
namespace jitune::exchange {
namespace {

const std::string kProblem = "problem.", kConfig = "config.";

using Values = std::map<std::string, Value>;
using Cells = std::map<std::string, std::string>;  // by column

/// A value's text; in JSON's quotes where it would be read as something else.
std::string cell_of(const Value& value) {
  const std::string text = value.text();
  const bool plain = !text.empty() && text[0] != '"' && Value::parse(text) == value;
  return plain ? text : Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<Value> value_of(const std::string& cell) {
  if (cell[0] != '"') return Value::parse(cell);
  const Json json = Json::parse(cell, nullptr, false);
  if (!json.is_string()) return std::nullopt;
  return Value(json.get<std::string>());
}

std::string number(double value) {
  return value > 0 ? Json(value).dump() : "";
}

Cells cells_of(const store::WinnerRecord& record) {
  const store::WinnerRow& winner = record.winner;
  Cells cells{{"kernel", record.key.kernel},
              {"variant", record.key.variant},
              {"median_us", number(winner.median_us)},
              {"default_us", number(winner.default_us)},
              {"pinned", winner.pinned ? "pinned" : ""},
              {"decided_at", utc_text(winner.decided_at)},
              {"device", record.device},
              {"driver", record.driver},
              {"origin", record.origin},
              {"key", record.key.sha256}};
  const auto add = [&](const std::string& prefix, const std::string& json) {
    if (const auto values = space::parse_values(json))
      for (const auto& [name, value] : *values) cells[prefix + name] = cell_of(value);
  };
  add(kProblem, record.key.problem);
  add(kConfig, winner.config);
  for (const auto& [name, text] : key_texts(record.key)) cells[name] = text;
  return cells;
}

std::vector<std::string> column_names(const std::vector<Cells>& rows) {
  std::set<std::string> problem, config;
  for (const Cells& row : rows)
    for (const auto& [name, cell] : row) {
      if (name.starts_with(kProblem)) problem.insert(name);
      if (name.starts_with(kConfig)) config.insert(name);
    }
  std::vector<std::string> names{"kernel", "variant"};
  names.insert(names.end(), problem.begin(), problem.end());
  names.insert(names.end(), config.begin(), config.end());
  for (const char* name : {"median_us", "default_us", "pinned", "decided_at", "device", "driver", "origin"})
    names.emplace_back(name);
  for (const auto& [name, text] : key_texts({})) names.emplace_back(name);
  names.emplace_back("key");
  return names;
}

std::optional<double> time_of(const std::string& cell) {
  if (cell.empty()) return 0;
  char* end = nullptr;
  const double value = std::strtod(cell.c_str(), &end);
  return *end == '\0' ? std::optional(value) : std::nullopt;
}

/// What is wrong with a row, "" when it was read.
std::string read_row(const Cells& cells, store::WinnerRecord& record) {
  Values problem, config;
  for (const auto& [name, cell] : cells) {
    const bool in_problem = name.starts_with(kProblem), in_config = name.starts_with(kConfig);
    if (cell.empty() || (!in_problem && !in_config)) continue;
    auto value = value_of(cell);
    if (!value) return "a value is neither plain nor in JSON's quotes";
    if (in_problem)
      problem.emplace(name.substr(kProblem.size()), std::move(*value));
    else
      config.emplace(name.substr(kConfig.size()), std::move(*value));
  }
  record.key.kernel = cells.at("kernel");
  record.key.variant = cells.at("variant");
  record.key.problem = space::canonical(problem);
  for (const auto& [name, text] : key_texts({}))
    if (!set_key_field(record.key, name, cells.at(name))) return "a field of its key is unknown or no number";
  store::WinnerRow& winner = record.winner;
  winner.config = space::canonical(config);
  const auto median = time_of(cells.at("median_us")), fallback = time_of(cells.at("default_us"));
  if (!median || !fallback) return "a time is not a time";
  winner.median_us = *median;
  winner.default_us = *fallback;
  winner.pinned = cells.at("pinned") == "pinned";
  const auto decided = parse_utc(cells.at("decided_at"));
  if (!decided) return "decided_at is no time";
  winner.decided_at = *decided;
  record.device = cells.at("device");
  record.driver = cells.at("driver");
  record.origin = cells.at("origin");
  return complete(record, cells.at("key"));
}

}  // namespace

std::string to_csv(const std::vector<store::WinnerRecord>& records) {
  std::vector<Cells> rows;
  for (const store::WinnerRecord& record : records) rows.push_back(cells_of(record));
  const std::vector<std::string> names = column_names(rows);
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ",") + csv_field(name);
  text += "\n";
  for (const Cells& row : rows) {
    for (size_t i = 0; i < names.size(); ++i) {
      const auto cell = row.find(names[i]);
      text += (i == 0 ? "" : ",") + (cell == row.end() ? "" : csv_field(cell->second));
    }
    text += "\n";
  }
  return text;
}

Result<void> read_csv(const std::string& text, const std::string& place, Winners& into) {
  const std::vector<CsvRow> rows = parse_csv(text);
  if (rows.empty()) return Failure{place + ": an empty table"};
  const std::vector<std::string>& names = rows[0].cells;
  const std::set<std::string> known(names.begin(), names.end());
  for (const std::string& name : column_names({}))
    if (known.count(name) == 0) return Failure{place + ": not a table of winners: it has no column '" + name + "'"};
  for (size_t i = 1; i < rows.size(); ++i) {
    const std::string where = place + ":" + std::to_string(rows[i].line);
    Cells cells;
    for (size_t j = 0; j < names.size() && j < rows[i].cells.size(); ++j) cells[names[j]] = rows[i].cells[j];
    Item item{{}, where};
    const std::string wrong =
        rows[i].cells.size() == names.size() ? read_row(cells, item.record) : "it has not as many cells as columns";
    if (wrong.empty())
      into.items.push_back(std::move(item));
    else
      into.refused[wrong].push_back(where);
  }
  return {};
}

}  // namespace jitune::exchange
