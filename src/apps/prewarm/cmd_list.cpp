#include <cstdio>
#include <vector>

#include "apps/prewarm/commands.hpp"
#include "apps/prewarm/rows.hpp"
#include "apps/prewarm/table.hpp"
#include "apps/prewarm/text.hpp"

namespace jitune::prewarm {
namespace {

constexpr size_t kKeyDigits = 12;  // of a key, in tables

std::string list_text(const std::vector<store::KeyRow>& rows) {
  Table table({{"key"},
               {"kernel"},
               {"problem"},
               {"winner"},
               {"time", Table::Align::right},
               {"default", Table::Align::right},
               {"ratio", Table::Align::right},
               {"trials", Table::Align::right},
               {"arch"},
               {"NVRTC"},
               {"last study"},
               {"device"}});
  for (const store::KeyRow& row : rows) {
    const auto& winner = row.winner;
    table.add({row.key.sha256.substr(0, kKeyDigits), row.key.kernel, values_text(row.key.problem),
               winner ? values_text(winner->config) + (winner->pinned ? " (pinned)" : "") : "-",
               winner ? time_text(winner->median_us) : "-", winner ? time_text(winner->default_us) : "-",
               winner ? ratio_text(winner->default_us, winner->median_us) : "-",
               std::to_string(row.ok_trials) + "/" + std::to_string(row.trials), row.key.arch, row.key.nvrtc,
               row.last_outcome, row.device_name});
  }
  return table.text();
}

}  // namespace

Exit run_list(Session& session) {
  const std::unique_ptr<store::Store> store = session.open_store();
  const std::string& kernel = session.options().kernel;
  const std::vector<store::KeyRow> rows = must(store->list(kernel));
  if (session.options().json) {
    Json keys = Json::array();
    for (const store::KeyRow& row : rows) keys.push_back(row_json(row));
    print(document({{"database", store->path()}, {"keys", keys}}));
    return Exit::ok;
  }
  if (!rows.empty()) {
    print(list_text(rows));
    return Exit::ok;
  }
  const store::Store::Health health = must(store->health());
  print("nothing is tuned yet" + (kernel.empty() ? std::string() : " of kernel '" + kernel + "'") + " in " +
        store->path() + "; it holds " + count_text(static_cast<uint64_t>(health.artifacts), "artifact") + "\n");
  return Exit::ok;
}

}  // namespace jitune::prewarm
