#include <algorithm>

#include "apps/prewarm/commands.hpp"
#include "apps/prewarm/rows.hpp"
#include "apps/prewarm/text.hpp"
#include "apps/prewarm/today.hpp"

namespace jitune::prewarm {
namespace {

struct Answer {
  std::string label, key;
  std::string state;  ///< stored, compatible, near, unknown
  std::string text;   ///< a sentence for people
  std::string nearest;
  std::vector<std::string> differences;
};

std::string named(const store::KeyRow& row) {
  return row.key.sha256.substr(0, 12) + " (" + values_text(row.key.problem) + ", " + row.key.arch + ", NVRTC " +
         (row.key.nvrtc.empty() ? "none" : row.key.nvrtc) + (row.winner ? "" : ", no winner") + ")";
}

/// The stored key with the fewest other fields; of equals one that has a winner, then the first.
const store::KeyRow* nearest(const std::vector<store::KeyRow>& rows, const key::TuningKey& key) {
  const auto rank = [&](const store::KeyRow& row) {
    return std::make_pair(key::differences(row.key, key).size(), !row.winner);
  };
  const auto at =
      std::min_element(rows.begin(), rows.end(), [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  return at == rows.end() ? nullptr : &*at;
}

Answer explain(store::Store& store, const Task& task, const key::TuningKey& key) {
  Answer answer{task.label(), key.sha256, "", "", "", {}};
  const std::vector<store::KeyRow> rows = must(store.list(key.kernel));
  const store::KeyRow* row = nearest(rows, key);
  if (row == nullptr) {
    answer.state = "unknown";
    answer.text = "it would be tuned: the database knows no key of kernel '" + key.kernel + "'";
    return answer;
  }
  answer.nearest = row->key.sha256;
  answer.differences = key::differences(row->key, key);
  if (answer.differences.empty()) {
    answer.state = row->winner ? "stored" : "near";
    answer.text = row->winner ? "it would not be tuned again: its winner is stored, " + values_text(row->winner->config)
                              : "it would be tuned: its key is there but no winner (last study: " +
                                    (row->last_outcome.empty() ? "none" : row->last_outcome) + ")";
    return answer;
  }
  const auto compatible = must(store.find_compatible(key));
  answer.state = compatible ? "compatible" : "near";
  answer.text =
      compatible ? "track tune would tune it again, lookup would serve the winner found with NVRTC " + compatible->nvrtc
                 : "it would be tuned again: " + field_names(answer.differences) + " of the nearest stored key " +
                       named(*row) + (answer.differences.size() == 1 ? " differs" : " differ");
  return answer;
}

std::string text_of(const Answer& answer) {
  std::string text = answer.label + "\n  key " + answer.key.substr(0, 12) + ": " + answer.text + "\n";
  if (!answer.differences.empty()) text += "  stored / now\n";
  for (const std::string& line : answer.differences) text += "    " + line + "\n";
  return text;
}

}  // namespace

Exit run_why(Session& session) {
  const std::vector<Work> work = session.load();
  const std::vector<Task> tasks = session.tasks(work, session.gpu_or_arch());
  const std::unique_ptr<store::Store> store = session.open_store();
  tune::ServiceOptions options = session.service_options();
  options.store.path = "off";
  auto services = tune::Services::open(std::move(options));
  if (!services) throw Stop(Exit::database, services.error());
  Json answers = Json::array();
  for (const Task& task : tasks) {
    const auto key = (*services)->tuning_key(task.instance);
    if (!key) throw Stop(Exit::definition, key.error());
    const Answer answer = explain(*store, task, *key);
    if (session.options().json)
      answers.push_back({{"problem", answer.label},
                         {"key", answer.key},
                         {"state", answer.state},
                         {"why", answer.text},
                         {"nearest", answer.nearest},
                         {"differences", answer.differences}});
    else
      print(text_of(answer));
  }
  if (session.options().json) print(document({{"database", store->path()}, {"answers", answers}}));
  return Exit::ok;
}

}  // namespace jitune::prewarm
