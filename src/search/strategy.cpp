#include "search/strategy.hpp"

#include <algorithm>
#include <deque>
#include <utility>

#include "search/methods.hpp"
#include "search/transfer.hpp"

namespace jitune::search {
namespace {

constexpr uint64_t kTinySpace = 100;      // valid configs that are all tried, whatever the strategy's own order
constexpr uint64_t kWholeSpace = 20'000;  // valid configs that are all tried where there is no budget

/// A method with what all of them share: the archive, the model, what is to be proposed first.
class Engine final : public Strategy {
 public:
  Engine(const space::Space& space, const StrategyOptions& options)
      : valid_(space), archive_(valid_), model_(archive_, options.seed) {
    context_ = {&valid_, &archive_, &model_, options.seed, options.trials, {}};
    for (const space::Config& config : options.known)
      if (const auto point = valid_.point(config); point && !archive_.seen(*point))
        archive_.add(*point, Sample::State::closed);
    for (const space::Config& config : options.first)
      if (auto point = valid_.point(config)) first_.push_back(std::move(*point));
    use_perf_model(options);
    use_records(options);
    choose_method(options);
  }

  std::string name() const override { return name_; }
  bool adaptive() const override { return name_ != "exhaustive" && name_ != "random"; }

  uint64_t total() const override {
    if (!valid_.counted() || valid_.size() > kWholeSpace * 5) return 0;
    return static_cast<uint64_t>(valid_.size()) - std::min<uint64_t>(closed_, static_cast<uint64_t>(valid_.size()));
  }

  std::vector<space::Config> ask(size_t count) override {
    std::vector<space::Config> batch;
    while (batch.size() < count) {
      auto point = next();
      if (!point) break;
      batch.push_back(valid_.config(*point));
      archive_.add(*point);
    }
    return batch;
  }

  void tell(const space::Config& config, const Told& told) override {
    const auto point = valid_.point(config);
    if (!point) return;
    auto index = archive_.find(*point);
    if (!index) index = archive_.add(*point);
    const Sample::State state = archive_[*index].state;
    if (state != Sample::State::pending && state != Sample::State::closed) return;  // told already
    archive_.tell(*index, told);
    method_->told(*index);
  }

 private:
  std::optional<space::Point> next() {
    while (!first_.empty()) {
      space::Point point = std::move(first_.front());
      first_.pop_front();
      if (!archive_.seen(point)) return point;
    }
    return method_->propose();
  }

  void use_perf_model(const StrategyOptions& options) {
    if (!options.perf_model) return;
    const auto hint = [this, perf_model = options.perf_model](const space::Point& point) {
      return perf_model(valid_.config(point));
    };
    model_.add_hint(hint, true);
    if (options.top_k == 0) return;
    constexpr space::Count kRanked = 20'000;  // of a larger space a random part is ranked
    std::vector<std::pair<double, space::Point>> ranked;
    Random random(options.seed);
    const bool all = valid_.counted() && valid_.size() <= kRanked;
    const auto count = static_cast<uint64_t>(all ? valid_.size() : kRanked);
    for (uint64_t i = 0; i < count; ++i) {
      auto point = all ? std::optional(valid_.at(i)) : valid_.sample(random);
      if (point) ranked.emplace_back(hint(*point), std::move(*point));
    }
    std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (uint64_t i = 0; i < std::min<uint64_t>(options.top_k, ranked.size()); ++i)
      first_.push_back(std::move(ranked[i].second));
  }

  void use_records(const StrategyOptions& options) {
    const Transfer transfer(valid_, options.records);
    if (transfer.empty()) return;
    const size_t limit = std::max<size_t>(8, static_cast<size_t>(options.trials / 20));
    for (space::Point& point : transfer.portfolio(limit)) first_.push_back(std::move(point));
    if (auto prior = transfer.prior()) model_.add_hint(std::move(*prior), true);
  }

  void choose_method(const StrategyOptions& options) {
    closed_ = archive_.size();
    name_ = options.name;
    if (name_ == "auto") {
      const uint64_t affordable =
          std::max(kTinySpace, options.trials == 0 && !options.bounded ? kWholeSpace : options.trials);
      name_ = valid_.counted() && valid_.size() <= affordable ? "exhaustive" : "auto";
    }
    if (name_ == "exhaustive" || name_ == "random") method_ = std::make_unique<RandomMethod>(context_);
    if (name_ == "hls") method_ = make_guided(context_);
    if (name_ == "annealing") method_ = make_annealing(context_);
    if (name_ == "genetic") method_ = make_genetic(context_);
    if (name_ == "bayes") method_ = make_bayes(context_);
    if (name_ == "coordinate") method_ = make_coordinate(context_);
    if (name_ == "auto") method_ = make_auto(context_);
  }

  const space::ValidSet valid_;
  Archive archive_;
  Model model_;
  Context context_;
  std::string name_;
  std::unique_ptr<Method> method_;
  std::deque<space::Point> first_;
  uint64_t closed_ = 0;
};

}  // namespace

const std::vector<std::string>& strategy_names() {
  static const std::vector<std::string> names{"auto",      "exhaustive", "random", "hls",
                                              "annealing", "genetic",    "bayes",  "coordinate"};
  return names;
}

Result<std::unique_ptr<Strategy>> make_strategy(const space::Space& space, const StrategyOptions& options) {
  const auto& names = strategy_names();
  if (std::find(names.begin(), names.end(), options.name) == names.end()) {
    std::string list;
    for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
    return Failure{"there is no strategy '" + options.name + "'; there are " + list};
  }
  return std::unique_ptr<Strategy>(std::make_unique<Engine>(space, options));
}

void BudgetMeter::add(const Told& told) {
  double best = best_after_.empty() ? 0 : best_after_.back();
  if (told.fate == Fate::ok && told.time_us > 0 && (best == 0 || told.time_us < best)) best = told.time_us;
  best_after_.push_back(best);
}

std::string BudgetMeter::used_up(double elapsed_s) const {
  if (budget_.trials > 0 && best_after_.size() >= budget_.trials) return "trials";
  if (budget_.seconds > 0 && elapsed_s >= budget_.seconds) return "seconds";
  if (budget_.window > 0 && best_after_.size() > budget_.window) {
    const double now = best_after_.back(), then = best_after_[best_after_.size() - 1 - budget_.window];
    if (then > 0 && (then - now) / then < budget_.improvement) return "improvement";
  }
  return "";
}

}  // namespace jitune::search
