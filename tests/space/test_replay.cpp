// Measured spaces of others, where they are at hand: enumeration gives exactly the rows that were measured.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <set>
#include <sstream>

#include "base/json.hpp"
#include "space/support.hpp"

using namespace jitune;
using namespace jitune::space;

namespace {

std::string replace_all(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

/// The files' constraints are Python's: `or`, `and`, and chains such as `64 <= a*b <= 1024`.
std::string from_python(std::string text) {
  text = replace_all(replace_all(std::move(text), " or ", " || "), " and ", " && ");
  const size_t first = text.find("<=");
  const size_t second = first == std::string::npos ? first : text.find("<=", first + 2);
  if (second == std::string::npos) return text;
  const std::string middle = text.substr(first + 2, second - first - 2);
  return text.substr(0, second) + " && " + middle + text.substr(second);
}

void check_space(const std::string& path, size_t expected_rows) {
  CAPTURE(path);
  const test::ProgramResult program = test::run_program("zcat '" + path + "'");
  REQUIRE(program.exit_code == 0);
  std::stringstream lines(program.out);
  std::string line;
  REQUIRE(std::getline(lines, line));
  const Json header = Json::parse(line.substr(2));
  std::vector<Param> params;
  for (const auto& [name, values] : header["params"].items()) {
    params.push_back({name, {}});
    for (const Json& value : values) params.back().values.emplace_back(static_cast<long>(value.get<int64_t>()));
  }
  std::vector<std::string> require;
  for (const Json& constraint : header["constraints"]) require.push_back(from_python(constraint.get<std::string>()));

  REQUIRE(std::getline(lines, line));
  std::vector<std::string> names;
  std::stringstream head(line);
  for (std::string name; std::getline(head, name, ',') && name != "status";) names.push_back(name);
  std::set<Config> rows;
  while (std::getline(lines, line)) {
    std::stringstream cells(line);
    Config config;
    std::string cell;
    for (const std::string& name : names)
      if (std::getline(cells, cell, ',')) config.emplace(name, Value::parse(cell));
    rows.insert(config);
  }
  REQUIRE(rows.size() == expected_rows);

  const CpuTimer timer;
  const Instance instance = bind_or_fail(space_definition(params, require));
  const std::vector<Config> configs = instance.space().list(1'000'000);
  const double enumerated_ms = timer.ms();
  CHECK(configs.size() == expected_rows);
  CHECK(std::set<Config>(configs.begin(), configs.end()) == rows);
  CHECK(instance.space().count().valid == expected_rows);
  CHECK_MESSAGE(enumerated_ms < 1000, enumerated_ms << " ms");
  MESSAGE(to_string(instance.space().product())
          << " points, " << configs.size() << " valid, " << enumerated_ms << " ms");
}

}  // namespace

TEST_CASE("the space builder enumerates exactly the measured rows") {
  const char* directory = std::getenv("JITUNE_REPLAY_DIR");
  if (directory == nullptr) return test::skip("replay", "JITUNE_REPLAY_DIR is not set");
  const std::string base = std::string(directory) + "/";
  check_space(base + "conv15m_A4000.csv.gz", 4362);
  check_space(base + "dedisp_A4000.csv.gz", 11130);
  check_space(base + "convold_RTX_3090.csv.gz", 6768);
  check_space(base + "gemm_RTX_2080_Ti.csv.gz", 17956);
  check_space(base + "pnpoly_RTX_3060_laptop.csv.gz", 4092);
}
