#include "measure/several.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace jitune::measure {
namespace {

constexpr int kGroupsOfProblem = 100;  // wrong results are sorted at each problem apart

}  // namespace

double SeveralProblems::total_weight() const {
  return std::accumulate(weights_.begin(), weights_.end(), 0.0);
}

double SeveralProblems::next_bound_us(double bound_us) const {
  if (!std::isfinite(bound_us)) return bound_us;
  double left = bound_us * total_weight();
  for (size_t i = 0; i < replies_.size(); ++i) left -= weights_[i] * summarise(replies_[i].samples_us).median_us;
  return std::max(left, 0.0) / weights_[replies_.size()];
}

bool SeveralProblems::add(TrialReply reply) {
  const size_t index = replies_.size();
  const bool goes_on = reply.status == TrialStatus::ok;
  if (!reply.error.empty()) reply.error = "at " + texts_[index] + ": " + reply.error;
  if (reply.group > 0) reply.group += static_cast<int>(index) * kGroupsOfProblem;
  replies_.push_back(std::move(reply));
  return goes_on && replies_.size() < weights_.size();
}

TrialReply SeveralProblems::result() && {
  const TrialReply& last = replies_.back();
  TrialReply whole = replies_.front();
  whole.status = last.status;
  whole.error = last.error;
  whole.group = last.group;
  whole.stop = last.stop;
  whole.context_lost = last.context_lost;
  whole.device_lost = last.device_lost;
  if (last.clock_mhz > 0) whole.clock_mhz = last.clock_mhz;
  size_t samples = 0;
  bool any_empty = false;
  for (const TrialReply& each : replies_) {
    samples = std::max(samples, each.samples_us.size());
    any_empty = any_empty || each.samples_us.empty();
  }
  whole.samples_us.assign(any_empty ? 0 : samples, 0);
  whole.first_us = 0;
  for (size_t i = 0; i < replies_.size(); ++i) {
    const TrialReply& each = replies_[i];
    const double share = weights_[i] / total_weight();
    // Where fewer samples were enough they count again, so that the mean's spread is that of its parts.
    for (size_t k = 0; k < whole.samples_us.size(); ++k) {
      const double us = each.samples_us[k % each.samples_us.size()];
      const bool counts = us > 0 && (i == 0 || whole.samples_us[k] > 0);
      whole.samples_us[k] = counts ? whole.samples_us[k] + share * us : 0;  // 0 is dropped where samples are summed up
    }
    whole.first_us += share * each.first_us;
    if (i == 0) continue;
    whole.also_launches.push_back(each.launches);
    whole.load_ms += each.load_ms;
    whole.check_ms += each.check_ms;
    whole.run_ms += each.run_ms;
    whole.wall_ms += each.wall_ms;
  }
  return whole;
}

}  // namespace jitune::measure
