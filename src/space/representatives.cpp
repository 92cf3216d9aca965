// The problems at which a key is tuned, where its definition names some.
#include <algorithm>
#include <utility>

#include "space/form_builder.hpp"
#include "space/instance_state.hpp"

namespace jitune::space {
namespace {

/// What expressions of tune_at may read: the device, and of the problem what the key holds of it.
std::vector<Cell> key_cells(const Instance::State& state, Symbols& symbols) {
  std::vector<Cell> cells(static_cast<size_t>(symbols.size()));
  set_device_cells(state.device, symbols, cells);
  for (const auto& [name, value] : state.bucketed)
    cells[static_cast<size_t>(symbols.find(name))] = to_cell(value, symbols);
  return cells;
}

/// The values that one entry sets, or why it has none.
Result<ProblemValues> values_of(const Instance::State& state, const Model::TuneAtForm& entry,
                                const std::vector<Cell>& cells, const Symbols& symbols) {
  ProblemValues values;
  for (const auto& [slot, expression] : entry.values) {
    const std::string& name = symbols.name(slot);
    const Evaluation value = expression.evaluate(cells);
    if (value.status != EvalStatus::ok)
      return Failure{"tune_at of " + name + ": " + to_string(value.status) + " in `" + expression.text() + "`"};
    const auto own = state.problem.find(name);
    if (value.is_word)
      values.emplace(name, Value(symbols.word_text(value.value)));
    else if (own != state.problem.end() && own->second.is_bool() && (value.value == 0 || value.value == 1))
      values.emplace(name, Value(value.value != 0));
    else
      values.emplace(name, Value(static_cast<long>(value.value)));
  }
  return values;
}

}  // namespace

Representatives Instance::representatives() const {
  Representatives found;
  const State& state = *state_;
  if (state.model->tune_at().empty()) return found;
  Symbols symbols = state.symbols;
  const std::vector<Cell> cells = key_cells(state, symbols);
  for (const Model::TuneAtForm& entry : state.model->tune_at()) {
    const auto set = values_of(state, entry, cells, symbols);
    if (!set) {
      found.left_out.push_back(set.error());
      continue;
    }
    const auto same = std::find_if(found.problems.begin(), found.problems.end(),
                                   [&](const Representative& each) { return each.set == *set; });
    if (same != found.problems.end()) {
      same->weight += entry.weight;
      continue;
    }
    ProblemValues problem = state.problem;
    for (const auto& [name, value] : *set) problem.insert_or_assign(name, value);
    auto instance = bind(state.model, problem, state.device);
    if (!instance) {
      found.left_out.push_back("tune_at " + short_text(*set) + ": " + instance.error());
      continue;
    }
    if (instance->bucketed_problem() != state.bucketed || instance->variant() != variant()) continue;
    found.problems.push_back({std::move(*instance), *set, entry.weight});
  }
  std::sort(found.problems.begin(), found.problems.end(), [](const Representative& a, const Representative& b) {
    return a.weight != b.weight ? a.weight > b.weight : canonical(a.set) < canonical(b.set);
  });
  if (found.problems.size() > Representatives::kMost) {
    found.left_out.push_back("tune_at has " + std::to_string(found.problems.size()) +
                             " problems in this bucket; the heaviest " + std::to_string(Representatives::kMost) +
                             " are measured");
    found.problems.erase(found.problems.begin() + Representatives::kMost, found.problems.end());
  }
  return found;
}

}  // namespace jitune::space
