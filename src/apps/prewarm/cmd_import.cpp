#include <filesystem>

#include "apps/prewarm/commands.hpp"
#include "apps/prewarm/foreign.hpp"
#include "apps/prewarm/rows.hpp"
#include "apps/prewarm/text.hpp"
#include "apps/prewarm/today.hpp"
#include "exchange/files.hpp"

namespace jitune::prewarm {
namespace {

using Refused = std::map<std::string, std::vector<std::string>>;

/// What one file brought.
struct Imported {
  std::string path, format;
  std::vector<store::WinnerRecord> records;
  Refused refused;
  std::vector<std::string> notes;
};

/// Holds winners against today's kernels; those that do not fit go to `refused`.
void check_today(const Today& today, exchange::Winners& winners, Imported& imported) {
  size_t not_told = 0;
  for (exchange::Item& item : winners.items) {
    const Today::Judged judged = today.judge(item.record);
    std::string reason;
    switch (judged.verdict) {
      case Today::Verdict::good:
      case Today::Verdict::invalid_default:  // no fault of the winner
        break;
      case Today::Verdict::cannot_tell:
        ++not_told;
        break;
      case Today::Verdict::unknown_kernel:
        reason = "no definition of kernel '" + item.record.key.kernel + "' was given";
        break;
      case Today::Verdict::stale:
        reason = "the key is not that of today's kernel: " + judged.why;
        break;
      case Today::Verdict::invalid_config:
        reason = "the config is not in today's space: " + judged.why;
        break;
    }
    if (reason.empty())
      imported.records.push_back(std::move(item.record));
    else
      imported.refused[reason].push_back(item.place);
  }
  if (not_told > 0)
    imported.notes.push_back(std::to_string(not_told) +
                             " not held against today's kernel: their buckets are not known");
}

Imported read_own(Session& session, const std::string& path, const Today& today) {
  auto winners = exchange::read_winners(path, &session.log());
  if (!winners) throw Stop(Exit::database, winners.error());
  Imported imported{path, exchange::to_string(winners->format), {}, std::move(winners->refused), {}};
  const std::string name = std::filesystem::path(path).filename().string();
  if (today.empty()) {
    for (exchange::Item& item : winners->items) imported.records.push_back(std::move(item.record));
    if (!imported.records.empty())
      imported.notes.push_back("not held against any kernel's space: no --definition was given");
  } else {
    check_today(today, *winners, imported);
  }
  for (store::WinnerRecord& record : imported.records)
    if (record.origin.empty()) record.origin = name;
  return imported;
}

Imported read_one(Session& session, const std::string& path, const Today& today) {
  const auto text = foreign_text(path);
  if (!text) return read_own(session, path, today);
  ForeignWinners foreign = read_foreign(session, path, *text, today);
  return {path, foreign.format, std::move(foreign.records), std::move(foreign.refused), std::move(foreign.notes)};
}

std::string report(const Imported& imported, const store::Store::TakenIn& taken) {
  std::string text = imported.path + " (" + imported.format + ")\n  " + std::to_string(taken.added) + " new, " +
                     std::to_string(taken.replaced) + " replaced a slower one";
  if (taken.kept_better > 0) text += ", " + std::to_string(taken.kept_better) + " not better than the stored one";
  if (taken.kept_pinned > 0) text += ", " + std::to_string(taken.kept_pinned) + " of a pinned key";
  text += "\n";
  for (const auto& [reason, places] : imported.refused)
    text += "  " + std::to_string(places.size()) + " refused: " + reason + " (" + places.front() +
            (places.size() > 1 ? ", ..." : "") + ")\n";
  for (const std::string& note : imported.notes) text += "  " + note + "\n";
  return text;
}

Json to_json(const Imported& imported, const store::Store::TakenIn& taken) {
  Json refused = Json::object();
  for (const auto& [reason, places] : imported.refused) refused[reason] = places.size();
  return {{"file", imported.path},      {"format", imported.format},        {"added", taken.added},
          {"replaced", taken.replaced}, {"kept_better", taken.kept_better}, {"kept_pinned", taken.kept_pinned},
          {"refused", refused},         {"notes", imported.notes}};
}

}  // namespace

Exit run_import(Session& session) {
  const Options& options = session.options();
  const Today today(options.definitions);
  std::vector<Imported> all;  // everything is read before anything is written
  for (const std::string& path : options.files) {
    must_exist(path);
    all.push_back(read_one(session, path, today));
  }
  const std::unique_ptr<store::Store> store = session.open_store_to_write(true);
  bool any_refused = false;
  Json files = Json::array();
  for (const Imported& imported : all) {
    const store::Store::TakenIn taken = must(store->take_in(imported.records));
    any_refused |= !imported.refused.empty();
    if (options.json)
      files.push_back(to_json(imported, taken));
    else
      print(report(imported, taken));
  }
  if (options.json) print(document({{"database", store->path()}, {"files", files}}));
  return any_refused ? Exit::partly : Exit::ok;
}

}  // namespace jitune::prewarm
