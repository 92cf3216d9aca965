#include "search/columns.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace jitune::search {
namespace {

constexpr int kDraws = 400;
constexpr size_t kMostCodes = 255;
constexpr size_t kRemembered = 50'000;
constexpr double kUnknown = -std::numeric_limits<double>::infinity();  // instead of NaN, which has no place in an order

/// Whether `b` rises with `a`, or falls with it, and depends on nothing else: then trees can make all of its cuts in
/// `a`.
bool says_no_more(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<std::pair<double, double>> both;
  for (size_t i = 0; i < a.size(); ++i) both.emplace_back(a[i], b[i]);
  std::sort(both.begin(), both.end());
  both.erase(std::unique(both.begin(), both.end()), both.end());
  const auto does_not_rise = [](const auto& x, const auto& y) { return x.first == y.first || x.second > y.second; };
  const auto does_not_fall = [](const auto& x, const auto& y) { return x.first == y.first || x.second < y.second; };
  return std::adjacent_find(both.begin(), both.end(), does_not_rise) == both.end() ||
         std::adjacent_find(both.begin(), both.end(), does_not_fall) == both.end();
}

/// At most so many borders that part the values.
std::vector<double> borders_of(std::vector<double> values) {
  std::erase(values, kUnknown);
  std::sort(values.begin(), values.end());
  std::vector<double> different = values;
  different.erase(std::unique(different.begin(), different.end()), different.end());
  if (different.size() <= kMostCodes) return different;
  std::vector<double> borders;
  for (size_t i = 0; i < kMostCodes; ++i) borders.push_back(values[i * values.size() / kMostCodes]);
  borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
  return borders;
}

}  // namespace

Columns::Columns(const space::ValidSet& valid, const ConfigNumbers& numbers) : valid_(&valid), numbers_(numbers) {
  if (!numbers.values || numbers.names.empty()) return;
  std::vector<std::vector<double>> said(valid.params());  // series over the drawn points: the params' indices ...
  std::vector<std::vector<double>> series(numbers.names.size());
  Random random(1);
  for (int i = 0; i < kDraws; ++i) {
    const auto point = valid.sample(random);
    if (!point) break;
    for (size_t param = 0; param < said.size(); ++param) said[param].push_back((*point)[param]);
    const std::vector<double> values = numbers.values(valid.config(*point));
    for (size_t number = 0; number < series.size(); ++number)
      series[number].push_back(std::isnan(values[number]) ? kUnknown : values[number]);
  }
  for (size_t number = 0; number < series.size(); ++number) {
    std::vector<double> borders = borders_of(series[number]);
    const auto says_it = [&](const std::vector<double>& other) { return says_no_more(other, series[number]); };
    if (borders.size() < 2 || std::any_of(said.begin(), said.end(), says_it)) continue;
    said.push_back(std::move(series[number]));  // ... and the numbers that are used
    columns_.push_back({numbers.names[number], number, std::move(borders)});
  }
}

std::vector<std::string> Columns::names() const {
  std::vector<std::string> names;
  for (const Column& column : columns_) names.push_back(column.name);
  return names;
}

void Columns::append(const space::Point& point, std::vector<uint8_t>& codes) const {
  if (columns_.empty()) return;
  if (known_.size() >= kRemembered) known_.clear();
  const auto [at, is_new] = known_.try_emplace(point);
  if (is_new) {
    const std::vector<double> values = numbers_.values(valid_->config(point));
    for (const Column& column : columns_) {
      const double value = values[column.number];
      const auto above = std::upper_bound(column.borders.begin(), column.borders.end(), value);
      at->second.push_back(std::isnan(value) ? uint8_t{0} : static_cast<uint8_t>(above - column.borders.begin()));
    }
  }
  codes.insert(codes.end(), at->second.begin(), at->second.end());
}

}  // namespace jitune::search
