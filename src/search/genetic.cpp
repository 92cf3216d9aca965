// A genetic search on the archive: parents are drawn by rank from the best that are known, whoever proposed them.
#include <algorithm>
#include <cmath>

#include "search/methods.hpp"

namespace jitune::search {
namespace {

constexpr size_t kPopulation = 20;
constexpr double kMutation = .2;
constexpr double kRankShape = 2.5;  // Beta(1, 2.5): of the population's ranks
constexpr int kTries = 60;

class Genetic final : public Method {
 public:
  explicit Genetic(const Context& context) : context_(context), random_(context.seed ^ 0x4741U), fallback_(context) {}

  std::optional<space::Point> propose() override {
    if (population_.size() < kPopulation) return fallback_.propose();
    for (int attempt = 0; attempt < kTries; ++attempt) {
      auto child = context_.valid->repair(mutated(crossed(), attempt), random_);
      if (child && !context_.archive->seen(*child)) return child;
    }
    return fallback_.propose();
  }

  void told(size_t index) override {
    const Archive& archive = *context_.archive;
    if (archive[index].state != Sample::State::timed) return;
    const auto faster = [&](size_t a, size_t b) { return archive[a].log_time < archive[b].log_time; };
    population_.insert(std::upper_bound(population_.begin(), population_.end(), index, faster), index);
    if (population_.size() > kPopulation) population_.pop_back();
  }

 private:
  const space::Point& parent() {
    const double share = 1 - std::pow(1 - random_.uniform(), 1 / kRankShape);
    const auto rank = static_cast<size_t>(share * static_cast<double>(population_.size()));
    return (*context_.archive)[population_[std::min(rank, population_.size() - 1)]].point;
  }

  space::Point crossed() {
    space::Point child = parent();
    const space::Point& other = parent();
    const size_t from = child.empty() ? 0 : random_.below(child.size());
    for (size_t i = from; i < child.size(); ++i) child[i] = other[i];
    return child;
  }

  space::Point mutated(space::Point point, int attempt) {
    // Parents that are alike give the same child again: the longer that goes on, the more is changed.
    const double rate = kMutation * (1 + attempt / 20.0);
    for (size_t i = 0; i < point.size(); ++i)
      if (context_.valid->width(i) > 1 && random_.chance(rate))
        point[i] = static_cast<uint16_t>(random_.below(static_cast<size_t>(context_.valid->width(i))));
    return point;
  }

  Context context_;
  Random random_;
  RandomMethod fallback_;
  std::vector<size_t> population_;  // the fastest so far, fastest first
};

}  // namespace

std::unique_ptr<Method> make_genetic(const Context& context) {
  return std::make_unique<Genetic>(context);
}

}  // namespace jitune::search
