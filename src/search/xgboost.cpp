#include "search/xgboost.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <type_traits>

#include "base/dynamic_library.hpp"

namespace jitune::search {

using Length = uint64_t;  // bst_ulong
using Handle = void*;

class XgboostLibrary {
 public:
  void (*version)(int* major, int* minor, int* patch) = nullptr;
  const char* (*last_error)() = nullptr;
  int (*matrix_create)(const float* data, Length rows, Length columns, float missing, Handle* out) = nullptr;
  int (*matrix_set)(Handle matrix, const char* field, const float* values, Length count) = nullptr;
  int (*matrix_free)(Handle matrix) = nullptr;
  int (*booster_create)(const Handle* matrices, Length count, Handle* out) = nullptr;
  int (*booster_set)(Handle booster, const char* name, const char* value) = nullptr;
  int (*booster_update)(Handle booster, int round, Handle matrix) = nullptr;
  int (*booster_predict)(Handle booster, Handle matrix, int mask, unsigned trees, int training, Length* count,
                         const float** out) = nullptr;
  int (*booster_free)(Handle booster) = nullptr;
};

namespace {

constexpr int kBoosters = 6;
constexpr int kRounds = 40;
// Depth, learning rate and the like for some hundreds of rows of little noise.
constexpr std::pair<const char*, const char*> kSettings[] = {{"objective", "reg:squarederror"},
                                                             {"nthread", "1"},
                                                             {"verbosity", "0"},
                                                             {"max_depth", "6"},
                                                             {"eta", "0.25"},
                                                             {"min_child_weight", "1"},
                                                             {"lambda", "1"},
                                                             {"colsample_bytree", "0.8"},
                                                             {"tree_method", "exact"},
                                                             {"base_score", "0"}};

Result<void> look_up(const DynamicLibrary& library, XgboostLibrary& out) {
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library.find(name));
    return function != nullptr ? "" : name;
  };
  for (const char* missing :
       {find(out.version, "XGBoostVersion"), find(out.last_error, "XGBGetLastError"),
        find(out.matrix_create, "XGDMatrixCreateFromMat"), find(out.matrix_set, "XGDMatrixSetFloatInfo"),
        find(out.matrix_free, "XGDMatrixFree"), find(out.booster_create, "XGBoosterCreate"),
        find(out.booster_set, "XGBoosterSetParam"), find(out.booster_update, "XGBoosterUpdateOneIter"),
        find(out.booster_predict, "XGBoosterPredict"), find(out.booster_free, "XGBoosterFree")})
    if (*missing != '\0') return Failure{std::string("it has no ") + missing};
  int major = 0, minor = 0, patch = 0;
  out.version(&major, &minor, &patch);
  if (major < 1 || (major == 1 && minor < 3))
    return Failure{"it is XGBoost " + std::to_string(major) + "." + std::to_string(minor) + "; 1.3 or newer is needed"};
  return {};
}

/// A fit of a few rows: what this version does not know is told now, and not in the middle of a search.
Result<void> try_out(const XgboostLibrary& library) {
  const FeatureRows rows{1, {0, 1, 2, 3}};
  const std::vector<float> targets{0, 1, 2, 3};
  std::vector<Estimate> estimates;
  Random random(1);
  BoostedTrees trees(library);
  auto fitted = trees.fit(rows, targets, random);
  return fitted ? trees.predict(rows, estimates) : fitted;
}

Result<const XgboostLibrary*> open(const std::string& path) {
  auto library = DynamicLibrary::open(path);
  if (!library)
    return Failure{"XGBoost can't be loaded (" + library.error() +
                   "); install it, or name its libxgboost.so in JITUNE_XGBOOST"};
  auto functions = std::make_unique<XgboostLibrary>();
  if (auto found = look_up(*library, *functions); !found) return Failure{path + " can't be used: " + found.error()};
  if (auto works = try_out(*functions); !works) return Failure{path + " can't be used: " + works.error()};
  library->keep();
  return functions.release();  // for as long as the process lives, as the library itself
}

/// A matrix of rows that frees itself.
class Matrix {
 public:
  Matrix(const XgboostLibrary& library, const std::vector<float>& cells, size_t columns) : library_(library) {
    const float missing = std::numeric_limits<float>::quiet_NaN();
    if (library.matrix_create(cells.data(), cells.size() / columns, columns, missing, &handle_) != 0) handle_ = nullptr;
  }
  ~Matrix() {
    if (handle_ != nullptr) library_.matrix_free(handle_);
  }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;
  Handle get() const { return handle_; }

 private:
  const XgboostLibrary& library_;
  Handle handle_ = nullptr;
};

Failure trouble(const XgboostLibrary& library) {
  return {std::string("XGBoost: ") + library.last_error()};
}

}  // namespace

Result<const XgboostLibrary*> load_xgboost(const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, const XgboostLibrary*> loaded;
  const std::string name = path.empty() ? "libxgboost.so" : path;
  const std::lock_guard lock(mutex);
  const XgboostLibrary*& known = loaded[name];
  if (known != nullptr) return known;
  auto opened = open(name);
  if (opened) known = *opened;
  return opened;
}

BoostedTrees::~BoostedTrees() {
  forget();
}

void BoostedTrees::forget() {
  for (Handle booster : boosters_) library_->booster_free(booster);
  boosters_.clear();
}

Result<void> BoostedTrees::fit(const FeatureRows& rows, std::span<const float> targets, Random& random) {
  forget();
  const size_t count = rows.rows();
  for (int i = 0; i < kBoosters; ++i) {
    std::vector<float> cells, labels;
    for (size_t drawn = 0; drawn < count; ++drawn) {
      const size_t row = random.below(count);
      cells.insert(cells.end(), rows.row(row), rows.row(row) + rows.features);
      labels.push_back(targets[row]);
    }
    const Matrix matrix(*library_, cells, rows.features);
    const Handle of_matrix = matrix.get();
    Handle booster = nullptr;
    if (of_matrix == nullptr || library_->matrix_set(of_matrix, "label", labels.data(), labels.size()) != 0 ||
        library_->booster_create(&of_matrix, 1, &booster) != 0)
      return trouble(*library_);
    boosters_.push_back(booster);
    for (const auto& [name, value] : kSettings)
      if (library_->booster_set(booster, name, value) != 0) return trouble(*library_);
    const std::string seed = std::to_string(random.below(1U << 30U));
    if (library_->booster_set(booster, "seed", seed.c_str()) != 0) return trouble(*library_);
    for (int round = 0; round < kRounds; ++round)
      if (library_->booster_update(booster, round, of_matrix) != 0) return trouble(*library_);
  }
  return {};
}

Result<void> BoostedTrees::predict(const FeatureRows& rows, std::vector<Estimate>& out) const {
  out.assign(rows.rows(), {});
  if (rows.rows() == 0 || boosters_.empty()) return {};
  const Matrix matrix(*library_, std::vector<float>(rows.codes.begin(), rows.codes.end()), rows.features);
  if (matrix.get() == nullptr) return trouble(*library_);
  std::vector<float> squares(rows.rows(), 0);
  const auto boosters = static_cast<float>(boosters_.size());
  for (Handle booster : boosters_) {
    Length count = 0;
    const float* values = nullptr;
    if (library_->booster_predict(booster, matrix.get(), 0, 0, 0, &count, &values) != 0 || count != rows.rows())
      return trouble(*library_);
    for (size_t i = 0; i < rows.rows(); ++i) {
      out[i].mean += values[i] / boosters;
      squares[i] += values[i] * values[i] / boosters;
    }
  }
  for (size_t i = 0; i < rows.rows(); ++i)
    out[i].deviation = std::sqrt(std::max(0.0F, squares[i] - out[i].mean * out[i].mean));
  return {};
}

}  // namespace jitune::search
