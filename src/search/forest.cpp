#include "search/forest.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace jitune::search {
namespace {

constexpr size_t kFewRows = 12;

}  // namespace

/// Grows one tree at a time.
class Forest::Grower {
 public:
  Grower(const FeatureRows& rows, std::span<const float> targets, const ForestOptions& options, Random& random,
         std::vector<Node>& nodes)
      : rows_(rows), targets_(targets), options_(options), random_(random), nodes_(nodes) {
    for (size_t i = 0; i < rows.features; ++i) features_.push_back(static_cast<uint16_t>(i));
    drawn_ = std::max<size_t>(
        1, static_cast<size_t>(std::lround(options.drawn_features * static_cast<double>(rows.features))));
  }

  uint32_t tree() {
    const size_t count = targets_.size();
    chosen_.resize(count);
    for (uint32_t& row : chosen_) row = static_cast<uint32_t>(random_.below(count));
    nodes_.emplace_back();
    const auto root = static_cast<uint32_t>(nodes_.size() - 1);
    grow(root, 0, count);
    return root;
  }

 private:
  struct Split {
    double gain = -1;
    uint16_t feature = 0;
    uint8_t cut = 0;
  };

  void grow(uint32_t node, size_t begin, size_t end) {
    double sum = 0;
    float low = targets_[chosen_[begin]], high = low;
    for (size_t i = begin; i < end; ++i) {
      const float target = targets_[chosen_[i]];
      sum += target;
      low = std::min(low, target);
      high = std::max(high, target);
    }
    nodes_[node].value = static_cast<float>(sum / static_cast<double>(end - begin));
    if (end - begin < 2 * static_cast<size_t>(options_.min_leaf) || high - low < 1e-6F) return;
    const Split split = best_split(begin, end, sum);
    if (split.gain < 0) return;
    const auto middle = std::partition(chosen_.begin() + static_cast<std::ptrdiff_t>(begin),
                                       chosen_.begin() + static_cast<std::ptrdiff_t>(end),
                                       [&](uint32_t row) { return rows_.row(row)[split.feature] <= split.cut; });
    const auto cut_at = static_cast<size_t>(middle - chosen_.begin());
    const auto left = static_cast<uint32_t>(nodes_.size());
    nodes_.resize(nodes_.size() + 2);
    nodes_[node] = {split.feature, split.cut, false, left, nodes_[node].value};
    grow(left, begin, cut_at);
    grow(left + 1, cut_at, end);
  }

  Split best_split(size_t begin, size_t end, double total) {
    Split best;
    size_t useful = 0;
    for (size_t i = 0; i < features_.size() && useful < drawn_; ++i) {
      std::swap(features_[i], features_[i + random_.below(features_.size() - i)]);
      if (split_on(features_[i], begin, end, total, best)) ++useful;
    }
    return best;
  }

  /// Sum and number of the targets of one code.
  struct Bin {
    unsigned code = 0;
    double sum = 0, count = 0;
  };

  /// False when the feature has one value here.
  bool split_on(uint16_t feature, size_t begin, size_t end, double total, Split& best) {
    bins_.clear();
    if (end - begin <= kFewRows)
      bin_few(feature, begin, end);
    else
      bin_many(feature, begin, end);
    if (bins_.size() < 2) return false;
    const auto all = static_cast<double>(end - begin), smallest = static_cast<double>(options_.min_leaf);
    double left_sum = 0, left = 0;
    for (size_t i = 0; i + 1 < bins_.size(); ++i) {
      left_sum += bins_[i].sum;
      left += bins_[i].count;
      if (left < smallest || all - left < smallest) continue;
      const double right_sum = total - left_sum;
      const double gain = left_sum * left_sum / left + right_sum * right_sum / (all - left) - total * total / all;
      if (gain <= best.gain) continue;
      const unsigned gap = bins_[i + 1].code - bins_[i].code;
      best = {gain, feature, static_cast<uint8_t>(bins_[i].code + random_.below(gap))};
    }
    return true;
  }

  /// By insertion: most nodes are small, and a feature may have 256 codes to look through.
  void bin_few(uint16_t feature, size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const unsigned code = rows_.row(chosen_[i])[feature];
      size_t at = bins_.size();
      while (at > 0 && bins_[at - 1].code > code) --at;
      if (at == 0 || bins_[at - 1].code != code)
        bins_.insert(bins_.begin() + static_cast<std::ptrdiff_t>(at++), {code, 0, 0});
      bins_[at - 1].sum += static_cast<double>(targets_[chosen_[i]]);
      bins_[at - 1].count += 1;
    }
  }

  void bin_many(uint16_t feature, size_t begin, size_t end) {
    unsigned low = 255, high = 0;
    for (size_t i = begin; i < end; ++i) {
      const unsigned code = rows_.row(chosen_[i])[feature];
      by_code_[code].sum += static_cast<double>(targets_[chosen_[i]]);
      by_code_[code].count += 1;
      low = std::min(low, code);
      high = std::max(high, code);
    }
    for (unsigned code = low; code <= high; ++code) {
      if (by_code_[code].count == 0) continue;
      bins_.push_back({code, by_code_[code].sum, by_code_[code].count});
      by_code_[code] = {};
    }
  }

  const FeatureRows& rows_;
  std::span<const float> targets_;
  const ForestOptions& options_;
  Random& random_;
  std::vector<Node>& nodes_;
  std::vector<uint16_t> features_;
  size_t drawn_ = 1;
  std::vector<uint32_t> chosen_;
  std::vector<Bin> bins_;  // of the feature that is looked at, by ascending code
  std::array<Bin, 256> by_code_{};
};

void Forest::fit(const FeatureRows& rows, std::span<const float> targets, const ForestOptions& options,
                 Random& random) {
  nodes_.clear();
  roots_.clear();
  if (targets.empty() || rows.features == 0) return;
  Grower grower(rows, targets, options, random, nodes_);
  for (int i = 0; i < options.trees; ++i) roots_.push_back(grower.tree());
}

void Forest::predict(const FeatureRows& rows, std::vector<Estimate>& out, std::vector<uint32_t>* leaves) const {
  const size_t count = rows.rows();
  out.assign(count, {});
  if (leaves != nullptr) leaves->assign(count * roots_.size(), 0);
  for (size_t tree = 0; tree < roots_.size(); ++tree) {
    const uint32_t root = roots_[tree];
    for (size_t i = 0; i < count; ++i) {
      const uint8_t* row = rows.row(i);
      const Node* node = &nodes_[root];
      while (!node->leaf) node = &nodes_[node->left + (row[node->feature] > node->cut ? 1 : 0)];
      if (leaves != nullptr) (*leaves)[i * roots_.size() + tree] = static_cast<uint32_t>(node - nodes_.data());
      out[i].mean += node->value;
      out[i].deviation += node->value * node->value;
    }
  }
  const auto trees = static_cast<float>(std::max<size_t>(1, roots_.size()));
  for (Estimate& estimate : out) {
    estimate.mean /= trees;
    estimate.deviation = std::sqrt(std::max(0.0F, estimate.deviation / trees - estimate.mean * estimate.mean));
  }
}

}  // namespace jitune::search
