#pragma once

#include <string>

/// Prints bars beside what was reached: id, what, bar, value, pass; one a line.
class AcceptanceTable {
 public:
  AcceptanceTable();
  void row(const std::string& id, const std::string& what, const std::string& bar, const std::string& value, bool pass);
  void at_least(const std::string& id, const std::string& what, double bar, double value, int digits = 3);
  void at_most(const std::string& id, const std::string& what, double bar, double value, int digits = 3);
  size_t missed() const { return missed_; }

  static std::string text(double value, int digits = 3);

 private:
  size_t missed_ = 0;
};

/// M1 to M3: what the measuring room reaches on the launches recorded in `directory`. `id` is one of them.
void measuring_rows(AcceptanceTable& table, const std::string& directory, const std::string& id);
