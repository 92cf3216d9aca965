#include "tune/compile_deadlines.hpp"

#include <algorithm>
#include <cmath>

namespace jitune::tune {

CompileDeadlines::Milliseconds CompileDeadlines::deadline(const std::string& space) const {
  const std::lock_guard lock(mutex_);
  const auto found = times_ms_.find(space);
  if (found == times_ms_.end() || found->second.size() < kSamples) return limit_;
  const auto& times = found->second;
  const auto rank = static_cast<size_t>(std::ceil(kQuantile * static_cast<double>(times.size())));
  const double wanted = kMultiple * times[rank - 1];
  if (wanted >= static_cast<double>(limit_.count())) return limit_;
  return std::min(limit_, std::max(kFloor, Milliseconds(static_cast<int64_t>(std::ceil(wanted)))));
}

void CompileDeadlines::note(const std::string& space, double ms) {
  const std::lock_guard lock(mutex_);
  auto& times = times_ms_[space];
  times.insert(std::upper_bound(times.begin(), times.end(), ms), ms);
}

}  // namespace jitune::tune
