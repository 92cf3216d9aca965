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
      : targets_(targets), options_(options), random_(random), nodes_(nodes) {
    const size_t count = targets.size();
    for (size_t i = 0; i < rows.features; ++i) features_.push_back(static_cast<uint16_t>(i));
    drawn_ = std::max<size_t>(
        1, static_cast<size_t>(std::lround(options.drawn_features * static_cast<double>(rows.features))));
    columns_.resize(rows.features * count);
    for (size_t row = 0; row < count; ++row)
      for (size_t feature = 0; feature < rows.features; ++feature)
        columns_[feature * count + row] = rows.row(row)[feature];
  }

  uint32_t tree() {
    const size_t count = targets_.size();
    times_drawn_.assign(count, 0);
    for (size_t i = 0; i < count; ++i) ++times_drawn_[random_.below(count)];
    chosen_.clear();
    for (uint32_t row = 0; row < count; ++row) {
      if (times_drawn_[row] == 0) continue;
      const auto weight = static_cast<float>(times_drawn_[row]);
      chosen_.push_back({row, weight, weight * targets_[row]});
    }
    nodes_.emplace_back();
    const auto root = static_cast<uint32_t>(nodes_.size() - 1);
    grow(root, 0, chosen_.size());
    return root;
  }

 private:
  struct Split {
    float score = -1;
    uint16_t feature = 0;
    uint8_t last = 0, next = 0;  // the codes on both sides of the gap
  };
  struct Drawn {
    uint32_t row = 0;
    float weight = 0, sum = 0;  // how often it was drawn, and its target so many times
  };

  void grow(uint32_t node, size_t begin, size_t end) {
    float sum = 0, weight = 0;
    float low = targets_[chosen_[begin].row], high = low;
    for (size_t i = begin; i < end; ++i) {
      const float target = targets_[chosen_[i].row];
      sum += chosen_[i].sum;
      weight += chosen_[i].weight;
      low = std::min(low, target);
      high = std::max(high, target);
    }
    nodes_[node].value = sum / weight;
    if (weight < 2 * static_cast<float>(options_.min_leaf) || high - low < 1e-6F) return;
    const Split split = best_split(begin, end, sum, weight);
    if (split.score < 0) return;
    const auto cut = static_cast<uint8_t>(split.last + random_.below(split.next - split.last));
    const uint8_t* column = columns_.data() + split.feature * targets_.size();
    const auto middle = std::partition(chosen_.begin() + static_cast<std::ptrdiff_t>(begin),
                                       chosen_.begin() + static_cast<std::ptrdiff_t>(end),
                                       [&](const Drawn& drawn) { return column[drawn.row] <= cut; });
    const auto cut_at = static_cast<size_t>(middle - chosen_.begin());
    const auto left = static_cast<uint32_t>(nodes_.size());
    nodes_.resize(nodes_.size() + 2);
    nodes_[node] = {split.feature, cut, false, left, nodes_[node].value};
    grow(left, begin, cut_at);
    grow(left + 1, cut_at, end);
  }

  Split best_split(size_t begin, size_t end, float sum, float weight) {
    Split best;
    size_t useful = 0;
    for (size_t i = 0; i < features_.size() && useful < drawn_; ++i) {
      std::swap(features_[i], features_[i + random_.below(features_.size() - i)]);
      if (split_on(features_[i], begin, end, sum, weight, best)) ++useful;
    }
    return best;
  }

  /// Sum and number of the targets of one code.
  struct Bin {
    unsigned code = 0;
    float sum = 0, weight = 0;
  };

  /// False when the feature has one value here.
  bool split_on(uint16_t feature, size_t begin, size_t end, float total, float all, Split& best) {
    const uint8_t* column = columns_.data() + feature * targets_.size();
    if (end - begin <= kFewRows)
      bin_few(column, begin, end);
    else
      bin_many(column, begin, end);
    if (bins_used_ < 2) return false;
    const auto smallest = static_cast<float>(options_.min_leaf);
    const float mean = total / all;  // taken off, or rounding would eat small gains
    float left_sum = 0, left = 0;
    for (size_t i = 0; i + 1 < bins_used_; ++i) {
      left_sum += bins_[i].sum - mean * bins_[i].weight;
      left += bins_[i].weight;
      if (left < smallest || all - left < smallest) continue;
      const float score = left_sum * left_sum / (left * (all - left));
      if (score <= best.score) continue;
      best = {score, feature, static_cast<uint8_t>(bins_[i].code), static_cast<uint8_t>(bins_[i + 1].code)};
    }
    return true;
  }

  /// By insertion: most nodes are small, and a feature may have 256 codes to look through.
  void bin_few(const uint8_t* column, size_t begin, size_t end) {
    bins_used_ = 0;
    for (size_t i = begin; i < end; ++i) {
      const Drawn& drawn = chosen_[i];
      const unsigned code = column[drawn.row];
      size_t at = bins_used_;
      while (at > 0 && bins_[at - 1].code > code) --at;
      if (at == 0 || bins_[at - 1].code != code) {
        for (size_t j = bins_used_; j > at; --j) bins_[j] = bins_[j - 1];
        ++bins_used_;
        bins_[at] = {code, drawn.sum, drawn.weight};
      } else {
        bins_[at - 1].sum += drawn.sum;
        bins_[at - 1].weight += drawn.weight;
      }
    }
  }

  void bin_many(const uint8_t* column, size_t begin, size_t end) {
    unsigned low = 255, high = 0;
    for (size_t i = begin; i < end; ++i) {
      const Drawn& drawn = chosen_[i];
      const unsigned code = column[drawn.row];
      by_code_[code].sum += drawn.sum;
      by_code_[code].weight += drawn.weight;
      low = std::min(low, code);
      high = std::max(high, code);
    }
    bins_used_ = 0;
    for (unsigned code = low; code <= high; ++code) {
      if (by_code_[code].weight == 0) continue;
      bins_[bins_used_++] = {code, by_code_[code].sum, by_code_[code].weight};
      by_code_[code] = {};
    }
  }

  std::span<const float> targets_;
  const ForestOptions& options_;
  Random& random_;
  std::vector<Node>& nodes_;
  std::vector<uint8_t> columns_;  // feature after feature
  std::vector<uint16_t> features_;
  size_t drawn_ = 1;
  std::vector<uint16_t> times_drawn_;
  std::vector<Drawn> chosen_;
  std::array<Bin, 256> bins_{};  // of the feature that is looked at, by ascending code; the first bins_used_
  size_t bins_used_ = 0;
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
