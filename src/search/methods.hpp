#pragma once

#include <memory>
#include <optional>

#include "search/archive.hpp"
#include "search/model.hpp"

namespace jitune::search {

/// What a method works with.
struct Context {
  const space::ValidSet* valid = nullptr;
  Archive* archive = nullptr;
  Model* model = nullptr;
  uint64_t seed = 1;
  uint64_t trials = 0;                              ///< the budget; 0: not known
  std::function<double(const space::Point&)> rank;  ///< the author's perf_model; may be empty
};

/// One way to choose points. It reads the archive and proposes; who asks adds the proposal to the archive as pending.
class Method {
 public:
  virtual ~Method() = default;
  /// A valid point that the archive has not seen; nothing when there is none left.
  virtual std::optional<space::Point> propose() = 0;
  /// A sample of the archive was told, proposed by this method or by another.
  virtual void told(size_t index) = 0;
};

/// Random points without repeats: a permutation of the ranks where the space is counted, else draws. Every method falls
/// back to it when its own ideas are used up, so that in the end the whole space is proposed.
class RandomMethod final : public Method {
 public:
  explicit RandomMethod(const Context& context);
  std::optional<space::Point> propose() override;
  void told(size_t) override {}

 private:
  const space::ValidSet& valid_;
  const Archive& archive_;
  Random random_;
  Permutation order_;
  space::Count next_ = 0;
};

std::unique_ptr<Method> make_guided(const Context& context);  ///< hedged guided local search
std::unique_ptr<Method> make_annealing(const Context& context);
std::unique_ptr<Method> make_genetic(const Context& context);
std::unique_ptr<Method> make_bayes(const Context& context);
std::unique_ptr<Method> make_coordinate(const Context& context);
std::unique_ptr<Method> make_auto(const Context& context);

/// Far from each other: the farthest of `draws` random points from those given, by the share of params that differ and
/// by how far their indices are.
std::optional<space::Point> far_point(const Context& context, const std::vector<space::Point>& from, int draws,
                                      Random& random);

}  // namespace jitune::search
