#include "space/space.hpp"

#include <algorithm>
#include <set>

#include "base/random.hpp"
#include "space/space_state.hpp"

namespace jitune::space {
namespace {

constexpr int kStatuses = static_cast<int>(EvalStatus::not_a_type) + 1;
constexpr int kDraws = 10'000;
constexpr uint64_t kFallbackNodes = 1'000'000;

/// No state: equal counters, equal numbers.
uint64_t random_number(uint64_t seed, uint64_t draw, uint64_t attempt, uint64_t index) {
  return mix_bits(mix_bits(mix_bits(mix_bits(seed) ^ draw) ^ attempt) ^ index);
}
int random_below(uint64_t number, size_t bound) {
  return static_cast<int>((static_cast<Count>(number) * bound) >> 64);
}

/// Depth-first over one plan.
class Walk {
 public:
  Walk(const Space::State& state, const Plan& plan)
      : state_(state), plan_(plan), cells_(state.base), indices_(state.form->params.size(), 0) {
    rejected_.assign(state.checks.size(), {});
  }

  std::function<bool(const std::vector<int>&)> on_valid;   ///< false: stop
  std::function<void(std::vector<int>&, size_t)> shuffle;  ///< order in which a level's values are tried
  uint64_t limit = UINT64_MAX;
  bool counts_below = false;  ///< a subtree without checks is counted, not visited

  void run() { go_on_ = node(0); }
  bool finished() const { return go_on_; }
  Count valid = 0, examined = 0;

  std::vector<Rejections> rejections() const {
    std::vector<Rejections> list, errors;
    for (size_t i = 0; i < state_.checks.size(); ++i) {
      const Check& check = state_.checks[i];
      if (check.kind != Check::Kind::derived) list.push_back({check.name, rejected_[i][0]});
      for (int status = 1; status < kStatuses; ++status) {
        const Count points = rejected_[i][static_cast<size_t>(status)];
        if (points == 0) continue;
        const std::string cause = to_string(static_cast<EvalStatus>(status));
        errors.push_back({cause + " in " + check.name, points});
      }
    }
    list.insert(list.end(), errors.begin(), errors.end());
    return list;
  }

 private:
  /// Charges the points below to the check that rejects them.
  bool passes(size_t level) {
    for (const int index : plan_.levels[level]) {
      const Verdict verdict = state_.checks[static_cast<size_t>(index)].run(cells_);
      if (verdict.status == EvalStatus::ok && verdict.passed) continue;
      rejected_[static_cast<size_t>(index)][static_cast<size_t>(verdict.status)] += plan_.below[level];
      examined += plan_.below[level];
      return false;
    }
    return true;
  }

  bool node(size_t level) {
    if (!passes(level)) return true;
    if (level == plan_.order.size() || (counts_below && level >= static_cast<size_t>(plan_.last_check_level))) {
      valid += plan_.below[level];
      examined += plan_.below[level];
      return !on_valid || on_valid(indices_);
    }
    const size_t param = static_cast<size_t>(plan_.order[level]);
    const ParamForm& form = state_.form->params[param];
    std::vector<int> tries;
    if (shuffle) {
      for (size_t i = 0; i < form.cells.size(); ++i) tries.push_back(static_cast<int>(i));
      shuffle(tries, level);
    }
    for (size_t i = 0; i < form.cells.size(); ++i) {
      if (nodes_++ >= limit) return false;
      const size_t index = shuffle ? static_cast<size_t>(tries[i]) : i;
      indices_[param] = static_cast<int>(index);
      cells_[static_cast<size_t>(form.slot)] = form.cells[index];
      if (!node(level + 1)) return false;
    }
    return true;
  }

  const Space::State& state_;
  const Plan& plan_;
  std::vector<Cell> cells_;
  std::vector<int> indices_;
  std::vector<std::array<Count, kStatuses>> rejected_;
  uint64_t nodes_ = 0;
  bool go_on_ = true;

  friend SpaceCount count_list(const Space::State& state, uint64_t limit);
};

SpaceCount count_list(const Space::State& state, uint64_t limit) {
  Walk walk(state, state.canonical);
  SpaceCount result;
  result.product = state.product();
  for (const std::vector<int>& indices : state.form->configs) {
    if (result.examined == limit) {
      result.complete = false;
      break;
    }
    int failed = -1;
    std::vector<Cell> cells = state.base;
    const Verdict verdict = state.run_all(indices, cells, failed);
    ++result.examined;
    if (failed < 0)
      ++result.valid;
    else
      ++walk.rejected_[static_cast<size_t>(failed)][static_cast<size_t>(verdict.status)];
  }
  result.rejections = walk.rejections();
  return result;
}

}  // namespace

namespace {

/// The state of a Space is nobody's business but this room's, and space.hpp is read by nearly every file: the names of
/// private members may be used in an explicit instantiation ([temp.spec]), so the header need not say who asks for it.
template <auto kMember>
struct Opened {
  friend const std::shared_ptr<const Space::State>& open(const Space& space) { return space.*kMember; }
};
const std::shared_ptr<const Space::State>& open(const Space& space);
template struct Opened<&Space::state_>;

}  // namespace

const std::shared_ptr<const Space::State>& state_of(const Space& space) {
  return open(space);
}

std::string to_string(Count count) {
  std::string text;
  do {
    text.insert(text.begin(), static_cast<char>('0' + static_cast<int>(count % 10)));
    count /= 10;
  } while (count != 0);
  return text;
}

Plan make_plan(const Model::Form& form, const std::vector<Check>& checks, std::vector<int> order, size_t slots) {
  Plan plan;
  plan.order = std::move(order);
  plan.levels.resize(form.params.size() + 1);
  plan.below.assign(form.params.size() + 1, 1);
  for (size_t i = form.params.size(); i-- > 0;)
    plan.below[i] = plan.below[i + 1] * form.params[static_cast<size_t>(plan.order[i])].values.size();

  std::vector<int> level_of(slots, 0);
  for (size_t i = 0; i < plan.order.size(); ++i)
    level_of[static_cast<size_t>(form.params[static_cast<size_t>(plan.order[i])].slot)] = static_cast<int>(i) + 1;
  const auto level_of_check = [&](const Check& check) {
    int level = 0;
    for (const Expression* expression : check.expressions)
      for (const int slot : expression->slots()) level = std::max(level, level_of[static_cast<size_t>(slot)]);
    return level;
  };
  std::vector<int> derived_level(slots, -1);
  for (const Check& check : checks) {
    if (check.kind != Check::Kind::derived) continue;
    const int level = level_of_check(check);
    level_of[static_cast<size_t>(check.slot)] = derived_level[static_cast<size_t>(check.slot)] = level;
  }
  // At each level first what needs none of its derived values (`VEC > 0` must come before `8 / VEC`), then those, then
  // the rest.
  for (const int pass : {0, 1, 2}) {
    for (size_t i = 0; i < checks.size(); ++i) {
      const int level = level_of_check(checks[i]);
      bool needs_derived = false;
      for (const Expression* expression : checks[i].expressions)
        for (const int slot : expression->slots()) needs_derived |= derived_level[static_cast<size_t>(slot)] == level;
      const int own_pass = checks[i].kind == Check::Kind::derived ? 1 : needs_derived ? 2 : 0;
      if (own_pass != pass) continue;
      plan.levels[static_cast<size_t>(level)].push_back(static_cast<int>(i));
      plan.last_check_level = std::max(plan.last_check_level, level);
    }
  }
  return plan;
}

void Space::State::prepare(const DeviceInfo& device, const Symbols& symbols) {
  for (const Expression& require : form->require)
    checks.push_back({Check::Kind::require, require.text(), {&require}, -1, 0, 0});
  std::vector<bool> later(base.size(), false);
  for (const std::string& name : kernel_names())
    if (const int slot = symbols.find(name); slot >= 0) later[static_cast<size_t>(slot)] = true;
  for (Check& check : launch_checks(form->launch, device, later)) checks.push_back(std::move(check));
  constraints = checks.size();
  for (const DerivedForm& derived : form->derived)
    checks.push_back({Check::Kind::derived,
                      derived.name + " = " + derived.expression.text(),
                      {&derived.expression},
                      derived.slot,
                      0,
                      0});

  std::vector<int> order;
  for (size_t i = 0; i < form->params.size(); ++i) order.push_back(static_cast<int>(i));
  canonical = make_plan(*form, checks, order, base.size());

  // Counting may take any order: params that no check names come last, where their values only multiply.
  std::set<int> named;
  for (const Check& check : checks)
    for (const Expression* expression : check.expressions)
      named.insert(expression->slots().begin(), expression->slots().end());
  std::stable_partition(order.begin(), order.end(),
                        [&](int param) { return named.count(form->params[static_cast<size_t>(param)].slot) != 0; });
  quick = make_plan(*form, checks, order, base.size());
}

Count Space::State::product() const {
  return form->is_list ? Count{form->configs.size()} : canonical.below.empty() ? Count{1} : canonical.below[0];
}

std::optional<std::vector<int>> Space::State::indices(const Config& config) const {
  if (config.size() != form->params.size()) return std::nullopt;
  std::vector<int> result;
  auto given = config.begin();  // both are sorted by name
  for (const ParamForm& param : form->params) {
    const auto& [name, value] = *given++;
    if (name != param.name) return std::nullopt;
    const auto at = std::find(param.values.begin(), param.values.end(), value);
    if (at == param.values.end()) return std::nullopt;
    result.push_back(static_cast<int>(at - param.values.begin()));
  }
  if (form->is_list && std::find(form->configs.begin(), form->configs.end(), result) == form->configs.end())
    return std::nullopt;
  return result;
}

Config Space::State::config(const std::vector<int>& indices) const {
  Config result;
  for (size_t i = 0; i < indices.size(); ++i)
    result.emplace_hint(result.end(), form->params[i].name, form->params[i].values[static_cast<size_t>(indices[i])]);
  return result;
}

Verdict Space::State::run_all(const std::vector<int>& indices, std::vector<Cell>& cells, int& failed) const {
  for (size_t i = 0; i < indices.size(); ++i)
    cells[static_cast<size_t>(form->params[i].slot)] = form->params[i].cells[static_cast<size_t>(indices[i])];
  failed = -1;
  for (const std::vector<int>& level : canonical.levels) {
    for (const int index : level) {
      const Verdict verdict = checks[static_cast<size_t>(index)].run(cells);
      if (verdict.status == EvalStatus::ok && verdict.passed) continue;
      failed = index;
      return verdict;
    }
  }
  return {};
}

Space::Space(std::shared_ptr<const State> state) : state_(std::move(state)) {}

Count Space::product() const {
  return state_->product();
}

void Space::visit(const std::function<bool(const Config&)>& visit) const {
  if (!state_->form->is_list) {
    Walk walk(*state_, state_->canonical);
    walk.on_valid = [&](const std::vector<int>& indices) { return visit(state_->config(indices)); };
    return walk.run();
  }
  for (const std::vector<int>& indices : state_->form->configs) {
    std::vector<Cell> cells = state_->base;
    int failed = -1;
    state_->run_all(indices, cells, failed);
    if (failed < 0 && !visit(state_->config(indices))) return;
  }
}

std::vector<Config> Space::list(size_t limit) const {
  std::vector<Config> configs;
  if (limit == 0) return configs;
  visit([&](const Config& config) {
    configs.push_back(config);
    return configs.size() < limit;
  });
  return configs;
}

SpaceCount Space::count(uint64_t limit) const {
  if (state_->form->is_list) return count_list(*state_, limit);
  Walk walk(*state_, state_->quick);
  walk.limit = limit;
  walk.counts_below = true;
  walk.run();
  SpaceCount result;
  result.product = product();
  result.examined = walk.examined;
  result.valid = walk.valid;
  result.complete = walk.finished();
  result.rejections = walk.rejections();
  return result;
}

std::optional<Config> Space::sample(uint64_t seed, uint64_t draw) const {
  const Model::Form& form = *state_->form;
  std::vector<int> indices(form.params.size());
  std::vector<Cell> cells = state_->base;
  int failed = -1;
  for (uint64_t attempt = 0; attempt < kDraws; ++attempt) {
    if (form.is_list) {
      indices =
          form.configs[static_cast<size_t>(random_below(random_number(seed, draw, attempt, 0), form.configs.size()))];
    } else {
      for (size_t i = 0; i < indices.size(); ++i)
        indices[i] = random_below(random_number(seed, draw, attempt, i), form.params[i].values.size());
    }
    state_->run_all(indices, cells, failed);
    if (failed < 0) return state_->config(indices);
  }
  std::optional<Config> found;
  if (form.is_list) {
    const size_t count = form.configs.size();
    const size_t start = static_cast<size_t>(random_below(random_number(seed, draw, kDraws, 0), count));
    for (size_t i = 0; i < count; ++i) {
      indices = form.configs[(start + i) % count];
      state_->run_all(indices, cells, failed);
      if (failed < 0) return state_->config(indices);
    }
    return found;
  }
  // Every walk has its own order of values; it goes back where a prefix is rejected.
  uint64_t serial = 0;
  Walk walk(*state_, state_->canonical);
  walk.limit = kFallbackNodes;
  walk.shuffle = [&](std::vector<int>& tries, size_t level) {
    for (size_t i = tries.size(); i > 1; --i)
      std::swap(tries[i - 1],
                tries[static_cast<size_t>(random_below(random_number(seed, draw, kDraws + level, serial++), i))]);
  };
  walk.on_valid = [&](const std::vector<int>& valid) {
    found = state_->config(valid);
    return false;
  };
  walk.run();
  return found;
}

bool Space::contains(const Config& config) const {
  return state_->indices(config).has_value();
}

}  // namespace jitune::space
