#include "search/strategy.hpp"

#include <set>
#include <utility>

namespace jitune::search {
namespace {

/// SplitMix64 (Steele, Lea and Flood, 2014): a counter-based generator, the same everywhere.
uint64_t random_bits(uint64_t seed, uint64_t counter) {
  uint64_t z = seed + (counter + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/// Every config of a small space, once each, in shuffled order.
class Exhaustive final : public Strategy {
 public:
  Exhaustive(std::vector<space::Config> configs, uint64_t seed) : configs_(std::move(configs)) {
    for (size_t i = configs_.size(); i > 1; --i) std::swap(configs_[i - 1], configs_[random_bits(seed, i) % i]);
  }

  std::string name() const override { return "exhaustive"; }
  uint64_t total() const override { return configs_.size(); }
  void tell(const space::Config&, const Told&) override {}

  std::vector<space::Config> ask(size_t count) override {
    std::vector<space::Config> batch;
    while (batch.size() < count && next_ < configs_.size()) batch.push_back(configs_[next_++]);
    return batch;
  }

 private:
  std::vector<space::Config> configs_;
  size_t next_ = 0;
};

/// Random draws from a large space, without repeats.
class RandomDraws final : public Strategy {
 public:
  RandomDraws(const space::Space& space, uint64_t seed, const std::vector<space::Config>& known)
      : space_(space), seed_(seed) {
    for (const auto& config : known) seen_.insert(space::canonical(config));
  }

  std::string name() const override { return "random"; }
  uint64_t total() const override { return 0; }
  void tell(const space::Config&, const Told&) override {}

  std::vector<space::Config> ask(size_t count) override {
    // A run of repeats this long means that what is left is too little to find by drawing.
    constexpr int kMaxRepeats = 10'000;
    std::vector<space::Config> batch;
    for (int repeats = 0; batch.size() < count && repeats < kMaxRepeats;) {
      auto config = space_.sample(seed_, draw_++);
      if (!config) break;
      if (seen_.insert(space::canonical(*config)).second)
        batch.push_back(std::move(*config));
      else
        ++repeats;
    }
    return batch;
  }

 private:
  space::Space space_;
  uint64_t seed_, draw_ = 0;
  std::set<std::string> seen_;
};

}  // namespace

std::unique_ptr<Strategy> make_strategy(const space::Space& space, uint64_t seed,
                                        const std::vector<space::Config>& known, size_t exhaustive_limit) {
  auto configs = space.list(exhaustive_limit + 1);
  if (configs.size() > exhaustive_limit) return std::make_unique<RandomDraws>(space, seed, known);
  std::set<std::string> skip;
  for (const auto& config : known) skip.insert(space::canonical(config));
  std::erase_if(configs, [&](const space::Config& config) { return skip.contains(space::canonical(config)); });
  return std::make_unique<Exhaustive>(std::move(configs), seed);
}

}  // namespace jitune::search
