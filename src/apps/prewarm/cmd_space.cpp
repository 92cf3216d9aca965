#include <array>
#include <cstdio>
#include <map>
#include <set>
#include <vector>

#include "apps/prewarm/commands.hpp"
#include "apps/prewarm/table.hpp"
#include "apps/prewarm/text.hpp"
#include "base/json.hpp"
#include "space/form.hpp"

namespace jitune::prewarm {
namespace {

/// Derived values of one config, in the definition's order.
std::vector<std::pair<std::string, std::string>> derived_values(const space::Instance& instance,
                                                                const space::Config& config) {
  const space::Model& model = instance.model();
  std::shared_ptr<const space::Model::Form> form = model.forms().front();
  for (const auto& other : model.forms())
    if (other->name == instance.variant()) form = other;
  space::Symbols symbols = model.symbols();
  std::vector<space::Cell> cells(static_cast<size_t>(symbols.size()));
  space::set_device_cells(instance.device(), symbols, cells);
  for (const auto* values : {&instance.problem(), &config})
    for (const auto& [name, value] : *values)
      if (const int slot = symbols.find(name); slot >= 0)
        cells[static_cast<size_t>(slot)] = space::to_cell(value, symbols);
  std::vector<std::pair<std::string, std::string>> result;
  for (const space::DerivedForm& derived : form->derived) {
    const space::Evaluation value = derived.expression.evaluate(cells);
    if (value.status != space::EvalStatus::ok) {
      result.emplace_back(derived.name, to_string(value.status));
      continue;
    }
    cells[static_cast<size_t>(derived.slot)] = {value.is_word ? space::Cell::Kind::word : space::Cell::Kind::number,
                                                value.value};
    result.emplace_back(derived.name, value.is_word ? symbols.word_text(value.value) : std::to_string(value.value));
  }
  return result;
}

std::string dims_text(const std::array<uint32_t, 3>& dims) {
  return std::to_string(dims[0]) + " x " + std::to_string(dims[1]) + " x " + std::to_string(dims[2]);
}

/// All that is said of one kernel and problem.
struct Facts {
  const Task* task = nullptr;
  space::SpaceCount count;
  std::vector<space::Config> samples;
  Result<space::Config> fallback = Failure{};
};

Facts look_at(const Task& task, const Options& options) {
  Facts facts{&task, task.instance.space().count(), {}, task.instance.default_config()};
  const bool empty = facts.count.complete && facts.count.valid == 0;
  // Few configs: all of them, in order. Many: drawn, without repeats.
  if (!empty && facts.count.complete && facts.count.valid <= options.samples) {
    facts.samples = task.instance.space().list(static_cast<size_t>(options.samples));
    return facts;
  }
  std::set<std::string> seen;
  for (uint64_t draw = 0; !empty && draw < 4 * options.samples && facts.samples.size() < options.samples; ++draw)
    if (auto config = task.instance.space().sample(options.seed, draw);
        config && seen.insert(space::canonical(*config)).second)
      facts.samples.push_back(std::move(*config));
  return facts;
}

std::string default_text(const Facts& facts) {
  const space::Instance& instance = facts.task->instance;
  if (!facts.fallback) return "  default config: " + facts.fallback.error() + "\n";
  const space::Config& config = *facts.fallback;
  std::string text = "  default config  " + space::short_text(config) + "\n";
  for (const auto& [name, value] : derived_values(instance, config)) text += "    " + name + " = " + value + "\n";
  if (const auto build = instance.build(config)) {
    text += "    entry " + build->entry + ", " + build->arch + "\n";
    for (const std::string& option : build->options) text += "    option " + option + "\n";
    for (const auto& [name, value] : build->defines) text += "    #define " + name + " " + value + "\n";
  }
  const auto geometry = instance.geometry(config);
  if (!geometry) return text + "    launch: " + geometry.error() + "\n";
  text += "    grid " + dims_text(geometry->grid) + ", block " + dims_text(geometry->block) + ", " +
          bytes_text(geometry->shared_bytes) + " of dynamic shared memory";
  if (geometry->cluster[0] > 0) text += ", cluster " + dims_text(geometry->cluster);
  if (geometry->cooperative) text += ", cooperative";
  if (geometry->programmatic_dependent) text += ", programmatic dependent";
  return text + "\n";
}

std::string text_of(const Facts& facts) {
  const space::SpaceCount& count = facts.count;
  const std::string& variant = facts.task->instance.variant();
  std::string text = facts.task->label() + (variant.empty() ? "" : "  (" + variant + ")") + "\n";
  text +=
      "  " + space::to_string(count.product) + (count.product == 1 ? " point, " : " points, ") +
      space::to_string(count.valid) + " valid" +
      (count.complete ? "" : " among the first " + space::to_string(count.examined) + " (the rest was not walked)") +
      "\n";
  Table table({{"rejected", Table::Align::right}, {"by"}});
  for (const space::Rejections& rejection : count.rejections)
    if (rejection.points > 0 || !rejection.constraint.starts_with("launch:"))  // limits of the device go without saying
      table.add({space::to_string(rejection.points), rejection.constraint});
  if (!table.empty()) text += table.text(2);
  text += default_text(facts);
  if (facts.samples.empty()) return text;
  text += facts.samples.size() == count.valid ? "  all configs\n" : "  samples\n";
  for (const space::Config& config : facts.samples) text += "    " + space::short_text(config) + "\n";
  return text;
}

/// Counts as numbers as long as JSON readers keep them exact, else as text.
Json number(space::Count count) {
  constexpr space::Count kExact = uint64_t{1} << 53;
  return count <= kExact ? Json(static_cast<uint64_t>(count)) : Json(space::to_string(count));
}

Json json_of(const Facts& facts) {
  const space::Instance& instance = facts.task->instance;
  Json rejections = Json::array();
  for (const space::Rejections& rejection : facts.count.rejections)
    rejections.push_back({{"constraint", rejection.constraint}, {"points", number(rejection.points)}});
  Json samples = Json::array();
  for (const space::Config& config : facts.samples) samples.push_back(Json::parse(space::canonical(config)));
  Json json{{"kernel", instance.model().name()},
            {"problem", Json::parse(space::canonical(instance.problem()))},
            {"variant", instance.variant()},
            {"arch", instance.build_pattern().arch},
            {"product", number(facts.count.product)},
            {"examined", number(facts.count.examined)},
            {"valid", number(facts.count.valid)},
            {"complete", facts.count.complete},
            {"rejections", rejections},
            {"samples", samples},
            {"default", nullptr}};
  if (!facts.fallback) {
    json["default_error"] = facts.fallback.error();
    return json;
  }
  Json fallback{{"config", Json::parse(space::canonical(*facts.fallback))}, {"derived", Json::object()}};
  for (const auto& [name, value] : derived_values(instance, *facts.fallback)) {
    const Value parsed = Value::parse(value);
    fallback["derived"][name] = parsed.is_int() ? Json(parsed.as_int()) : Json(value);
  }
  if (const auto geometry = instance.geometry(*facts.fallback))
    fallback["launch"] = {{"grid", geometry->grid},
                          {"block", geometry->block},
                          {"cluster", geometry->cluster},
                          {"shared_bytes", geometry->shared_bytes},
                          {"cooperative", geometry->cooperative}};
  if (const auto build = instance.build(*facts.fallback)) fallback["entry"] = build->entry;
  json["default"] = fallback;
  return json;
}

}  // namespace

Exit run_space(Session& session) {
  const std::vector<Work> work = session.load();
  const space::DeviceInfo device = session.gpu_or_arch();
  const std::vector<Task> tasks = bind_work(work, device);
  const bool json = session.options().json;
  Json results = Json::array();
  std::string empty;
  if (!json) print("on " + device.name + " (" + device.arch() + ")\n");
  for (const Task& task : tasks) {
    const Facts facts = look_at(task, session.options());
    if (facts.count.complete && facts.count.valid == 0)
      empty += (empty.empty() ? "" : "\n") + task.label() + ": " + explain_empty(facts.count);
    if (json)
      results.push_back(json_of(facts));
    else
      print("\n" + text_of(facts));
  }
  if (json)
    print(Json{{"device", device.name}, {"arch", device.arch()}, {"spaces", results}}.dump(
              2, ' ', false, Json::error_handler_t::replace) +
          "\n");
  if (!empty.empty()) {
    std::fflush(stdout);
    throw Stop(Exit::no_valid_config, empty);
  }
  return Exit::ok;
}

}  // namespace jitune::prewarm
