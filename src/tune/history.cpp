#include "tune/history.hpp"

#include "space/config.hpp"
#include "tune/study.hpp"

namespace jitune::tune {

History in_one_unit(const std::map<std::string, store::TrialRow>& rows) {
  History history;
  int64_t newest = -1;
  for (const auto& [text, row] : rows)
    if (row.default_us > 0 && row.study > newest) {
      newest = row.study;
      history.default_us = row.default_us;
    }
  for (const auto& [text, row] : rows) {
    auto config = space::parse_values(text);
    if (!config) continue;
    search::Told told = told_of(row);
    if (row.default_us > 0) told.time_us *= history.default_us / row.default_us;
    history.told.emplace_back(std::move(*config), told);
  }
  return history;
}

}  // namespace jitune::tune
