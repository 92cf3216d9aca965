#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/random.hpp"

namespace jitune::search {

/// Rows of features, each a small number: its place among the values that the feature has.
struct FeatureRows {
  size_t features = 0;
  std::vector<uint8_t> codes;  ///< row after row

  size_t rows() const { return features == 0 ? 0 : codes.size() / features; }
  const uint8_t* row(size_t index) const { return codes.data() + index * features; }
};

/// Mean and spread of what the trees say.
struct Estimate {
  float mean = 0, deviation = 0;
};

struct ForestOptions {
  int trees = 20;
  double drawn_features = .8;  ///< share of the features that a node chooses its split from
  int min_leaf = 1;
};

/// A regression forest for some hundreds of rows that is fitted again every few of them: bootstrap, best split over the
/// drawn features, the cut at a random place of the gap between two values (after Geurts, Ernst and Wehenkel,
/// "Extremely randomized trees", 2006, and Breiman, 2001).
class Forest {
 public:
  void fit(const FeatureRows& rows, std::span<const float> targets, const ForestOptions& options, Random& random);
  bool fitted() const { return !roots_.empty(); }
  /// One estimate for each row. `leaves`, where given: row after row, the leaf of each tree that it falls into.
  void predict(const FeatureRows& rows, std::vector<Estimate>& out, std::vector<uint32_t>* leaves = nullptr) const;
  size_t trees() const { return roots_.size(); }

 private:
  struct Node {
    uint16_t feature = 0;
    uint8_t cut = 0;  // codes up to it go left
    bool leaf = true;
    uint32_t left = 0;  // right is the next one
    float value = 0;
  };
  class Grower;
  std::vector<Node> nodes_;
  std::vector<uint32_t> roots_;
};

}  // namespace jitune::search
