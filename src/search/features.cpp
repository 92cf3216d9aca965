#include "search/features.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace jitune::search {
namespace {

constexpr size_t kMostPairs = 32;    // in use at a time
constexpr int kFewestValues = 3;     // of a param that has products: with two it is a switch
constexpr int kMostPower = 10;       // of two: nothing in a GPU is aligned to more than 1024
constexpr double kHighestCode = 63;  // of a product: some five levels for each doubling

}  // namespace

Features::Features(const space::ValidSet& valid, const ConfigNumbers& numbers)
    : valid_(valid), logs_(valid.params()), columns_(valid, numbers) {
  for (size_t param = 0; param < valid.params(); ++param) {
    std::vector<double> logs;
    for (int i = 0; i < valid.width(param); ++i) {
      const Value& value = valid.value(param, static_cast<size_t>(i));
      if (value.is_int() && value.as_int() > 0) logs.push_back(std::log2(static_cast<double>(value.as_int())));
    }
    if (valid.width(param) < kFewestValues || logs.size() != static_cast<size_t>(valid.width(param))) continue;
    logs_[param] = std::move(logs);
    note_divisors(param);
  }
  for (size_t a = 0; a < logs_.size(); ++a) {
    for (size_t b = a + 1; b < logs_.size() && !logs_[a].empty(); ++b) {
      if (logs_[b].empty()) continue;
      const auto [least_a, most_a] = std::minmax_element(logs_[a].begin(), logs_[a].end());
      const auto [least_b, most_b] = std::minmax_element(logs_[b].begin(), logs_[b].end());
      const double lowest = *least_a + *least_b, range = *most_a + *most_b - lowest;
      pairs_.push_back({a, b, lowest, kHighestCode / range});
    }
  }
  used_ = std::min(kMostPairs, pairs_.size());
}

/// Of whole positive numbers. Where a larger value is always divided by a larger power the place says it already.
void Features::note_divisors(size_t param) {
  Divisors found{param, {}};
  bool is_news = false;
  for (int i = 0; i < valid_.width(param); ++i) {
    const auto value = static_cast<uint64_t>(valid_.value(param, static_cast<size_t>(i)).as_int());
    const auto power = static_cast<uint8_t>(std::min(kMostPower, std::countr_zero(value)));
    is_news |= !found.powers.empty() && power <= found.powers.back();
    found.powers.push_back(power);
  }
  if (is_news) divisors_.push_back(std::move(found));
}

void Features::choose(Random& random) {
  if (used_ == pairs_.size()) return;
  for (size_t i = 0; i < used_; ++i) std::swap(pairs_[i], pairs_[i + random.below(pairs_.size() - i)]);
}

void Features::append(const space::Point& point, std::vector<uint8_t>& codes) const {
  for (size_t i = 0; i < point.size(); ++i) {
    const int width = valid_.width(i);
    if (width <= 1) continue;
    codes.push_back(static_cast<uint8_t>(width <= 256 ? point[i] : point[i] * 255 / (width - 1)));
  }
  for (size_t i = 0; i < used_; ++i) {
    const Pair& pair = pairs_[i];
    const double sum = logs_[pair.a][point[pair.a]] + logs_[pair.b][point[pair.b]];
    codes.push_back(static_cast<uint8_t>(std::lround((sum - pair.lowest) * pair.scale)));
  }
  for (const Divisors& one : divisors_) codes.push_back(one.powers[point[one.param]]);
  columns_.append(point, codes);
}

}  // namespace jitune::search
