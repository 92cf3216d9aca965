#include "acceptance_table.hpp"

#include <cstdio>
#include <cstdlib>

#include "measure/races.hpp"

AcceptanceTable::AcceptanceTable() {
  std::printf("%-5s %-66s %-12s %-12s %s\n", "id", "what", "bar", "value", "pass");
}

void AcceptanceTable::row(const std::string& id, const std::string& what, const std::string& bar,
                          const std::string& value, bool pass) {
  std::printf("%-5s %-66s %-12s %-12s %s\n", id.c_str(), what.c_str(), bar.c_str(), value.c_str(), pass ? "yes" : "NO");
  std::fflush(stdout);
  missed_ += !pass;
}

void AcceptanceTable::at_least(const std::string& id, const std::string& what, double bar, double value, int digits) {
  row(id, what, ">= " + text(bar, digits), text(value, digits), value >= bar);
}

void AcceptanceTable::at_most(const std::string& id, const std::string& what, double bar, double value, int digits) {
  row(id, what, "<= " + text(bar, digits), text(value, digits), value <= bar);
}

std::string AcceptanceTable::text(double value, int digits) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.*f", digits, value);
  return buffer;
}

namespace {

jitune::measure::test::RaceOutcome race(const std::string& directory, const std::string& space) {
  const auto outcome = jitune::measure::test::race_recorded(directory, space);
  if (!outcome) {
    std::fprintf(stderr, "%s/%s.times.csv.gz cannot be read\n", directory.c_str(), space.c_str());
    std::exit(2);
  }
  return *outcome;
}

}  // namespace

void measuring_rows(AcceptanceTable& table, const std::string& directory, const std::string& id) {
  namespace races = jitune::measure::test;
  if (id == "M1") {
    const auto& spaces = races::raced_spaces();
    double time_share = 0, regret = 0;
    for (const std::string& space : spaces) {
      const races::RaceOutcome outcome = race(directory, space);
      time_share += outcome.time_share / static_cast<double>(spaces.size());
      regret += outcome.regret / static_cast<double>(spaces.size());
    }
    table.at_most("M1", "racing on recorded launches: kernel time against 7 fixed runs", .35, time_share, 2);
    table.at_most("M1", "the same: regret of the choice, %", .6, 100 * regret, 2);
  } else if (id == "M2") {
    const double regret = race(directory, races::kHardSpace).regret;
    table.at_most("M2", std::string("racing on ") + races::kHardSpace + ": regret of the choice, %", 5, 100 * regret,
                  2);
  } else if (id == "M3") {
    const races::DuelOutcome duels = races::drifting_duels(400);
    table.at_least("M3", "duels under 5 % drift, true difference 1 %, noise 1 %: right, %", 95,
                   100.0 * duels.right / duels.duels, 1);
    table.at_most("M3", "the same: rounds of the longest", 15, duels.rounds, 0);
  }
}
