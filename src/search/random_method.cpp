#include <algorithm>
#include <cmath>

#include "search/methods.hpp"

namespace jitune::search {

RandomMethod::RandomMethod(const Context& context)
    : valid_(*context.valid),
      archive_(*context.archive),
      random_(context.seed ^ 0x52616E64U),
      order_(valid_.counted() ? valid_.size() : 1, context.seed) {}

std::optional<space::Point> RandomMethod::propose() {
  if (valid_.counted()) {
    while (next_ < valid_.size()) {
      space::Point point = valid_.at(order_(next_++));
      if (!archive_.seen(point)) return point;
    }
    return std::nullopt;
  }
  // A run of repeats this long means that what is left is too little to find by drawing.
  constexpr int kMaxRepeats = 1000;
  for (int repeats = 0; repeats < kMaxRepeats; ++repeats) {
    auto point = valid_.sample(random_);
    if (!point) break;
    if (!archive_.seen(*point)) return point;
  }
  return std::nullopt;
}

namespace {

double distance(const space::ValidSet& valid, const space::Point& a, const space::Point& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    sum += .5 + std::abs(static_cast<double>(a[i]) - b[i]) / (valid.width(i) - 1);
  }
  return sum;
}

}  // namespace

std::optional<space::Point> far_point(const Context& context, const std::vector<space::Point>& from, int draws,
                                      Random& random) {
  std::optional<space::Point> farthest;
  double best = -1;
  for (int i = 0; i < draws; ++i) {
    auto point = context.valid->sample(random);
    if (!point) break;
    if (context.archive->seen(*point)) continue;
    double nearest = 1e300;
    for (const space::Point& other : from) nearest = std::min(nearest, distance(*context.valid, *point, other));
    if (nearest <= best) continue;
    best = nearest;
    farthest = std::move(point);
  }
  return farthest;
}

}  // namespace jitune::search
