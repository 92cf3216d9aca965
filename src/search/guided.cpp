// Hedged guided local search. Most proposals are those of highest expected improvement under the forests, among random
// points and the neighbours of the best. A few go from the best to the neighbour that looks best, whatever it may
// teach. Some are plain first-improvement descents in random order, which ask the model nothing: where it misreads the
// space they hold the search up no longer than it takes to notice that nothing improves.
#include <algorithm>
#include <deque>

#include "search/methods.hpp"

namespace jitune::search {
namespace {

constexpr size_t kSpread = 12;          // points far from each other at the start
constexpr size_t kSpreadWithHints = 3;  // ... where something is known beforehand: enough to see whether it agrees
constexpr int kSpreadDraws = 24;        // each the farthest of so many random ones
constexpr double kPlain = .1;           // share of proposals that are the descents' while the model does well
constexpr double kPlainStalled = .5;    // ... and while it does not:
constexpr size_t kStalled = 20;         // trials without improvement
constexpr double kGreedy = .3;          // of the others, those from the best to what looks best beside it
constexpr int kBoxMoves = 12;           // candidates there beside those that differ in one param
constexpr double kHope = .5;            // of the deviation that the model states, in favour of the unknown
constexpr double kFailure = 1.5;        // of the log of the time: what certain failure counts
constexpr double kKick = .5;            // of the descents' starts: the best, kicked; the rest is random
constexpr size_t kDraws = 1000;         // random points considered for expected improvement
constexpr size_t kNearBest = 5;         // and the neighbours of so many best ones
constexpr size_t kRanked = 24;          // of these: more are not proposed before the model is fitted again

class Guided final : public Method {
 public:
  explicit Guided(const Context& context) : context_(context), random_(context.seed ^ 0x484C53U), fallback_(context) {}

  std::optional<space::Point> propose() override {
    if (spread_ < (context_.model->has_hints() ? kSpreadWithHints : kSpread)) return spread();
    const bool is_ready = context_.model->refresh();
    const bool is_stalled = archive().told() >= improved_at_ + kStalled;
    if (!is_ready || random_.chance(is_stalled ? kPlainStalled : kPlain)) {
      constexpr int kTurns = 50;  // a start that was seen already may be at the end of its descent at once
      for (int turn = 0; turn < kTurns; ++turn)
        if (auto next = descend()) return next;
    }
    if (is_ready && random_.chance(kGreedy))
      if (auto next = beside_best()) return next;
    if (is_ready)
      if (auto next = most_promising()) return next;
    return fallback_.propose();
  }

  void told(size_t index) override {
    const Sample& sample = archive()[index];
    const bool is_timed = sample.state == Sample::State::timed;
    if (archive().best() == index) improved_at_ = archive().told();
    if (is_timed) {
      const auto faster = [&](size_t a, size_t b) { return archive()[a].log_time < archive()[b].log_time; };
      best_.insert(std::upper_bound(best_.begin(), best_.end(), index, faster), index);
      if (best_.size() > kNearBest) best_.pop_back();
    }
    if (!at_) return;
    const Sample& here = archive()[*at_];
    if (*at_ == index) {
      if (!is_timed) at_.reset();
    } else if (is_timed && here.state == Sample::State::timed && sample.log_time < here.log_time &&
               std::find(steps_.begin(), steps_.end(), index) != steps_.end()) {
      at_ = index;
    }
  }

 private:
  Archive& archive() const { return *context_.archive; }
  const space::ValidSet& valid() const { return *context_.valid; }

  std::optional<space::Point> spread() {
    ++spread_;
    std::vector<space::Point> from;
    for (size_t i = 0; i < archive().size(); ++i) from.push_back(archive()[i].point);
    if (auto point = far_point(context_, from, kSpreadDraws, random_)) return point;
    return fallback_.propose();
  }

  /// The next step of the plain descent, or the start of another.
  std::optional<space::Point> descend() {
    if (at_) {
      near_.clear();
      valid().hamming(space::Point(archive()[*at_].point), near_);
      std::erase_if(near_, [&](const space::Point& point) { return archive().seen(point); });
      if (!near_.empty()) {
        steps_.push_back(archive().size());  // the index that it will have
        return any_near(space::Point(archive()[*at_].point));
      }
      at_.reset();
    }
    steps_.clear();
    const auto start = archive().best() && random_.chance(kKick) ? kicked() : valid().sample(random_);
    if (!start) return std::nullopt;
    const auto known = archive().find(*start);
    if (!known) {
      at_ = archive().size();
      return start;
    }
    if (archive()[*known].state == Sample::State::timed) at_ = *known;
    return std::nullopt;
  }

  std::optional<space::Point> kicked() {
    space::Point point = archive()[*archive().best()].point;
    for (size_t moves = 2 + random_.below(2); moves > 0; --moves) {
      near_.clear();
      valid().hamming(point, near_);
      if (near_.empty()) break;
      point = any_near(point);
    }
    return point;
  }

  /// Of near_, which are neighbours of `point`: one of those that differ in a param that is drawn first. Else a param
  /// with many values would take nearly all the steps, and it is often the switches that matter.
  space::Point any_near(const space::Point& point) {
    const auto differing = [&](const space::Point& other) {
      return static_cast<size_t>(std::mismatch(point.begin(), point.end(), other.begin()).first - point.begin());
    };
    std::vector<std::vector<size_t>> by_param(point.size());
    for (size_t i = 0; i < near_.size(); ++i) by_param[differing(near_[i])].push_back(i);
    std::erase_if(by_param, [](const std::vector<size_t>& moves) { return moves.empty(); });
    const std::vector<size_t>& moves = by_param[random_.below(by_param.size())];
    return near_[moves[random_.below(moves.size())]];
  }

  /// The next step of a descent from the best that the model leads.
  std::optional<space::Point> beside_best() {
    if (!archive().best()) return std::nullopt;
    const space::Point best = archive()[*archive().best()].point;
    near_.clear();
    valid().hamming(best, near_);
    for (int i = 0; i < kBoxMoves; ++i)
      if (auto point = valid().box(best, random_)) near_.push_back(std::move(*point));
    std::erase_if(near_, [&](const space::Point& point) { return archive().seen(point); });
    if (near_.empty()) return std::nullopt;
    context_.model->predict(near_, expected_);
    const auto score = [](const Expectation& one) { return one.mean - kHope * one.deviation + kFailure * one.failure; };
    const auto at = std::min_element(expected_.begin(), expected_.end(),
                                     [&](const auto& a, const auto& b) { return score(a) < score(b); });
    return near_[static_cast<size_t>(at - expected_.begin())];
  }

  /// From the list of candidates, which is worked down until the model is fitted again.
  std::optional<space::Point> most_promising() {
    if (context_.model->version() != ranked_for_) rank_candidates();
    while (!ranked_.empty()) {
      space::Point point = std::move(ranked_.front());
      ranked_.pop_front();
      if (!archive().seen(point)) return point;
    }
    return std::nullopt;
  }

  void rank_candidates() {
    ranked_for_ = context_.model->version();
    std::vector<space::Point> points;
    for (const size_t index : best_) valid().hamming(archive()[index].point, points);
    for (size_t i = 0; i < kDraws; ++i)
      if (auto point = valid().sample(random_)) points.push_back(std::move(*point));
    std::erase_if(points, [&](const space::Point& point) { return archive().seen(point); });
    std::sort(points.begin(), points.end());
    points.erase(std::unique(points.begin(), points.end()), points.end());
    const auto order = context_.model->order(std::move(points), kRanked);
    ranked_.assign(order.begin(), order.end());
  }

  Context context_;
  Random random_;
  RandomMethod fallback_;
  size_t spread_ = 0;
  size_t improved_at_ = 0;           // trials told when the best last changed
  std::optional<size_t> at_;         // where the plain descent is
  std::vector<size_t> steps_;        // what it proposed
  uint64_t ranked_for_ = 0;          // version of the model
  std::vector<size_t> best_;         // the fastest, fastest first
  std::deque<space::Point> ranked_;  // the most promising first
  std::vector<space::Point> near_;
  std::vector<Expectation> expected_;
};

}  // namespace

std::unique_ptr<Method> make_guided(const Context& context) {
  return std::make_unique<Guided>(context);
}

}  // namespace jitune::search
