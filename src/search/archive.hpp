#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "search/strategy.hpp"
#include "space/valid_set.hpp"

namespace jitune::search {

/// One point that was proposed or told.
struct Sample {
  enum class State : uint8_t { pending, timed, failed, closed };  ///< closed: never to be proposed, nothing known
  space::Point point;
  State state = State::pending;
  bool may_win = false;  ///< ran to the end: an early-stopped one informs, but is never the best
  double log_time = 0;
};

/// All that a search knows, shared by its methods.
class Archive {
 public:
  explicit Archive(const space::ValidSet& valid) : valid_(valid) {}

  const space::ValidSet& valid() const { return valid_; }
  bool seen(const space::Point& point) const { return index_.contains(point); }
  std::optional<size_t> find(const space::Point& point) const;
  size_t add(const space::Point& point, Sample::State state = Sample::State::pending);
  void tell(size_t index, const Told& told);

  size_t size() const { return samples_.size(); }
  const Sample& operator[](size_t index) const { return samples_[index]; }
  std::optional<size_t> best() const { return best_; }
  /// Of the best; infinity before there is one.
  double best_log_time() const;
  size_t told() const { return told_.size(); }
  const std::vector<size_t>& order_told() const { return told_; }  ///< indices, in the order in which they were told
  size_t failures() const { return failures_; }

 private:
  const space::ValidSet& valid_;
  std::vector<Sample> samples_;
  std::unordered_map<space::Point, size_t, space::PointHash> index_;
  std::vector<size_t> told_;
  std::optional<size_t> best_;
  size_t failures_ = 0;
};

}  // namespace jitune::search
