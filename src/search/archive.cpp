#include "search/archive.hpp"

#include <cmath>
#include <limits>

namespace jitune::search {

std::optional<size_t> Archive::find(const space::Point& point) const {
  const auto at = index_.find(point);
  if (at == index_.end()) return std::nullopt;
  return at->second;
}

size_t Archive::add(const space::Point& point, Sample::State state) {
  index_.emplace(point, samples_.size());
  samples_.push_back({point, state, false, 0});
  return samples_.size() - 1;
}

void Archive::tell(size_t index, const Told& told) {
  Sample& sample = samples_[index];
  const bool timed = (told.fate == Fate::ok || told.fate == Fate::early_stopped) && told.time_us > 0;
  sample.state = timed ? Sample::State::timed : Sample::State::failed;
  sample.may_win = timed && told.fate == Fate::ok;
  if (timed)
    sample.log_time = std::log(told.time_us);
  else
    ++failures_;
  told_.push_back(index);
  if (sample.may_win && sample.log_time < best_log_time()) best_ = index;
}

double Archive::best_log_time() const {
  return best_ ? samples_[*best_].log_time : std::numeric_limits<double>::infinity();
}

}  // namespace jitune::search
