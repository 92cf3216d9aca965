#include <cstdio>
#include <map>

#include "apps/prewarm/commands.hpp"
#include "apps/prewarm/remeasure.hpp"
#include "apps/prewarm/rows.hpp"
#include "apps/prewarm/table.hpp"
#include "apps/prewarm/text.hpp"
#include "exchange/files.hpp"

namespace jitune::prewarm {
namespace {

/// Something that is wrong with a winner of the baseline.
struct Finding {
  Exit exit = Exit::ok;
  std::string what, place, text;  ///< `regression`, `gemm M=4096`, what is wrong
};

/// One winner that was measured again.
struct Measured {
  const exchange::Item* item = nullptr;
  Remeasured now;
  bool regression = false;
};

struct Report {
  std::vector<Finding> findings;
  std::vector<Measured> measured;
  size_t checked = 0, not_told = 0, other_device = 0;
};

std::string label(const store::WinnerRecord& record) {
  return record.key.kernel + " " + values_text(record.key.problem);
}

void lint(const Today& today, const std::vector<exchange::Item>& items, Report& report,
          std::vector<std::pair<const exchange::Item*, space::Instance>>& good) {
  std::map<std::string, const exchange::Item*> seen;
  for (const exchange::Item& item : items) {
    ++report.checked;
    const auto [at, fresh] = seen.try_emplace(item.record.key.sha256, &item);
    if (!fresh) {
      report.findings.push_back({Exit::duplicate, "duplicate", item.place,
                                 label(item.record) + ": its key is at " + at->second->place + " too"});
      continue;
    }
    Today::Judged judged = today.judge(item.record);
    const std::string text = label(item.record) + ": " + judged.why;
    switch (judged.verdict) {
      case Today::Verdict::good:
        good.emplace_back(&item, std::move(*judged.instance));
        break;
      case Today::Verdict::cannot_tell:
        ++report.not_told;
        break;
      case Today::Verdict::unknown_kernel:
      case Today::Verdict::stale:
        report.findings.push_back({Exit::stale, "stale", item.place, text});
        break;
      case Today::Verdict::invalid_config:
        report.findings.push_back({Exit::invalid, "invalid winner", item.place, text});
        break;
      case Today::Verdict::invalid_default:
        report.findings.push_back({Exit::invalid, "invalid default", item.place, text});
        break;
    }
  }
}

/// `12.3 % slower than ...`, or "" where `now` is within the tolerance of `before`.
std::string slower(double now, double before, double tolerance, const std::string& than) {
  if (before <= 0 || now <= before * (1 + tolerance / 100)) return "";
  char text[64];
  std::snprintf(text, sizeof text, "%.1f %% slower than ", 100 * (now / before - 1));
  return text + than + " (" + time_text(before) + ")";
}

bool same_class(const key::TuningKey& key, const key::TuningKey& here) {
  return key.cc == here.cc && key.sm_count == here.sm_count && key.memory_gib == here.memory_gib &&
         key.l2_bytes == here.l2_bytes && key.max_clock_mhz == here.max_clock_mhz;
}

void measure(Session& session, const std::vector<std::pair<const exchange::Item*, space::Instance>>& good,
             Report& report) {
  const space::DeviceInfo device = session.gpu();
  tune::ServiceOptions options = session.service_options();
  options.store.path = "off";
  auto opened = tune::Services::open(std::move(options));
  if (!opened) throw Stop(Exit::database, opened.error());
  const double tolerance = session.options().tolerance;
  for (const auto& [item, instance] : good) {
    if (interrupted()) break;
    const store::WinnerRecord& record = item->record;
    const auto here = space::Instance::bind(
        std::shared_ptr<const space::Model>(std::shared_ptr<void>(), &instance.model()), instance.problem(), device);
    const auto key = here ? (*opened)->tuning_key(*here) : Result<key::TuningKey>(here.failure());
    if (!key || !same_class(record.key, *key)) {
      ++report.other_device;
      continue;
    }
    Measured measured{item, remeasure(**opened, instance, record, device), false};
    std::string why = measured.now.trouble;
    if (why.empty()) why = slower(measured.now.winner_us, record.winner.median_us, tolerance, "the baseline");
    if (why.empty()) why = slower(measured.now.winner_us, measured.now.default_us, tolerance, "the default config");
    measured.regression = !why.empty();
    if (measured.regression)
      report.findings.push_back({Exit::regression, "regression", item->place, label(record) + ": " + why});
    report.measured.push_back(std::move(measured));
  }
}

bool has_gpu(const Session& session) {
  try {
    (void)session.gpu();
    return true;
  } catch (const Stop& stop) {
    if (stop.code() != Exit::missing) throw;
    return false;
  }
}

/// The gravest: what makes the file itself doubtful goes first.
Exit exit_of(const Report& report) {
  for (const Exit exit : {Exit::duplicate, Exit::stale, Exit::invalid, Exit::regression})
    for (const Finding& finding : report.findings)
      if (finding.exit == exit) return exit;
  return interrupted() ? Exit::interrupted : Exit::ok;
}

std::string table_text(const Report& report) {
  Table table({{"kernel"},
               {"problem"},
               {"winner"},
               {"baseline", Table::Align::right},
               {"now", Table::Align::right},
               {"default now", Table::Align::right},
               {"verdict"}});
  for (const Measured& row : report.measured) {
    const store::WinnerRecord& record = row.item->record;
    table.add({record.key.kernel, values_text(record.key.problem), values_text(record.winner.config),
               time_text(record.winner.median_us), time_text(row.now.winner_us), time_text(row.now.default_us),
               row.regression ? "REGRESSION" : "ok"});
  }
  return table.empty() ? "" : table.text();
}

void print_report(const Report& report, const std::string& how) {
  print(table_text(report));
  for (const Finding& finding : report.findings)
    print(finding.what + ": " + finding.place + ": " + finding.text + "\n");
  std::string text = count_text(report.checked, "winner") + " checked, " + std::to_string(report.measured.size()) +
                     " measured again" + how + "; " + count_text(report.findings.size(), "finding");
  if (report.not_told > 0)
    text += "; of " + std::to_string(report.not_told) + " today's key is not known, since their buckets are not";
  if (report.other_device > 0) text += "; " + std::to_string(report.other_device) + " are of other devices";
  print(text + "\n");
}

Json to_json(const Report& report) {
  Json findings = Json::array(), measured = Json::array();
  for (const Finding& finding : report.findings)
    findings.push_back({{"what", finding.what},
                        {"place", finding.place},
                        {"text", finding.text},
                        {"exit_code", static_cast<int>(finding.exit)}});
  for (const Measured& row : report.measured)
    measured.push_back({{"key", row.item->record.key.sha256},
                        {"baseline_us", row.item->record.winner.median_us},
                        {"winner_us", row.now.winner_us},
                        {"default_us", row.now.default_us},
                        {"regression", row.regression}});
  return {{"checked", report.checked},
          {"not_told", report.not_told},
          {"other_device", report.other_device},
          {"findings", findings},
          {"measured", measured}};
}

}  // namespace

Exit run_check(Session& session) {
  const Options& options = session.options();
  const Today today(options.definitions);
  must_exist(options.baseline);
  auto winners = exchange::read_winners(options.baseline, &session.log());
  if (!winners) throw Stop(Exit::database, winners.error());
  std::erase_if(winners->items, [&](const exchange::Item& item) {
    return !options.kernel.empty() && item.record.key.kernel != options.kernel;
  });
  Report report;
  for (const auto& [reason, places] : winners->refused)
    for (const std::string& place : places) report.findings.push_back({Exit::invalid, "invalid winner", place, reason});
  std::vector<std::pair<const exchange::Item*, space::Instance>> good;
  lint(today, winners->items, report, good);
  std::string how = options.lint_only ? " (--lint-only)" : "";
  if (!options.lint_only && has_gpu(session))
    measure(session, good, report);
  else if (!options.lint_only)
    how = " (no GPU here)";
  const Exit exit = exit_of(report);
  if (options.json) {
    Json json = to_json(report);
    json["exit_code"] = static_cast<int>(exit);
    print(document(json));
  } else {
    print_report(report, how);
  }
  return exit;
}

}  // namespace jitune::prewarm
