#include "apps/prewarm/failures.hpp"

#include <algorithm>
#include <vector>

#include "apps/prewarm/kernels.hpp"
#include "apps/prewarm/text.hpp"

namespace jitune::prewarm {
namespace {

/// The line of a log that says what is wrong: the first with `error`, else the first that is not empty.
std::string first_complaint(const std::string& log, const std::string& status) {
  std::string first;
  for (size_t begin = 0; begin < log.size();) {
    const size_t end = std::min(log.find('\n', begin), log.size());
    const std::string line(trim(std::string_view(log).substr(begin, end - begin)));
    if (line.find("error") != std::string::npos) return line;
    if (first.empty()) first = line;
    begin = end + 1;
  }
  return first.empty() ? "no message (" + status + ")" : first;
}

}  // namespace

void Failures::add(const std::string& status, const std::string& message, const std::string& config) {
  const std::string line = first_complaint(message, status);
  Group& group = groups_[{status, line}];
  if (group.count++ == 0) group = {1, status, line, config};
}

std::string Failures::text() const {
  std::vector<const Group*> order;
  for (const auto& [key, group] : groups_) order.push_back(&group);
  std::stable_sort(order.begin(), order.end(), [](const Group* a, const Group* b) { return a->count > b->count; });
  std::string text;
  for (size_t i = 0; i < order.size() && i < kShown; ++i)
    text += "  " + std::to_string(order[i]->count) + " failed (" + order[i]->status + "): " + order[i]->message +
            "\n      for example " + values_text(order[i]->example) + "\n";
  if (order.size() <= kShown) return text;
  uint64_t rest = 0;
  for (size_t i = kShown; i < order.size(); ++i) rest += order[i]->count;
  return text + "  " + std::to_string(rest) + " failed in " + std::to_string(order.size() - kShown) +
         " more ways; --json lists all\n";
}

Json Failures::json() const {
  Json list = Json::array();
  for (const auto& [key, group] : groups_)
    list.push_back({{"count", group.count},
                    {"status", group.status},
                    {"message", group.message},
                    {"example", Json::parse(group.example, nullptr, false)}});
  return list;
}

}  // namespace jitune::prewarm
