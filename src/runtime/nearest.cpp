#include "runtime/nearest.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace jitune::runtime {
namespace {

constexpr double kBound = 1;  // log2: at most twice in each dimension

}  // namespace

std::optional<double> distance(const space::ProblemValues& a, const space::ProblemValues& b) {
  if (a.size() != b.size()) return std::nullopt;
  double sum = 0;
  for (const auto& [name, value] : a) {
    const auto found = b.find(name);
    if (found == b.end()) return std::nullopt;
    const Value& other = found->second;
    if (value == other) continue;
    if (value.is_word() || other.is_word() || value.is_bool() || other.is_bool()) return std::nullopt;
    if (value.as_int() <= 0 || other.as_int() <= 0) return std::nullopt;
    const double ratio = std::log2(static_cast<double>(value.as_int()) / static_cast<double>(other.as_int()));
    if (std::abs(ratio) > kBound + 1e-9) return std::nullopt;
    sum += ratio * ratio;
  }
  return std::sqrt(sum);
}

std::vector<store::KeyRow> nearest_first(std::vector<store::KeyRow> related, const key::TuningKey& key,
                                         const space::ProblemValues& problem, bool any_nvrtc) {
  std::vector<std::pair<double, store::KeyRow>> ranked;
  for (auto& row : related) {
    const bool same = row.winner && row.key.options == key.options && row.key.launch_sha256 == key.launch_sha256 &&
                      row.key.environment == key.environment && (any_nvrtc || row.key.nvrtc == key.nvrtc);
    if (!same) continue;
    const auto values = space::parse_values(row.key.problem);
    if (!values) continue;
    if (const auto far = distance(problem, *values)) ranked.emplace_back(*far, std::move(row));
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.second.key.problem < b.second.key.problem;
  });
  std::vector<store::KeyRow> rows;
  for (auto& [far, row] : ranked) rows.push_back(std::move(row));
  return rows;
}

}  // namespace jitune::runtime
