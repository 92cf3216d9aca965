#include "search/strategy.hpp"

#include <algorithm>
#include <deque>
#include <limits>
#include <memory>
#include <unordered_map>
#include <utility>

#include "search/methods.hpp"
#include "search/transfer.hpp"

namespace jitune::search {
namespace {

constexpr uint64_t kTinySpace = 100;      // valid configs that are all tried, whatever the strategy's own order
constexpr uint64_t kWholeSpace = 20'000;  // valid configs that are all tried where there is no budget
constexpr uint64_t kFavourites = 4;       // of the author's perf_model that come first unless it says how many
constexpr size_t kProbeAfter = 2;         // configs from records that are tried before one of the method's own
constexpr size_t kProbes = 2;             // of these that are faster than all from records: the records mislead

/// A method with what all of them share: the archive, the model, what is to be proposed first.
class Engine final : public Strategy {
 public:
  Engine(const space::Space& space, const StrategyOptions& options)
      : valid_(space), archive_(valid_), model_(archive_, options.seed, options.numbers) {
    if (options.xgboost != nullptr) model_.use(*options.xgboost);
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
    while (!portfolio_.empty()) {
      if (should_probe())
        if (auto probe = method_->propose()) {
          probes_.push_back(*probe);
          return probe;
        }
      if (portfolio_.empty()) break;
      space::Point point = std::move(portfolio_.front());
      portfolio_.pop_front();
      if (archive_.seen(point)) continue;
      tried_.push_back(point);
      return point;
    }
    return method_->propose();
  }

  double log_time_of(const space::Point& point) const {
    const auto index = archive_.find(point);
    return index && archive_[*index].state == Sample::State::timed ? archive_[*index].log_time
                                                                   : std::numeric_limits<double>::infinity();
  }

  /// Whether the method's own config is next, though records have more to offer: after the first few of theirs, and
  /// again where that one was faster than all of these. Where the second is too the records mislead, and the rest of
  /// what they offer is dropped.
  bool should_probe() {
    if (tried_.size() < kProbeAfter || name_ == "exhaustive") return false;
    double best = std::numeric_limits<double>::infinity();
    for (const space::Point& point : tried_) best = std::min(best, log_time_of(point));
    const bool all_faster = std::all_of(probes_.begin(), probes_.end(),
                                        [&](const space::Point& probe) { return log_time_of(probe) < best; });
    if (!all_faster) return false;
    if (probes_.size() < kProbes) return true;
    portfolio_.clear();
    return false;
  }

  /// Points for an order by `hint`: all of a small space, of a larger one a random part; fastest first.
  std::vector<space::Point> ranked(const Hint& hint, uint64_t seed) const {
    constexpr space::Count kRanked = 20'000;
    std::vector<std::pair<double, space::Point>> points;
    Random random(seed);
    const bool all = valid_.counted() && valid_.size() <= kRanked;
    const auto count = static_cast<uint64_t>(all ? valid_.size() : kRanked);
    for (uint64_t i = 0; i < count; ++i) {
      auto point = all ? std::optional(valid_.at(i)) : valid_.sample(random);
      if (point) points.emplace_back(hint(*point), std::move(*point));
    }
    std::stable_sort(points.begin(), points.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<space::Point> order;
    for (auto& [score, point] : points) order.push_back(std::move(point));
    return order;
  }

  void use_perf_model(const StrategyOptions& options) {
    if (!options.perf_model) return;
    // Asked for the same points again and again, and maybe slow.
    auto known = std::make_shared<std::unordered_map<space::Point, double, space::PointHash>>();
    const Hint hint = standardised([this, perf_model = options.perf_model, known](const space::Point& point) {
      constexpr size_t kRemembered = 50'000;
      if (known->size() >= kRemembered) known->clear();
      const auto [at, is_new] = known->try_emplace(point, 0);
      if (is_new) at->second = perf_model(valid_.config(point));
      return at->second;
    });
    model_.add_hint(hint);
    const uint64_t first = first_.size() + (options.top_k > 0 ? options.top_k : kFavourites);
    for (space::Point& point : ranked(hint, options.seed)) {
      if (first_.size() >= first) break;
      first_.push_back(std::move(point));
    }
  }

  /// Places among the values of some random points, from -1.7 to 1.7: of mean 0 and deviation 1 whatever the unit.
  Hint standardised(const Hint& raw) const {
    constexpr int kDraws = 400;
    auto drawn = std::make_shared<std::vector<double>>();
    Random random(1);
    for (int i = 0; i < kDraws; ++i)
      if (const auto point = valid_.sample(random)) drawn->push_back(raw(*point));
    std::sort(drawn->begin(), drawn->end());
    return [raw, drawn](const space::Point& point) {
      const double value = raw(point);
      const auto low = std::lower_bound(drawn->begin(), drawn->end(), value);
      const auto high = std::upper_bound(low, drawn->end(), value);
      const auto place = static_cast<double>((low - drawn->begin()) + (high - drawn->begin())) / 2;
      return drawn->empty() ? 0 : 3.46 * (place / static_cast<double>(drawn->size()) - .5);
    };
  }

  void use_records(const StrategyOptions& options) {
    const Transfer transfer(valid_, options.records);
    if (transfer.empty()) return;
    const size_t limit = std::max<size_t>(8, static_cast<size_t>(options.trials / 20));
    for (space::Point& point : transfer.portfolio(limit)) portfolio_.push_back(std::move(point));
    for (auto& [hint, weight] : transfer.hints()) model_.add_hint(std::move(hint), weight);
  }

  void choose_method(const StrategyOptions& options) {
    closed_ = archive_.size();
    name_ = options.name;
    if (name_ == "auto") {
      const uint64_t affordable =
          std::max(kTinySpace, options.trials == 0 && !options.bounded ? kWholeSpace : options.trials);
      name_ = valid_.counted() && valid_.size() <= affordable ? "exhaustive" : "auto";
    }
    if (name_ == "exhaustive" && model_.has_hints())
      for (space::Point& point :
           ranked([this](const space::Point& point) { return model_.hinted(point); }, options.seed))
        first_.push_back(std::move(point));
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
  std::deque<space::Point> first_, portfolio_;
  std::vector<space::Point> tried_, probes_;  // of the portfolio; the method's own among them
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
