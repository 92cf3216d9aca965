#pragma once

#include <string>
#include <utility>
#include <vector>

#include "measure/protocol.hpp"

namespace jitune::measure {

/// What one config did at several problems, one after the other, put together: its times are the means by weight.
class SeveralProblems {
 public:
  /// `texts` name the problems in errors.
  SeveralProblems(std::vector<double> weights, std::vector<std::string> texts)
      : weights_(std::move(weights)), texts_(std::move(texts)) {}

  /// What the next problem's time must not exceed if the mean is to stay within `bound_us`, were all later ones free:
  /// so that a config that loses nowhere but in the mean is not given up too early.
  double next_bound_us(double bound_us) const;

  /// Takes the next problem's reply. False: it decides, the others need not run.
  bool add(TrialReply reply);

  /// A config that lost at one problem has there, by the times so far and nothing for the rest, a mean that is too good
  /// and still beyond the bound.
  TrialReply result() &&;

 private:
  double total_weight() const;
  std::vector<double> weights_;
  std::vector<std::string> texts_;
  std::vector<TrialReply> replies_;
};

}  // namespace jitune::measure
