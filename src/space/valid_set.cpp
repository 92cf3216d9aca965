#include "space/valid_set.hpp"

#include <algorithm>
#include <utility>

#include "space/space_state.hpp"

namespace jitune::space {

ValidSet::ValidSet(Space space, const Diagram::Limits& limits)
    : space_(std::move(space)), diagram_(Diagram::build(*state_of(space_), limits)) {
  for (const ParamForm& param : state_of(space_)->form->params) {
    if (param.values.size() > 1) varied_.push_back(widths_.size());
    widths_.push_back(static_cast<int>(param.values.size()));
  }
}

const std::string& ValidSet::name(size_t param) const {
  return state_of(space_)->form->params[param].name;
}

const Value& ValidSet::value(size_t param, size_t index) const {
  return state_of(space_)->form->params[param].values[index];
}

bool ValidSet::contains(const Point& point) const {
  if (diagram_) return diagram_->contains(point);
  if (point.size() != widths_.size()) return false;
  for (size_t i = 0; i < point.size(); ++i)
    if (point[i] >= widths_[i]) return false;
  const Space::State& state = *state_of(space_);
  const std::vector<int> indices(point.begin(), point.end());
  if (state.form->is_list &&
      std::find(state.form->configs.begin(), state.form->configs.end(), indices) == state.form->configs.end())
    return false;
  std::vector<Cell> cells = state.base;
  int failed = -1;
  state.run_all(indices, cells, failed);
  return failed < 0;
}

Config ValidSet::config(const Point& point) const {
  return state_of(space_)->config({point.begin(), point.end()});
}

std::optional<Point> ValidSet::point(const Config& config) const {
  const auto indices = state_of(space_)->indices(config);
  if (!indices) return std::nullopt;
  Point point;
  for (const int index : *indices) point.push_back(static_cast<uint16_t>(index));
  if (!contains(point)) return std::nullopt;
  return point;
}

std::optional<Point> ValidSet::sample(Random& random) const {
  if (diagram_) {
    const Count size = diagram_->size();
    if (size == 0) return std::nullopt;
    Count rank = random.bits();
    if (size > UINT64_MAX) rank = (rank << 64) | random.bits();
    return diagram_->at(size > UINT64_MAX ? rank % size : (rank * size) >> 64);
  }
  const auto config = space_.sample(random.bits(), 0);
  return config ? point(*config) : std::nullopt;
}

void ValidSet::hamming(const Point& point, std::vector<Point>& out) const {
  Point other = point;
  for (const size_t param : varied_) {
    for (int index = 0; index < widths_[param]; ++index) {
      other[param] = static_cast<uint16_t>(index);
      if (other[param] != point[param] && contains(other)) out.push_back(other);
    }
    other[param] = point[param];
  }
}

std::optional<Point> ValidSet::vary(const Point& point, size_t param, Random& random) const {
  std::vector<Point> valid;
  Point other = point;
  for (int index = 0; index < widths_[param]; ++index) {
    other[param] = static_cast<uint16_t>(index);
    if (other[param] != point[param] && contains(other)) valid.push_back(other);
  }
  if (valid.empty()) return std::nullopt;
  return valid[random.below(valid.size())];
}

std::optional<Point> ValidSet::box(const Point& point, Random& random) const {
  constexpr int kTries = 8;
  if (varied_.empty()) return std::nullopt;
  // About two params move: with more, most points of a constrained space's box are not valid.
  const double move = std::min(1.0, 2.0 / static_cast<double>(varied_.size()));
  for (int attempt = 0; attempt < kTries; ++attempt) {
    Point other = point;
    bool moved = false;
    for (const size_t param : varied_) {
      if (!random.chance(move)) continue;
      const int index = point[param] + (random.chance(.5) ? 1 : -1);
      if (index < 0 || index >= widths_[param]) continue;
      other[param] = static_cast<uint16_t>(index);
      moved = true;
    }
    if (moved && contains(other)) return other;
  }
  return std::nullopt;
}

std::optional<Point> ValidSet::repair(const Point& point, Random& random) const {
  if (contains(point)) return point;
  std::vector<Point> near;
  Point other = point;
  for (const size_t param : varied_) {
    for (const int step : {-1, 1}) {
      const int index = point[param] + step;
      if (index < 0 || index >= widths_[param]) continue;
      other[param] = static_cast<uint16_t>(index);
      if (contains(other)) near.push_back(other);
    }
    other[param] = point[param];
  }
  if (near.empty()) hamming(point, near);
  if (!near.empty()) return near[random.below(near.size())];
  // Two steps away, a few tries; then anywhere.
  constexpr int kTries = 50;
  for (int attempt = 0; attempt < kTries && !varied_.empty(); ++attempt) {
    other = point;
    for (int i = 0; i < 3; ++i) {
      const size_t param = varied_[random.below(varied_.size())];
      other[param] = static_cast<uint16_t>(random.below(static_cast<size_t>(widths_[param])));
    }
    if (contains(other)) return other;
  }
  return sample(random);
}

Space plain_space(const std::vector<PlainParam>& params, const std::vector<std::string>& require,
                  const std::vector<Point>& configs) {
  Symbols symbols;
  auto form = std::make_shared<Model::Form>();
  std::vector<size_t> order;  // by name
  for (size_t i = 0; i < params.size(); ++i) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return params[a].name < params[b].name; });
  for (const size_t i : order) {
    ParamForm param{params[i].name, symbols.slot(params[i].name), params[i].values, {}};
    for (const Value& value : param.values) param.cells.push_back(to_cell(value, symbols));
    form->params.push_back(std::move(param));
  }
  form->launch.shared_bytes = Expression::parse("0", symbols);
  for (const std::string& text : require) form->require.push_back(Expression::parse(text, symbols));
  form->is_list = !configs.empty();
  for (const Point& config : configs) {
    std::vector<int> indices;
    for (const size_t i : order) indices.push_back(config[i]);
    form->configs.push_back(std::move(indices));
  }
  auto state = std::make_shared<Space::State>();
  state->form = form;
  state->base.resize(static_cast<size_t>(symbols.size()));
  state->prepare(*nominal_device("sm_90"), symbols);
  return Space(state);
}

}  // namespace jitune::space
