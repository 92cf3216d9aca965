#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "search/forest.hpp"

namespace jitune::search {

/// XGBoost's C library, loaded at run time: no program needs it. Its few functions that are used here have been as they
/// are since XGBoost 1.3.
class XgboostLibrary;

/// The library at `path`; "": what the loader finds as libxgboost.so. Loaded once for each path and never unloaded. The
/// failure says what was looked for. Safe from any thread.
Result<const XgboostLibrary*> load_xgboost(const std::string& path = {});

/// A few boosters, each of a bootstrap of the rows: their mean, and how far they are apart. One thread, and the same
/// trees for the same seed.
class BoostedTrees {
 public:
  explicit BoostedTrees(const XgboostLibrary& library) : library_(&library) {}
  ~BoostedTrees();
  BoostedTrees(const BoostedTrees&) = delete;
  BoostedTrees& operator=(const BoostedTrees&) = delete;

  /// Fails with what the library says; there is nothing to predict with then.
  Result<void> fit(const FeatureRows& rows, std::span<const float> targets, Random& random);
  /// One estimate for each row.
  Result<void> predict(const FeatureRows& rows, std::vector<Estimate>& out) const;

 private:
  void forget();
  const XgboostLibrary* library_;
  std::vector<void*> boosters_;
};

}  // namespace jitune::search
