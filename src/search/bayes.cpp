// Bayesian search on forests: the point of highest expected improvement, times the probability that it works.
#include <algorithm>

#include "search/methods.hpp"

namespace jitune::search {
namespace {

constexpr size_t kSpread = 20;
constexpr int kSpreadDraws = 24;
constexpr size_t kDraws = 600;   // random candidates
constexpr size_t kNearBest = 5;  // neighbours of so many best points are candidates too

class Bayes final : public Method {
 public:
  explicit Bayes(const Context& context) : context_(context), random_(context.seed ^ 0x424FU), fallback_(context) {}

  std::optional<space::Point> propose() override {
    Archive& archive = *context_.archive;
    if (archive.size() < kSpread) {
      std::vector<space::Point> from;
      for (size_t i = 0; i < archive.size(); ++i) from.push_back(archive[i].point);
      if (auto point = far_point(context_, from, kSpreadDraws, random_)) return point;
    }
    if (!context_.model->refresh()) return fallback_.propose();
    if (context_.model->version() != version_) rank_candidates();
    while (!ranked_.empty()) {
      space::Point point = std::move(ranked_.back().second);
      ranked_.pop_back();
      if (!archive.seen(point)) return point;
    }
    return fallback_.propose();
  }

  void told(size_t index) override {
    const Archive& archive = *context_.archive;
    if (archive[index].state != Sample::State::timed) return;
    const auto faster = [&](size_t a, size_t b) { return archive[a].log_time < archive[b].log_time; };
    best_.insert(std::upper_bound(best_.begin(), best_.end(), index, faster), index);
    if (best_.size() > kNearBest) best_.pop_back();
  }

 private:
  /// Until the next fit the list is worked down: a batch takes the best ones of it.
  void rank_candidates() {
    version_ = context_.model->version();
    std::vector<space::Point> points;
    for (const size_t index : best_) context_.valid->hamming((*context_.archive)[index].point, points);
    for (size_t i = 0; i < kDraws; ++i)
      if (auto point = context_.valid->sample(random_)) points.push_back(std::move(*point));
    std::erase_if(points, [&](const space::Point& point) { return context_.archive->seen(point); });
    std::vector<Expectation> expected;
    context_.model->predict(points, expected);
    ranked_.clear();
    for (size_t i = 0; i < points.size(); ++i)
      ranked_.emplace_back(context_.model->expected_improvement(expected[i]), std::move(points[i]));
    std::stable_sort(ranked_.begin(), ranked_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  }

  Context context_;
  Random random_;
  RandomMethod fallback_;
  uint64_t version_ = 0;
  std::vector<size_t> best_;
  std::vector<std::pair<double, space::Point>> ranked_;  // the most promising last
};

}  // namespace

std::unique_ptr<Method> make_bayes(const Context& context) {
  return std::make_unique<Bayes>(context);
}

}  // namespace jitune::search
