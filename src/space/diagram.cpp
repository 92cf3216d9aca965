#include "space/diagram.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "space/space_state.hpp"

namespace jitune::space {
namespace {

constexpr uint32_t kNothing = 0, kEnd = 1;

/// Params in an order that keeps few values alive: each next one is that after which the values that constraints still
/// to come read have the fewest combinations.
std::vector<int> choose_order(const Space::State& state) {
  const auto& params = state.form->params;
  std::vector<std::vector<int>> groups;  // params that one check reads together, through derived values too
  std::vector<std::set<int>> reads(state.base.size());
  for (size_t i = 0; i < params.size(); ++i) reads[static_cast<size_t>(params[i].slot)] = {static_cast<int>(i)};
  const auto params_of = [&](const Check& check) {
    std::set<int> all;
    for (const Expression* expression : check.expressions)
      for (const int slot : expression->slots())
        all.insert(reads[static_cast<size_t>(slot)].begin(), reads[static_cast<size_t>(slot)].end());
    return all;
  };
  for (const Check& check : state.checks)
    if (check.kind == Check::Kind::derived) reads[static_cast<size_t>(check.slot)] = params_of(check);
  for (const Check& check : state.checks) {
    const std::set<int> all = params_of(check);
    if (check.kind != Check::Kind::derived && all.size() > 1) groups.emplace_back(all.begin(), all.end());
  }
  std::vector<int> order;
  std::vector<bool> placed(params.size(), false);
  const auto cost_after = [&](size_t next) {
    placed[next] = true;
    std::set<int> alive;
    for (const std::vector<int>& group : groups) {
      const auto is_placed = [&](int param) { return placed[static_cast<size_t>(param)]; };
      if (std::all_of(group.begin(), group.end(), is_placed)) continue;
      for (const int param : group)
        if (is_placed(param)) alive.insert(param);
    }
    placed[next] = false;
    double cost = 1;
    for (const int param : alive) cost *= static_cast<double>(params[static_cast<size_t>(param)].values.size());
    return cost;
  };
  while (order.size() < params.size()) {
    size_t best = params.size();
    std::pair<double, double> best_cost;
    for (size_t i = 0; i < params.size(); ++i) {
      if (placed[i]) continue;
      double degree = 0;
      for (const std::vector<int>& group : groups)
        degree += static_cast<double>(std::count(group.begin(), group.end(), static_cast<int>(i)));
      const std::pair<double, double> cost{cost_after(i), -degree};
      if (best < params.size() && cost >= best_cost) continue;
      best = i;
      best_cost = cost;
    }
    placed[best] = true;
    order.push_back(static_cast<int>(best));
  }
  return order;
}

}  // namespace

class Diagram::Builder {
 public:
  Builder(const Space::State& state, const Limits& limits, Diagram& diagram)
      : state_(state), limits_(limits), diagram_(diagram), cells_(state.base) {
    diagram.first_ = {0, 0};
    diagram.counts_ = {0, 1};
  }

  bool build_grid() {
    diagram_.order_ = choose_order(state_);
    set_widths();
    plan_ = make_plan(*state_.form, state_.checks, diagram_.order_, state_.base.size());
    find_alive();
    memo_.resize(diagram_.order_.size() + 1);
    diagram_.root_ = node(0);
    return !stopped_;
  }

  bool build_list() {
    for (size_t i = 0; i < state_.form->params.size(); ++i) diagram_.order_.push_back(static_cast<int>(i));
    set_widths();
    std::vector<std::vector<int>> valid;
    for (const std::vector<int>& indices : state_.form->configs) {
      int failed = -1;
      cells_ = state_.base;
      state_.run_all(indices, cells_, failed);
      if (failed < 0) valid.push_back(indices);
    }
    std::sort(valid.begin(), valid.end());
    valid.erase(std::unique(valid.begin(), valid.end()), valid.end());
    diagram_.root_ = list_node(valid, 0, valid.size(), 0);
    return !stopped_;
  }

 private:
  void set_widths() {
    for (const int param : diagram_.order_)
      diagram_.widths_.push_back(static_cast<uint32_t>(state_.form->params[static_cast<size_t>(param)].values.size()));
  }

  /// For each level the slots that have a value there and are read by checks of later levels.
  void find_alive() {
    std::vector<int> set_at(state_.base.size(), -1);
    for (size_t i = 0; i < plan_.order.size(); ++i)
      set_at[static_cast<size_t>(state_.form->params[static_cast<size_t>(plan_.order[i])].slot)] =
          static_cast<int>(i) + 1;
    for (size_t level = 0; level < plan_.levels.size(); ++level)
      for (const int check : plan_.levels[level])
        if (const int slot = state_.checks[static_cast<size_t>(check)].slot; slot >= 0)
          set_at[static_cast<size_t>(slot)] = static_cast<int>(level);
    alive_.resize(plan_.levels.size());
    std::set<int> read;
    for (size_t level = plan_.levels.size(); level-- > 0;) {
      for (const int slot : read)
        if (const int at = set_at[static_cast<size_t>(slot)]; at >= 0 && at <= static_cast<int>(level))
          alive_[level].push_back(slot);
      for (const int check : plan_.levels[level])
        for (const Expression* expression : state_.checks[static_cast<size_t>(check)].expressions)
          read.insert(expression->slots().begin(), expression->slots().end());
    }
  }

  bool passes(size_t level) {
    for (const int check : plan_.levels[level]) {
      const Verdict verdict = state_.checks[static_cast<size_t>(check)].run(cells_);
      if (verdict.status != EvalStatus::ok || !verdict.passed) return false;
    }
    return true;
  }

  std::string key(size_t level) const {
    std::string text;
    for (const int slot : alive_[level]) {
      const int64_t value = cells_[static_cast<size_t>(slot)].value;
      text.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    return text;
  }

  uint32_t node(size_t level) {
    if (stopped_ || !passes(level)) return kNothing;
    if (level == plan_.order.size()) return kEnd;
    std::string own_key = key(level);
    if (const auto known = memo_[level].find(own_key); known != memo_[level].end()) return known->second;
    const ParamForm& form = state_.form->params[static_cast<size_t>(plan_.order[level])];
    std::vector<uint32_t> edges(form.cells.size(), kNothing);
    for (size_t i = 0; i < edges.size(); ++i) {
      if (++steps_ > limits_.steps) stopped_ = true;
      if (stopped_) return kNothing;
      cells_[static_cast<size_t>(form.slot)] = form.cells[i];
      edges[i] = node(level + 1);
    }
    const uint32_t made = share(level, std::move(edges));
    memo_[level].emplace(std::move(own_key), made);
    return made;
  }

  uint32_t list_node(const std::vector<std::vector<int>>& points, size_t begin, size_t end, size_t level) {
    if (stopped_ || begin == end) return kNothing;
    if (level == diagram_.order_.size()) return kEnd;
    std::vector<uint32_t> edges(diagram_.widths_[level], kNothing);
    for (size_t from = begin; from < end;) {
      size_t to = from + 1;
      while (to < end && points[to][level] == points[from][level]) ++to;
      edges[static_cast<size_t>(points[from][level])] = list_node(points, from, to, level + 1);
      from = to;
    }
    return share(level, std::move(edges));
  }

  /// The node with these edges; there is one of each.
  uint32_t share(size_t level, std::vector<uint32_t> edges) {
    Count count = 0;
    for (const uint32_t edge : edges) count += diagram_.counts_[edge];
    if (count == 0) return kNothing;
    std::string bytes(reinterpret_cast<const char*>(edges.data()), edges.size() * sizeof(uint32_t));
    bytes.push_back(static_cast<char>(level));
    const auto next = static_cast<uint32_t>(diagram_.first_.size());
    const auto [at, is_new] = shared_.emplace(std::move(bytes), next);
    if (!is_new) return at->second;
    diagram_.first_.push_back(static_cast<uint32_t>(diagram_.edges_.size()));
    diagram_.edges_.insert(diagram_.edges_.end(), edges.begin(), edges.end());
    diagram_.counts_.push_back(count);
    if (diagram_.memory_bytes() > limits_.memory_bytes) stopped_ = true;
    return next;
  }

  const Space::State& state_;
  const Limits limits_;
  Diagram& diagram_;
  std::vector<Cell> cells_;
  Plan plan_;
  std::vector<std::vector<int>> alive_;
  std::vector<std::unordered_map<std::string, uint32_t>> memo_;  // by level and values alive
  std::unordered_map<std::string, uint32_t> shared_;             // by level and edges
  uint64_t steps_ = 0;
  bool stopped_ = false;
};

std::optional<Diagram> Diagram::build(const Space::State& state, const Limits& limits) {
  std::optional<Diagram> diagram(std::in_place);
  Builder builder(state, limits, *diagram);
  if (!(state.form->is_list ? builder.build_list() : builder.build_grid())) diagram.reset();
  return diagram;
}

Point Diagram::at(Count rank) const {
  Point point(order_.size());
  uint32_t node = root_;
  for (size_t level = 0; level < order_.size(); ++level) {
    size_t index = 0;
    for (;; ++index) {
      const Count below = counts_[child(node, index)];
      if (rank < below) break;
      rank -= below;
    }
    point[static_cast<size_t>(order_[level])] = static_cast<uint16_t>(index);
    node = child(node, index);
  }
  return point;
}

bool Diagram::contains(const Point& point) const {
  if (point.size() != order_.size()) return false;
  uint32_t node = root_;
  for (size_t level = 0; level < order_.size() && node != kNothing; ++level) {
    const uint32_t index = point[static_cast<size_t>(order_[level])];
    node = index < widths_[level] ? child(node, index) : kNothing;
  }
  return node == kEnd;
}

Count Diagram::rank(const Point& point) const {
  Count rank = 0;
  uint32_t node = root_;
  for (size_t level = 0; level < order_.size(); ++level) {
    const size_t index = point[static_cast<size_t>(order_[level])];
    for (size_t before = 0; before < index; ++before) rank += counts_[child(node, before)];
    node = child(node, index);
  }
  return rank;
}

bool Diagram::walk(uint32_t node, size_t level, Point& point, const std::function<bool(const Point&)>& visit) const {
  if (level == order_.size()) return visit(point);
  for (uint32_t index = 0; index < widths_[level]; ++index) {
    const uint32_t next = child(node, index);
    if (next == kNothing) continue;
    point[static_cast<size_t>(order_[level])] = static_cast<uint16_t>(index);
    if (!walk(next, level + 1, point, visit)) return false;
  }
  return true;
}

void Diagram::visit(const std::function<bool(const Point&)>& visit) const {
  Point point(order_.size(), 0);
  if (root_ != kNothing) walk(root_, 0, point, visit);
}

uint64_t Diagram::memory_bytes() const {
  return edges_.size() * sizeof(uint32_t) + first_.size() * (sizeof(uint32_t) + sizeof(Count));
}

}  // namespace jitune::space
