#include "space/checks.hpp"

#include <algorithm>

namespace jitune::space {
namespace {

constexpr std::array<int64_t, 3> kMaxBlock{1024, 1024, 64};
constexpr std::array<int64_t, 3> kMaxGrid{2147483647, 65535, 65535};
constexpr int64_t kMaxCluster = 16;  // more than 8 needs the non-portable attribute, which whoever launches sets

/// Evaluates `expressions` to positive numbers, or says why not.
Verdict numbers(const std::vector<const Expression*>& expressions, std::vector<Cell>& cells,
                std::array<int64_t, 8>& out) {
  for (size_t i = 0; i < expressions.size(); ++i) {
    const Evaluation value = expressions[i]->evaluate(cells);
    if (value.status != EvalStatus::ok) return {value.status, false, expressions[i]};
    if (value.is_word) return {EvalStatus::not_a_number, false, expressions[i]};
    out[i] = value.value;
  }
  return {};
}

bool within(const std::array<int64_t, 8>& values, size_t count, const std::array<int64_t, 3>& limits) {
  for (size_t i = 0; i < count; ++i)
    if (values[i] < 1 || values[i] > limits[i]) return false;
  return true;
}

/// The product, or more than `limit` when it is beyond it.
int64_t product(const std::array<int64_t, 8>& values, size_t count, int64_t limit) {
  int64_t result = 1;
  for (size_t i = 0; i < count; ++i) {
    if (values[i] < 1 || values[i] > limit) return limit + 1;
    result *= values[i];
    if (result > limit) return limit + 1;
  }
  return result;
}

std::vector<const Expression*> pointers(const std::vector<Expression>& expressions) {
  std::vector<const Expression*> list;
  for (const Expression& expression : expressions) list.push_back(&expression);
  return list;
}

}  // namespace

Verdict Check::run(std::vector<Cell>& cells) const {
  std::array<int64_t, 8> values{};
  if (kind == Kind::derived) {
    const Evaluation value = expressions[0]->evaluate(cells);
    if (value.status != EvalStatus::ok) return {value.status, false, expressions[0]};
    cells[static_cast<size_t>(slot)] = {value.is_word ? Cell::Kind::word : Cell::Kind::number, value.value};
    return {};
  }
  if (const Verdict verdict = numbers(expressions, cells, values); verdict.status != EvalStatus::ok) return verdict;
  const size_t count = expressions.size();
  Verdict verdict;
  switch (kind) {
    case Kind::require:
      verdict.passed = values[0] != 0;
      break;
    case Kind::block_size:
      verdict.passed = product(values, count, limit) <= limit;
      break;
    case Kind::block_dims:
      verdict.passed = within(values, count, kMaxBlock);
      break;
    case Kind::grid_dims:
      verdict.passed = within(values, count, kMaxGrid);
      break;
    case Kind::shared_bytes:
      verdict.passed = values[0] >= 0 && values[0] <= limit;
      break;
    case Kind::cluster_size:
      verdict.passed = product(values, count, limit) <= limit;
      break;
    case Kind::cluster_divides:
      for (size_t i = split; i < count; ++i) {
        const size_t dimension = i - split;
        const int64_t grid = dimension < split ? values[dimension] : 1;
        if (values[i] < 1 || grid % values[i] != 0) verdict.passed = false;
      }
      break;
    case Kind::cooperative:
      verdict.passed = false;
      break;
    case Kind::derived:
      break;
  }
  return verdict;
}

std::vector<Check> launch_checks(const LaunchExpressions& launch, const DeviceInfo& device,
                                 const std::vector<bool>& later) {
  std::vector<Check> checks;
  const auto add = [&](Check::Kind kind, const std::string& name, std::vector<const Expression*> expressions,
                       int64_t limit, size_t split = 0) {
    for (const Expression* expression : expressions)
      for (const int slot : expression->slots())
        if (later[static_cast<size_t>(slot)]) return;
    checks.push_back({kind, "launch: " + name, std::move(expressions), -1, limit, split});
  };
  const int64_t threads = device.max_threads_per_block;
  add(Check::Kind::block_dims, "block dimensions from 1 to 1024, 1024, 64", pointers(launch.block), 0);
  add(Check::Kind::block_size, "block size <= " + std::to_string(threads), pointers(launch.block), threads);
  add(Check::Kind::grid_dims, "grid dimensions from 1 to 2147483647, 65535, 65535", pointers(launch.grid), 0);
  add(Check::Kind::shared_bytes, "shared_bytes <= " + std::to_string(device.smem_optin_bytes), {&launch.shared_bytes},
      device.smem_optin_bytes);
  if (!launch.cluster.empty()) {
    // Clusters came with compute capability 9.0.
    const int64_t limit = device.cc_major >= 9 ? kMaxCluster : 0;
    add(Check::Kind::cluster_size,
        limit != 0 ? "cluster size <= " + std::to_string(limit) : "clusters need compute capability 9.0",
        pointers(launch.cluster), limit);
    std::vector<const Expression*> both = pointers(launch.grid);
    const size_t split = both.size();
    for (const Expression& expression : launch.cluster) both.push_back(&expression);
    add(Check::Kind::cluster_divides, "grid divisible by cluster", both, 0, split);
  }
  if (launch.cooperative && !device.cooperative)
    checks.push_back({Check::Kind::cooperative, "launch: the device has no cooperative launch", {}, -1, 0, 0});
  return checks;
}

std::string describe(const Check& check, const Verdict& verdict) {
  if (verdict.status == EvalStatus::ok || verdict.failed == nullptr) return check.name;
  return std::string(to_string(verdict.status)) + " in " +
         (check.kind == Check::Kind::derived ? check.name : verdict.failed->text());
}

}  // namespace jitune::space
