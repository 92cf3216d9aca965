// Chooses by the space's size and the budget: guided local search, and beyond stagnation in turn with the genetic one.
#include "search/methods.hpp"

namespace jitune::search {
namespace {

constexpr size_t kStagnation = 100;  // trials without improvement

class Auto final : public Method {
 public:
  explicit Auto(const Context& context)
      : context_(context), guided_(make_guided(context)), genetic_(make_genetic(context)) {}

  std::optional<space::Point> propose() override { return (use_genetic_ ? genetic_ : guided_)->propose(); }

  void told(size_t index) override {
    guided_->told(index);
    genetic_->told(index);
    const size_t told = context_.archive->told();
    if (context_.archive->best() != best_) {
      best_ = context_.archive->best();
      since_ = told;
    } else if (told >= since_ + kStagnation && told >= 400) {
      use_genetic_ = !use_genetic_;
      since_ = told;
    }
  }

 private:
  Context context_;
  std::unique_ptr<Method> guided_, genetic_;
  bool use_genetic_ = false;
  std::optional<size_t> best_;
  size_t since_ = 0;
};

}  // namespace

std::unique_ptr<Method> make_auto(const Context& context) {
  return std::make_unique<Auto>(context);
}

}  // namespace jitune::search
