// Simulated annealing with restarts, on unique evaluations.
#include <algorithm>
#include <cmath>

#include "search/methods.hpp"

namespace jitune::search {
namespace {

constexpr double kResample = .2;           // probability that a param is drawn anew
constexpr double kHot = .1, kCold = 1e-4;  // relative: a step of 10 % is taken with 1/e at the start
constexpr int kMaxStale = 100;             // proposals that give nothing new before a restart
constexpr uint64_t kUnknownBudget = 400;

class Annealing final : public Method {
 public:
  explicit Annealing(const Context& context) : context_(context), random_(context.seed ^ 0x5341U), fallback_(context) {}

  std::optional<space::Point> propose() override {
    if (!at_) return fallback_.propose();
    space::Point from = context_.archive->operator[](*at_).point;
    for (int stale = 0; stale < kMaxStale; ++stale) {
      const space::Point to = neighbour(from);
      const auto known = context_.archive->find(to);
      if (!known) return to;
      if (accept(*known)) from = to;
    }
    at_.reset();
    return fallback_.propose();
  }

  void told(size_t index) override {
    if (context_.archive->operator[](index).state != Sample::State::timed) return;
    if (!at_ || accept(index)) at_ = index;
  }

 private:
  double temperature() const {
    const auto budget = static_cast<double>(context_.trials > 0 ? context_.trials : kUnknownBudget);
    const double progress = std::min(1.0, static_cast<double>(context_.archive->told()) / budget);
    return kHot * std::pow(kCold / kHot, progress);
  }

  bool accept(size_t index) {
    const Sample& to = context_.archive->operator[](index);
    if (to.state != Sample::State::timed) return false;
    const double rise = to.log_time - context_.archive->operator[](*at_).log_time;
    if (rise > 0 && !random_.chance(std::exp(-rise / temperature()))) return false;
    at_ = index;
    return true;
  }

  space::Point neighbour(space::Point point) {
    for (size_t i = 0; i < point.size(); ++i)
      if (context_.valid->width(i) > 1 && random_.chance(kResample))
        if (auto other = context_.valid->vary(point, i, random_)) point = std::move(*other);
    if (auto box = context_.valid->box(point, random_)) point = std::move(*box);
    return point;
  }

  Context context_;
  Random random_;
  RandomMethod fallback_;
  std::optional<size_t> at_;
};

}  // namespace

std::unique_ptr<Method> make_annealing(const Context& context) {
  return std::make_unique<Annealing>(context);
}

}  // namespace jitune::search
