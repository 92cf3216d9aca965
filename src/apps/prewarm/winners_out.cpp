#include "apps/prewarm/winners_out.hpp"

#include <filesystem>
#include <map>

#include "apps/prewarm/exit_codes.hpp"
#include "apps/prewarm/text.hpp"
#include "base/files.hpp"
#include "base/json.hpp"
#include "exchange/files.hpp"

namespace jitune::prewarm {
namespace {

namespace fs = std::filesystem;

void write_text(const std::string& path, const std::string& text) {
  std::error_code wrong;
  const fs::path directory = fs::path(path).parent_path();
  if (!directory.empty()) fs::create_directories(directory, wrong);
  if (wrong) throw Stop(Exit::usage, directory.string() + ": " + wrong.message());
  if (const auto written = write_file_atomically(path, text); !written) throw Stop(Exit::usage, written.error());
}

std::string format_by_name(const std::string& path) {
  switch (exchange::format_of(path)) {
    case exchange::Winners::Format::csv:
      return "csv";
    case exchange::Winners::Format::json:
      return "json";
    case exchange::Winners::Format::database:
      break;
  }
  return path.ends_with(".toml") ? "defaults" : "database";
}

/// A value as a word of our expressions: 'row' for words of one's own.
std::string expression_of(const Value& value) {
  return value.is_word() && find_type(value.as_word()) == nullptr ? "'" + value.text() + "'" : value.text();
}

std::string toml_string(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Where a rule applies: the problem of the key (buckets as the kernel computes them) on its class of devices.
std::string condition(const space::Model& model, const store::WinnerRecord& record) {
  const auto problem = space::parse_values(record.key.problem);
  std::string text =
      "device.cc == " + std::to_string(record.key.cc) + " && device.sm_count == " + std::to_string(record.key.sm_count);
  if (!problem) return text;
  for (const auto& [name, value] : *problem) {
    std::string left = name;
    for (const ProblemValue& each : model.problem())
      if (each.name == name && !each.bucket.empty()) left = "(" + each.bucket + ")";
    text += " && " + left + " == " + expression_of(value);
  }
  return text;
}

std::string rule_toml(const space::Model& model, const store::WinnerRecord& record, const std::string& table) {
  std::string config;
  if (const auto values = space::parse_values(record.winner.config))
    for (const auto& [name, value] : *values)
      config +=
          (config.empty() ? "" : ", ") + name + " = " + (value.is_word() ? toml_string(value.text()) : value.text());
  std::string comment = "# " + time_text(record.winner.median_us);
  if (record.winner.default_us > 0)
    comment += ", " + ratio_text(record.winner.default_us, record.winner.median_us) + " the default config's speed";
  if (!record.device.empty()) comment += ", " + record.device;
  if (!record.key.nvrtc.empty()) comment += ", NVRTC " + record.key.nvrtc;
  return comment + "\n[[" + table + "]]\nwhen = " + toml_string(condition(model, record)) + "\nconfig = { " + config +
         " }\n";
}

}  // namespace

std::string write_winners(const std::vector<store::WinnerRecord>& records, const std::string& path,
                          std::string format) {
  if (format.empty()) format = format_by_name(path);
  const std::string what = count_text(records.size(), "winner");
  if (format == "csv") {
    write_text(path, exchange::to_csv(records));
  } else if (format == "json" && path.ends_with(".json")) {
    write_text(path, exchange::to_json(records));
  } else if (format == "json") {
    const auto files = exchange::to_json_tree(records);
    for (const auto& [name, text] : files) write_text((fs::path(path) / name).string(), text);
    return what + " in " + count_text(files.size(), "file") + " below " + path;
  } else {
    std::error_code wrong;
    const fs::path directory = fs::absolute(path, wrong).parent_path();
    if (!fs::is_directory(directory, wrong)) throw Stop(Exit::usage, directory.string() + ": there is no such folder");
    if (const auto written = store::write_bundle(fs::absolute(path, wrong).string(), records); !written)
      throw Stop(Exit::database, written.error());
    size_t cubins = 0;
    for (const store::WinnerRecord& record : records)
      cubins += record.winner.artifact && !record.winner.artifact->cubin.empty() ? 1 : 0;
    return what + ", " + std::to_string(cubins) + " with a cubin, in " + path;
  }
  return what + " in " + path;
}

std::string defaults_toml(const std::vector<store::WinnerRecord>& records, const Today& today) {
  std::map<std::string, std::string> rules;  // by heading
  for (const store::WinnerRecord& record : records) {
    const auto model = today.find(record.key.kernel);
    if (!model)
      throw Stop(Exit::usage, "kernel '" + record.key.kernel +
                                  "': to write default rules its definition is needed (--definition FILE.toml), "
                                  "for the buckets of its problem");
    const std::string& variant = record.key.variant;
    const std::string heading = "# kernel '" + record.key.kernel + "'" +
                                (variant.empty() ? "" : ", variant '" + variant + "'") +
                                ": put these before its other default rules\n";
    rules[heading] += rule_toml(*model, record, variant.empty() ? "defaults" : "variants.defaults");
  }
  std::string text;
  for (const auto& [heading, lines] : rules) text += (text.empty() ? "" : "\n") + heading + lines;
  return text;
}

}  // namespace jitune::prewarm
