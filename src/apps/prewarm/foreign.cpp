#include "apps/prewarm/foreign.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "apps/prewarm/replay_files.hpp"
#include "apps/prewarm/text.hpp"
#include "base/json.hpp"
#include "exchange/csv.hpp"
#include "exchange/files.hpp"

namespace jitune::prewarm {
namespace {

using Values = std::map<std::string, Value>;

/// One line of another system's answers: params and problem values in one, as it calls them.
struct Row {
  Values values;
  double time_us = 0;  ///< 0: not known
  std::string place;
};

struct Table {
  std::string format, device;
  std::vector<Row> rows;
  std::map<std::string, std::vector<std::string>> refused;
};

/// What is a number of the file's own: a time in microseconds, or where it ran.
const std::set<std::string> kTimes{"duration", "us", "time_us", "median_us", "latency_us"};
const std::set<std::string> kDevices{"arch", "gfx", "device", "device_name"};

std::string base_name(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

/// `torch.bfloat16` is bfloat16; second names of types become their word.
Value plain_value(std::string text) {
  if (text.starts_with("torch.")) text = text.substr(6);
  const TypeInfo* type = find_type(text);
  return type != nullptr ? Value(type->type) : Value::parse(text);
}

bool is_integer(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

bool is_sglang(const Json& json) {
  if (!json.is_object()) return false;
  size_t configs = 0;
  for (const auto& [name, entry] : json.items()) {
    if (is_integer(name) && entry.is_object()) ++configs;
    if (is_integer(name) != entry.is_object()) return false;
  }
  return configs > 0;
}

/// `E=128,N=1024,device_name=NVIDIA_H200.json`: values that hold for all of the file.
Values values_of_name(const std::string& path, std::string& device) {
  Values values;
  std::string name = base_name(path);
  name = name.substr(0, name.rfind(".json"));
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find(',', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    const size_t equals = part.find('=');
    if (equals != std::string::npos && part.substr(0, equals) == "device_name")
      device = part.substr(equals + 1);
    else if (equals != std::string::npos)
      values.emplace(part.substr(0, equals), plain_value(part.substr(equals + 1)));
    begin = end + 1;
  }
  return values;
}

/// {"1": {"BLOCK_SIZE_M": 16, ...}, "2": ...}: the outer name is M, the number of tokens.
Table read_sglang(const Json& json, const std::string& path) {
  Table table{"SGLang", "", {}, {}};
  const Values common = values_of_name(path, table.device);
  for (const auto& [m, config] : json.items()) {
    if (!config.is_object()) continue;
    Row row{common, 0, base_name(path) + " M=" + m};
    row.values["M"] = Value::parse(m);
    for (const auto& [name, value] : config.items())
      row.values.insert_or_assign(
          name, value.is_string() ? plain_value(value.get<std::string>()) : Value::parse(value.dump()));
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table read_table(const std::string& text, const std::string& path) {
  Table table{"table", "", {}, {}};
  const auto rows = exchange::parse_csv(text);
  if (rows.empty()) return table;
  const std::vector<std::string>& names = rows[0].cells;
  for (size_t i = 1; i < rows.size(); ++i) {
    Row row{{}, 0, base_name(path) + ":" + std::to_string(rows[i].line)};
    const std::vector<std::string>& cells = rows[i].cells;
    if (cells.size() > names.size()) {
      table.refused["the row has more cells than the header"].push_back(row.place);
      continue;
    }
    // Columns that come last are often left out; whether one of them was needed is seen later.
    for (size_t j = 0; j < cells.size(); ++j) {
      if (kTimes.count(names[j]) > 0)
        row.time_us = std::strtod(cells[j].c_str(), nullptr);
      else if (kDevices.count(names[j]) > 0)
        table.device = cells[j];
      else if (!cells[j].empty())
        row.values.emplace(names[j], plain_value(cells[j]));
    }
    if (!std::isfinite(row.time_us) || row.time_us < 0) row.time_us = 0;
    table.rows.push_back(std::move(row));
  }
  return table;
}

/// Kernel Tuner caches, T4 and KTT results, by the readers of `replay`: every config that was measured.
Table read_measured(const Json& json, const std::string& path) {
  Table table{"Kernel Tuner", json.value("device_name", ""), {}, {}};
  if (json.contains("results")) table.format = "T4";
  if (json.contains("Results")) {
    table.format = "KTT";
    table.device = json.value("Metadata", Json::object()).value("Device", "");
  }
  const auto recorded = read_recorded_json(json, path);
  if (!recorded) throw Stop(Exit::usage, recorded.error());
  recorded->visit([&](const space::Config& config, const search::Told& told) {
    if (told.fate == search::Fate::ok) table.rows.push_back({config, told.time_us, base_name(path)});
  });
  return table;
}

Table read_any(const std::string& path, const std::string& text) {
  if (path.ends_with(".csv")) return read_table(text, path);
  if (!exchange::is_shallow(text)) throw Stop(Exit::usage, path + ": its JSON is nested too deep");
  const Json json = Json::parse(text, nullptr, false);
  if (is_sglang(json)) return read_sglang(json, path);
  if (!json.is_object()) throw Stop(Exit::usage, path + ": not JSON that jitune knows");
  return read_measured(json, path);
}

/// Whether a text is what export writes, without parsing all of it: that is done once, by whoever reads it.
bool is_own(const std::string& path, const std::string& text) {
  if (!path.ends_with(".csv")) return text.find("\"jitune-winners-1\"") != std::string::npos;
  const auto rows = exchange::parse_csv(std::string_view(text).substr(0, text.find('\n')));
  return !rows.empty() && std::find(rows[0].cells.begin(), rows[0].cells.end(), "key") != rows[0].cells.end();
}

/// What --map says: `block_size_x=BLOCK`.
std::map<std::string, std::string> read_maps(const std::vector<std::string>& maps) {
  std::map<std::string, std::string> renamed;
  for (const std::string& text : maps) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
      throw Stop(Exit::usage, "--map " + text + ": write THEIRS=OURS, block_size_x=BLOCK for instance");
    renamed[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return renamed;
}

std::shared_ptr<const space::Model> the_kernel(const Today& today, const Options& options, const std::string& path) {
  if (!options.kernel.empty()) {
    if (auto model = today.find(options.kernel)) return model;
    throw Stop(Exit::usage, "--kernel " + options.kernel + ": no definition that was given has it");
  }
  if (today.models().size() == 1) return today.models()[0];
  throw Stop(Exit::usage, path + ": which kernel is it for? Give its definition (--definition FILE.toml" +
                              (today.empty() ? "" : ") and --kernel NAME") + (today.empty() ? ")" : ""));
}

void add_names(std::set<std::string>& names, const std::vector<Param>& params) {
  for (const Param& param : params) names.insert(param.name);
}

/// Names of the params that an instance's form has.
std::set<std::string> params_of(const space::Instance& instance) {
  const KernelDefinition& definition = instance.model().definition();
  std::set<std::string> names;
  for (const Variant& variant : definition.variants)
    if (variant.name == instance.variant() && variant.params) {
      add_names(names, *variant.params);
      return names;
    }
  add_names(names, definition.params);
  for (const auto& config : definition.configs)
    for (const auto& [name, value] : config) names.insert(name);
  return names;
}

/// Names of the params of all its forms.
std::set<std::string> all_params(const KernelDefinition& definition) {
  std::set<std::string> names;
  add_names(names, definition.params);
  for (const auto& config : definition.configs)
    for (const auto& [name, value] : config) names.insert(name);
  for (const Variant& variant : definition.variants)
    if (variant.params) add_names(names, *variant.params);
  return names;
}

/// Sorts a file's names into the kernel's problem values and params.
class Importer {
 public:
  Importer(Session& session, std::shared_ptr<const space::Model> model, ForeignWinners& into)
      : model_(std::move(model)),
        renamed_(read_maps(session.options().maps)),
        device_(session.gpu_or_arch()),
        into_(into),
        param_names_(all_params(model_->definition())) {
    for (const ProblemValue& value : model_->problem()) problem_names_.insert(value.name);
    for (const std::string& text : session.options().problems) {
      auto spec = parse_problem(text);
      if (!spec) throw Stop(Exit::usage, spec.error());
      for (const auto& [name, value] : spec->values) given_.insert_or_assign(name, value);
    }
    tune::ServiceOptions options = session.service_options();
    options.store.path = "off";
    auto services = tune::Services::open(std::move(options));
    if (!services) throw Stop(Exit::database, services.error());
    services_ = std::move(*services);
  }

  void run(Table table) {
    std::map<Values, std::vector<Row>> by_problem;
    for (Row& row : table.rows) {
      Values problem = given_;
      std::erase_if(problem, [&](const auto& each) { return problem_names_.count(each.first) == 0; });
      Row config{{}, row.time_us, row.place};
      for (const auto& [theirs, value] : row.values) {
        const auto at = renamed_.find(theirs);
        const std::string& name = at == renamed_.end() ? theirs : at->second;
        if (problem_names_.count(name) > 0)
          problem.insert_or_assign(name, value);
        else if (param_names_.count(name) > 0)
          config.values.insert_or_assign(name, value);
        else
          passed_over_.insert(theirs);
      }
      if (const std::string why = missing(problem); !why.empty())
        into_.refused[why].push_back(row.place);
      else
        by_problem[problem].push_back(std::move(config));
    }
    for (auto& [problem, rows] : by_problem) choose(problem, rows, table.device);
    if (!passed_over_.empty())
      into_.notes.push_back("passed over, since the kernel has no such name: " +
                            join_words({passed_over_.begin(), passed_over_.end()}));
  }

 private:
  std::string missing(const Values& problem) const {
    for (const std::string& name : problem_names_)
      if (problem.count(name) == 0) return "it does not say the problem value '" + name + "' (--problem, --map)";
    return "";
  }

  /// Why a row is no config of the instance, "" when it is one. What only other forms have is left out of it.
  static std::string wrong_config(const space::Instance& instance, const std::set<std::string>& params,
                                  Values& config) {
    std::erase_if(config, [&](const auto& each) { return params.count(each.first) == 0; });
    for (const std::string& name : params)
      if (config.count(name) == 0) return "it does not say the param '" + name + "' (--map)";
    if (const auto wrong = instance.reject(config)) return "the config is not in today's space: " + *wrong;
    return "";
  }

  /// The fastest config that is one of today's.
  void choose(const Values& problem, std::vector<Row>& rows, const std::string& device) {
    const auto instance = space::Instance::bind(model_, problem, device_);
    const auto key = instance ? services_->tuning_key(*instance) : Result<key::TuningKey>(instance.failure());
    if (!key) {
      into_.refused[key.error()].push_back(rows[0].place);
      return;
    }
    std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
      return (a.time_us > 0) != (b.time_us > 0) ? a.time_us > 0 : a.time_us < b.time_us;
    });
    const std::set<std::string> params = params_of(*instance);
    for (Row& row : rows) {
      if (const std::string wrong = wrong_config(*instance, params, row.values); !wrong.empty()) {
        into_.refused[wrong].push_back(row.place);
        continue;
      }
      store::WinnerRecord record;
      record.key = *key;
      record.winner.key_sha256 = key->sha256;
      record.winner.config = space::canonical(row.values);
      record.winner.median_us = row.time_us;
      record.winner.nvrtc = key->nvrtc;
      record.winner.decided_at = 1;  // older than any study's: what was measured here goes first in a tie
      record.device = device;
      record.origin = into_.format + ", " + row.place;
      into_.records.push_back(std::move(record));
      return;
    }
  }

  std::shared_ptr<const space::Model> model_;
  std::map<std::string, std::string> renamed_;
  space::DeviceInfo device_;
  ForeignWinners& into_;
  std::set<std::string> param_names_;
  std::unique_ptr<tune::Services> services_;
  Values given_;
  std::set<std::string> problem_names_, passed_over_;
};

}  // namespace

std::optional<std::string> foreign_text(const std::string& path) {
  const bool packed = path.ends_with(".gz");
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return std::nullopt;
  if (!packed && !path.ends_with(".json") && !path.ends_with(".csv")) return std::nullopt;
  auto text = read_maybe_gzip(path);
  if (!text) throw Stop(Exit::usage, text.error());
  if (!packed && is_own(path, *text)) return std::nullopt;
  return std::move(*text);
}

ForeignWinners read_foreign(Session& session, const std::string& path, const std::string& text, const Today& today) {
  const auto model = the_kernel(today, session.options(), path);
  Table table = read_any(path, text);
  ForeignWinners winners;
  winners.format = table.format;
  winners.refused = std::move(table.refused);
  Importer(session, model, winners).run(std::move(table));
  return winners;
}

}  // namespace jitune::prewarm
