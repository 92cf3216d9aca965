#include "apps/prewarm/replay_files.hpp"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "base/json.hpp"
#include "jitune/error.hpp"

namespace jitune::prewarm {
namespace {

using search::Fate;
using search::Told;

constexpr double kUsPerMs = 1000;
constexpr size_t kMaxBytes = size_t{1} << 30;

/// What a reader found: rows with words for values, and what the file says of the space.
struct Recording {
  struct Row {
    std::map<std::string, Value> config;
    Told told;
  };
  std::vector<std::string> names;
  std::map<std::string, std::vector<Value>> values;  ///< as stated; those of the rows where nothing is
  std::vector<std::string> constraints;              ///< Python's
  std::vector<Row> rows;
};

/// JSON numbers that are no integers become words: they are only compared.
Value to_value(const Json& json) {
  if (json.is_boolean()) return Value(json.get<bool>());
  if (json.is_number_integer()) return Value(static_cast<long>(json.get<int64_t>()));
  if (json.is_string()) return Value(json.get<std::string>());
  return Value(json.dump());
}

/// Upstream's words for what became of a config.
Fate fate_of(std::string word) {
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto has = [&](const char* part) { return word.find(part) != std::string::npos; };
  if (word == "ok" || word == "correct" || word.empty()) return Fate::ok;
  if (word == "early_stopped") return Fate::early_stopped;
  if (word == "skipped") return Fate::skipped;
  if (has("compil")) return Fate::compile_failed;
  if (has("valid") && !has("invalid")) return Fate::wrong;
  if (has("correct")) return Fate::wrong;
  return Fate::run_failed;
}

Told timed(double time_us, double noise = 0) {
  if (!(time_us > 0) || !std::isfinite(time_us)) return {Fate::run_failed, 0, 0};
  return {Fate::ok, time_us, noise};
}

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> cells;
  std::stringstream text(line);
  for (std::string cell; std::getline(text, cell, ',');) cells.push_back(cell);
  return cells;
}

Result<Recording> read_replay_csv(const std::string& text) {
  Recording recording;
  std::stringstream lines(text);
  std::string line;
  std::getline(lines, line);
  const Json header = Json::parse(line.substr(std::min(line.find('{'), line.size())), nullptr, false);
  if (!header.is_object() || header.value("format", "") != "replay-csv-1")
    return Failure{"line 1 is not the header of replay-csv-1"};
  for (const auto& [name, values] : header["params"].items())
    for (const Json& value : values) recording.values[name].push_back(to_value(value));
  for (const Json& constraint : header["constraints"]) recording.constraints.push_back(constraint.get<std::string>());
  std::getline(lines, line);
  const std::vector<std::string> columns = split(line);
  const auto status = static_cast<size_t>(std::find(columns.begin(), columns.end(), "status") - columns.begin());
  if (status + 5 >= columns.size()) return Failure{"line 2 names no column 'status' with times after it"};
  recording.names.assign(columns.begin(), columns.begin() + static_cast<std::ptrdiff_t>(status));
  for (size_t number = 3; std::getline(lines, line); ++number) {
    if (line.empty()) continue;
    const std::vector<std::string> cells = split(line);
    if (cells.size() <= status) return Failure{"line " + std::to_string(number) + " is too short"};
    Recording::Row row;
    for (size_t i = 0; i < status; ++i) row.config.emplace(columns[i], Value::parse(cells[i]));
    const auto number_at = [&](size_t at) { return at < cells.size() ? std::strtod(cells[at].c_str(), nullptr) : 0.0; };
    const double mean_ms = number_at(status + 1), std_ms = number_at(status + 5);
    row.told = {fate_of(cells[status]), 0, 0};
    if (row.told.fate == Fate::ok) row.told = timed(mean_ms * kUsPerMs, mean_ms > 0 ? std_ms / mean_ms : 0);
    recording.rows.push_back(std::move(row));
  }
  return recording;
}

Result<Recording> read_kernel_tuner(const Json& json) {
  Recording recording;
  for (const Json& name : json["tune_params_keys"]) recording.names.push_back(name.get<std::string>());
  if (json.contains("tune_params"))
    for (const auto& [name, values] : json["tune_params"].items())
      for (const Json& value : values) recording.values[name].push_back(to_value(value));
  for (const auto& [key, entry] : json["cache"].items()) {
    Recording::Row row;
    for (const std::string& name : recording.names) {
      if (!entry.contains(name)) return Failure{"the entry '" + key + "' has no '" + name + "'"};
      row.config.emplace(name, to_value(entry[name]));
    }
    const Json time = entry.value("time", Json());
    row.told = time.is_number() ? timed(time.get<double>() * kUsPerMs)
                                : Told{time.is_string() ? fate_of(time.get<std::string>()) : Fate::run_failed, 0, 0};
    recording.rows.push_back(std::move(row));
  }
  return recording;
}

Result<Recording> read_t4(const Json& json) {
  Recording recording;
  const std::string unit = json.value("metadata", Json::object()).value("timeunit", "miliseconds");
  const double us = unit.starts_with("micro")  ? 1
                    : unit.starts_with("nano") ? 1e-3
                    : unit.starts_with("mil")  ? 1e3
                                               : 1e6;
  for (const Json& result : json["results"]) {
    Recording::Row row;
    for (const auto& [name, value] : result["configuration"].items()) row.config.emplace(name, to_value(value));
    row.told = {fate_of(result.value("invalidity", "correct")), 0, 0};
    for (const Json& measurement : result.value("measurements", Json::array()))
      if (row.told.fate == Fate::ok && measurement.value("name", Json()) == result["objectives"][0])
        row.told = measurement["value"].is_number() ? timed(measurement["value"].get<double>() * us)
                                                    : Told{Fate::run_failed, 0, 0};
    if (row.told.fate == Fate::ok && row.told.time_us <= 0) row.told.fate = Fate::run_failed;
    recording.rows.push_back(std::move(row));
  }
  return recording;
}

Result<Recording> read_ktt(const Json& json) {
  Recording recording;
  const std::string unit = json["Metadata"].value("TimeUnit", "Microseconds");
  const double us = unit == "Milliseconds" ? 1e3 : unit == "Nanoseconds" ? 1e-3 : unit == "Seconds" ? 1e6 : 1;
  for (const Json& result : json["Results"]) {
    Recording::Row row;
    for (const Json& param : result["Configuration"])
      row.config.emplace(param["Name"].get<std::string>(), to_value(param["Value"]));
    row.told = {fate_of(result.value("Status", "Ok")), 0, 0};
    if (row.told.fate == Fate::ok) row.told = timed(result.value("TotalDuration", 0.0) * us);
    recording.rows.push_back(std::move(row));
  }
  return recording;
}

Result<Recording> read_json(const Json& json) {
  if (!json.is_object())
    return Failure{"neither replay-csv-1 nor a JSON object (Kernel Tuner cache, T4 or KTT results)"};
  if (json.contains("cache") && json.contains("tune_params_keys")) return read_kernel_tuner(json);
  if (json.contains("results")) return read_t4(json);
  if (json.contains("Results") && json.contains("Metadata")) return read_ktt(json);
  return Failure{"a JSON object, but neither a Kernel Tuner cache nor T4 or KTT results"};
}

Result<Recording> read_text(const std::string& text) {
  if (text.starts_with("#")) return read_replay_csv(text);
  return read_json(Json::parse(text, nullptr, false));
}

/// The space as stated, if its constraints give exactly the rows.
std::optional<space::Space> stated_space(const Recording& recording, const std::vector<space::PlainParam>& params) {
  try {
    std::vector<std::string> require;
    for (const std::string& constraint : recording.constraints) require.push_back(from_python(constraint));
    space::Space space = space::plain_space(params, require);
    const space::ValidSet valid(space);
    if (!valid.counted() || valid.size() != recording.rows.size()) return std::nullopt;
    for (const Recording::Row& row : recording.rows)
      if (!valid.point(row.config)) return std::nullopt;
    return space;
  } catch (const Error&) {  // a constraint in words that our expressions do not have
    return std::nullopt;
  }
}

Result<search::RecordedSpace> make_space(const std::string& name, Recording recording) {
  if (recording.rows.empty()) return Failure{"it has no rows"};
  if (recording.names.empty())
    for (const auto& [param, value] : recording.rows.front().config) recording.names.push_back(param);
  std::map<std::string, std::set<Value>> seen;
  for (const Recording::Row& row : recording.rows) {
    if (row.config.size() != recording.names.size()) return Failure{"its rows have different params"};
    for (const auto& [param, value] : row.config) seen[param].insert(value);
  }
  std::vector<space::PlainParam> params;
  for (const std::string& param : recording.names) {
    std::vector<Value>& values = recording.values[param];
    for (const Value& value : seen[param])
      if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
    params.push_back({param, values});
  }
  std::optional<space::Space> space = stated_space(recording, params);
  if (!space) {
    std::vector<space::Point> points;
    for (const Recording::Row& row : recording.rows) {
      space::Point point;
      for (const space::PlainParam& param : params)
        point.push_back(static_cast<uint16_t>(
            std::find(param.values.begin(), param.values.end(), row.config.at(param.name)) - param.values.begin()));
      points.push_back(std::move(point));
    }
    space = space::plain_space(params, {}, points);
  }
  std::vector<search::RecordedSpace::Row> rows;
  for (Recording::Row& row : recording.rows) rows.push_back({std::move(row.config), row.told});
  return search::RecordedSpace(name, *space, rows);
}

/// Where the words `or`, `and` or a comparison stand outside parentheses.
struct Piece {
  size_t begin, length;
};

std::vector<Piece> top_level(const std::string& text, const std::vector<std::string>& words) {
  std::vector<Piece> found;
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '(') ++depth;
    if (text[i] == ')') --depth;
    if (depth != 0) continue;
    for (const std::string& word : words) {
      if (text.compare(i, word.size(), word) != 0) continue;
      found.push_back({i, word.size()});
      i += word.size() - 1;
      break;
    }
  }
  return found;
}

std::string joined(const std::string& text, const std::vector<Piece>& pieces, const std::string& between) {
  std::string result;
  size_t begin = 0;
  for (const Piece& piece : pieces) {
    result += "(" + from_python(text.substr(begin, piece.begin - begin)) + ")" + between;
    begin = piece.begin + piece.length;
  }
  return result + "(" + from_python(text.substr(begin)) + ")";
}

/// What `read` gives, as a space; the failure names the file.
template <class Read>
Result<search::RecordedSpace> to_space(const std::string& path, Read read) {
  std::string name = std::filesystem::path(path).filename().string();
  name = name.substr(0, name.find('.'));
  try {
    Result<Recording> recording = read();
    if (!recording) return Failure{path + ": " + recording.error()};
    Result<search::RecordedSpace> space = make_space(name, std::move(*recording));
    if (!space) return Failure{path + ": " + space.error()};
    return space;
  } catch (const Json::exception& error) {
    return Failure{path + ": " + error.what()};
  }
}

}  // namespace

std::string from_python(const std::string& text) {
  if (const auto pieces = top_level(text, {" or ", " || "}); !pieces.empty()) return joined(text, pieces, " || ");
  if (const auto pieces = top_level(text, {" and ", " && "}); !pieces.empty()) return joined(text, pieces, " && ");
  const size_t begin = text.find_first_not_of(' ');
  if (begin == std::string::npos) return text;
  if (text.compare(begin, 4, "not ") == 0) return "!(" + from_python(text.substr(begin + 4)) + ")";
  const auto pieces = top_level(text, {"<=", ">=", "==", "!=", "<<", ">>", "<", ">"});
  std::vector<Piece> comparisons;
  for (const Piece& piece : pieces)
    if (const std::string op = text.substr(piece.begin, piece.length); op != "<<" && op != ">>")
      comparisons.push_back(piece);
  if (comparisons.size() > 1) {
    std::string result;
    for (size_t i = 0; i < comparisons.size(); ++i) {
      const size_t from = i == 0 ? 0 : comparisons[i - 1].begin + comparisons[i - 1].length;
      const size_t to = i + 1 < comparisons.size() ? comparisons[i + 1].begin : text.size();
      result += (i == 0 ? "" : " && ") + from_python(text.substr(from, to - from));
    }
    return result;
  }
  std::string result;
  for (size_t i = begin; i < text.size(); ++i) {
    if (text.compare(i, 2, "//") == 0) ++i;
    if (text[i] != '(') {
      result += text[i];
      continue;
    }
    size_t end = i;
    for (int depth = 0; end < text.size(); ++end) {
      depth += text[end] == '(' ? 1 : text[end] == ')' ? -1 : 0;
      if (depth == 0) break;
    }
    result += "(" + from_python(text.substr(i + 1, end - i - 1)) + ")";
    i = end;
  }
  while (result.ends_with(' ')) result.pop_back();
  return result;
}

Result<std::string> read_maybe_gzip(const std::string& path) {
  const gzFile file = gzopen(path.c_str(), "rb");  // reads what is not compressed as it is
  if (file == nullptr) return Failure{path + ": it can't be opened"};
  std::string text;
  std::vector<char> block(1 << 16);
  int got = 0;
  while ((got = gzread(file, block.data(), static_cast<unsigned>(block.size()))) > 0 && text.size() < kMaxBytes)
    text.append(block.data(), static_cast<size_t>(got));
  const bool broken = got < 0 || gzclose(file) != Z_OK;
  if (broken) return Failure{path + ": it is cut short or damaged"};
  return text;
}

Result<search::RecordedSpace> recorded_from_rows(const std::string& name,
                                                 std::vector<search::RecordedSpace::Row> rows) {
  Recording recording;
  for (search::RecordedSpace::Row& row : rows) recording.rows.push_back({std::move(row.config), row.told});
  return make_space(name, std::move(recording));
}

std::string write_replay_csv(const search::RecordedSpace& recorded, const std::string& device,
                             const std::string& origin) {
  const space::ValidSet valid(recorded.space());
  Json params = Json::object();
  std::string columns;
  for (size_t i = 0; i < valid.params(); ++i) {
    Json values = Json::array();
    for (int index = 0; index < valid.width(i); ++index) {
      const Value& value = valid.value(i, static_cast<size_t>(index));
      if (value.is_word())
        values.push_back(value.as_word());
      else if (value.is_bool())
        values.push_back(value.as_int() != 0);
      else
        values.push_back(value.as_int());
    }
    params[valid.name(i)] = values;
    columns += valid.name(i) + ",";
  }
  std::string rows;
  size_t ok = 0;
  recorded.visit([&](const space::Config& config, const Told& told) {
    for (const auto& [name, value] : config) rows += value.text() + ",";
    static constexpr const char* kWords[] = {"ok", "early_stopped", "skipped", "compile", "runtime", "incorrect"};
    rows += kWords[static_cast<int>(told.fate)];
    if (told.fate == Fate::ok) {
      char text[64];
      std::snprintf(text, sizeof text, ",%.6g,%.6g,,,%.4g,,,", told.time_us / kUsPerMs, told.time_us / kUsPerMs,
                    told.noise * told.time_us / kUsPerMs);
      rows += text;
      ++ok;
    } else {
      rows += ",,,,,,,,";
    }
    rows += "\n";
  });
  const Json header{
      {"format", "replay-csv-1"}, {"device", device}, {"kernel", recorded.name()}, {"params", params},
      {"rows", recorded.rows()},  {"ok", ok},         {"time_unit", "ms"},         {"constraints", Json::array()},
      {"origin", origin}};
  return "# " + header.dump() + "\n" + columns +
         "status,mean_ms,median_ms,min_ms,first_ms,std_ms,n,compile_ms,bench_ms\n" + rows;
}

Result<search::RecordedSpace> read_recorded(const std::string& path) {
  Result<std::string> text = read_maybe_gzip(path);
  if (!text) return text.failure();
  return to_space(path, [&] { return read_text(*text); });
}

Result<search::RecordedSpace> read_recorded_json(const Json& json, const std::string& path) {
  return to_space(path, [&] { return read_json(json); });
}

}  // namespace jitune::prewarm
