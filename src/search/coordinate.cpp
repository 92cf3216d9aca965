// Coordinate descent: all values of one param after another, from a random start; again from another when no param
// helps.
#include <algorithm>

#include "search/methods.hpp"

namespace jitune::search {
namespace {

class Coordinate final : public Method {
 public:
  explicit Coordinate(const Context& context)
      : context_(context), random_(context.seed ^ 0x4344U), fallback_(context) {}

  std::optional<space::Point> propose() override {
    for (;;) {
      if (!at_) return fallback_.propose();
      for (; place_ < order_.size(); ++place_) {
        if (auto next = unseen_along(order_[place_])) return next;
      }
      if (!moved_) {
        at_.reset();
        continue;
      }
      begin_round();
    }
  }

  void told(size_t index) override {
    const Archive& archive = *context_.archive;
    if (archive[index].state != Sample::State::timed) return;
    if (at_ && archive[index].log_time >= archive[*at_].log_time) return;
    const bool is_start = !at_.has_value();
    at_ = index;
    if (is_start) begin_round();
    moved_ = true;
  }

 private:
  void begin_round() {
    order_.clear();
    for (size_t i = 0; i < context_.valid->params(); ++i)
      if (context_.valid->width(i) > 1) order_.push_back(i);
    for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random_.below(i)]);
    place_ = 0;
    moved_ = false;
  }

  std::optional<space::Point> unseen_along(size_t param) const {
    space::Point point = (*context_.archive)[*at_].point;
    const uint16_t own = point[param];
    for (int index = 0; index < context_.valid->width(param); ++index) {
      point[param] = static_cast<uint16_t>(index);
      if (point[param] != own && !context_.archive->seen(point) && context_.valid->contains(point)) return point;
    }
    return std::nullopt;
  }

  Context context_;
  Random random_;
  RandomMethod fallback_;
  std::optional<size_t> at_;
  std::vector<size_t> order_;
  size_t place_ = 0;
  bool moved_ = false;
};

}  // namespace

std::unique_ptr<Method> make_coordinate(const Context& context) {
  return std::make_unique<Coordinate>(context);
}

}  // namespace jitune::search
