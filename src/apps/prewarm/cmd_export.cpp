#include <unistd.h>

#include "apps/prewarm/commands.hpp"
#include "apps/prewarm/rows.hpp"
#include "apps/prewarm/text.hpp"
#include "apps/prewarm/winners_out.hpp"
#include "base/files.hpp"
#include "exchange/files.hpp"

namespace jitune::prewarm {
namespace {

void keep_wanted(std::vector<store::WinnerRecord>& records, const Options& options) {
  std::erase_if(records, [&](const store::WinnerRecord& record) {
    return (!options.kernel.empty() && record.key.kernel != options.kernel) ||
           !record.key.sha256.starts_with(options.key);
  });
  if (!options.without_cubins) return;
  for (store::WinnerRecord& record : records) record.winner.artifact.reset();
}

/// Reads every file, each of any format. What is refused is added up.
std::vector<store::WinnerRecord> read_all(Session& session, std::map<std::string, std::vector<std::string>>& refused) {
  std::vector<store::WinnerRecord> records;
  for (const std::string& path : session.options().files) {
    must_exist(path);
    auto winners = exchange::read_winners(path, &session.log());
    if (!winners) throw Stop(Exit::database, winners.error());
    for (exchange::Item& item : winners->items) records.push_back(std::move(item.record));
    for (auto& [reason, places] : winners->refused)
      refused[reason].insert(refused[reason].end(), places.begin(), places.end());
  }
  return records;
}

Json refused_json(const std::map<std::string, std::vector<std::string>>& refused) {
  Json json = Json::object();
  for (const auto& [reason, places] : refused) json[reason] = places;
  return json;
}

}  // namespace

Exit run_export(Session& session) {
  const Options& options = session.options();
  const std::unique_ptr<store::Store> store = session.open_store();
  std::vector<store::WinnerRecord> records = must(store->records(!options.without_cubins));
  keep_wanted(records, options);
  if (records.empty()) throw Stop(Exit::partly, store->path() + " holds no winner that is asked for");
  const bool rules = options.format == "defaults" || (options.format.empty() && options.output.ends_with(".toml"));
  if (rules) {
    const std::string toml = defaults_toml(records, Today(options.definitions));
    if (options.output.empty()) {
      print(options.json ? document({{"winners", records.size()}, {"defaults", toml}}) : toml);
      return Exit::ok;
    }
    if (const auto written = write_file_atomically(options.output, toml); !written)
      throw Stop(Exit::usage, written.error());
    print(options.json ? document({{"winners", records.size()}, {"output", options.output}})
                       : count_text(records.size(), "default rule") + " in " + options.output + "\n");
    return Exit::ok;
  }
  if (options.output.empty())
    throw Stop(Exit::usage, "where to? --output winners.db, winners.csv, winners.json or a folder");
  const std::string done = write_winners(records, options.output, options.format);
  print(options.json ? document({{"winners", records.size()}, {"output", options.output}}) : done + "\n");
  return Exit::ok;
}

Exit run_merge(Session& session) {
  const Options& options = session.options();
  std::map<std::string, std::vector<std::string>> refused;
  std::vector<store::WinnerRecord> records = read_all(session, refused);
  size_t beaten = 0;
  records = store::reduce(std::move(records), &beaten);
  if (!options.force && access(options.output.c_str(), F_OK) == 0)
    throw Stop(Exit::usage, options.output + " exists; --force replaces it");
  const std::string done = write_winners(records, options.output, options.format);
  if (options.json) {
    print(document({{"winners", records.size()},
                    {"beaten", beaten},
                    {"refused", refused_json(refused)},
                    {"output", options.output}}));
  } else {
    print(done + "; " + count_text(beaten, "other") + " of the same keys did not win\n");
    if (!refused.empty()) print(exchange::refused_text(refused) + "\n");
  }
  return refused.empty() ? Exit::ok : Exit::partly;
}

}  // namespace jitune::prewarm
