#include "apps/prewarm/problems.hpp"
#include "apps/prewarm/progress.hpp"
#include "apps/prewarm/table.hpp"
#include "apps/prewarm/text.hpp"
#include "support/support.hpp"

using namespace jitune;
using namespace jitune::prewarm;

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string problem_error(const std::string& text) {
  const auto spec = parse_problem(text);
  return spec ? "" : spec.error();
}

std::string table_error(const std::string& csv) {
  const auto specs = parse_problem_table(csv, "p.csv");
  return specs ? "" : specs.error();
}

}  // namespace

TEST_CASE("a problem is names and values of three kinds") {
  const auto spec = parse_problem("T=half, rows=4096 ,hidden=-8, flag=true");
  REQUIRE(spec);
  CHECK(spec->values == space::ProblemValues{{"T", Value("half")}, {"rows", 4096}, {"hidden", -8}, {"flag", true}});
  CHECK(spec->place == "--problem T=half, rows=4096 ,hidden=-8, flag=true");
}

TEST_CASE("second names of types become the first, own words stay") {
  const auto spec = parse_problem("A=float16,B=int,C=float64,D=row_major");
  REQUIRE(spec);
  CHECK(spec->values.at("A") == Value("half"));
  CHECK(spec->values.at("B") == Value("int32"));
  CHECK(spec->values.at("C") == Value("double"));
  CHECK(spec->values.at("D") == Value("row_major"));
}

TEST_CASE("a wrong problem is refused by the part that is wrong") {
  CHECK(contains(problem_error(""), "empty"));
  CHECK(contains(problem_error("T=half,rows"), "'rows' has no value"));
  CHECK(contains(problem_error("T=half,rows="), "'rows' has no value"));
  CHECK(contains(problem_error("T=half,,rows=1"), "between two commas"));
  CHECK(contains(problem_error("T=half,"), "between two commas, or at an end"));
  CHECK(contains(problem_error("=half"), "has no name"));
  CHECK(contains(problem_error("M=1,M=2"), "'M' is given twice"));
  CHECK(contains(problem_error("M=9223372036854775808"), "64 bits"));
  CHECK(contains(problem_error("M=1.5"), "'M', 1.5"));
  CHECK(contains(problem_error("M=1e3"), "'M', 1e3"));
  CHECK(contains(problem_error("M=1=2"), "'M', 1=2"));
  CHECK(problem_error("M=9223372036854775807,N=-9223372036854775808").empty());
}

TEST_CASE("a table of problems") {
  const auto specs = parse_problem_table(
      "\xEF\xBB\xBF# shapes of the model\r\nT,rows,hidden\r\nhalf, 1,8192\r\n\r\n\"bfloat16\",16,\"4096\"\n",
      "shapes.csv");
  REQUIRE(specs);
  REQUIRE(specs->size() == 2);
  CHECK((*specs)[0].values == space::ProblemValues{{"T", Value("half")}, {"rows", 1}, {"hidden", 8192}});
  CHECK((*specs)[0].place == "shapes.csv:3");
  CHECK((*specs)[0].text == "T=half,rows=1,hidden=8192");
  CHECK((*specs)[1].values == space::ProblemValues{{"T", Value("bfloat16")}, {"rows", 16}, {"hidden", 4096}});
  CHECK((*specs)[1].place == "shapes.csv:5");
}

TEST_CASE("a wrong table is refused with file and line") {
  CHECK(table_error("") == "p.csv: the file is empty; its first row holds the names of the problem values");
  CHECK(table_error("M,N\n") == "p.csv: there is a header row but no problem below it");
  CHECK(table_error("M,N\n1,2\n3\n") == "p.csv:3: 1 value, but the header row names 2: M and N");
  CHECK(table_error("M,N\n1,2,3\n") == "p.csv:2: 3 values, but the header row names 2: M and N");
  CHECK(contains(table_error("M,M\n1,2\n"), "p.csv:1: the header row names 'M' twice"));
  CHECK(contains(table_error("M,\n1,2\n"), "p.csv:1: the header row has an empty name"));
  CHECK(contains(table_error("M,N\n1,\n"), "p.csv:2: 'N' has no value"));
  CHECK(contains(table_error("M,N\n1,\"2\n"), "p.csv:2: a quote is not closed"));
  CHECK(contains(table_error("M,N\n1,2.5\n"), "p.csv:2: the value of 'N', 2.5"));
}

TEST_CASE("durations need a unit") {
  using namespace std::chrono_literals;
  CHECK(parse_duration("500ms").value() == 500ms);
  CHECK(parse_duration("30s").value() == 30s);
  CHECK(parse_duration(" 2 m ").value() == 2min);
  CHECK(parse_duration("1.5h").value() == 90min);
  for (const char* text : {"", "30", "s", "-1s", "30 sec", "1e3s", "nan", "inf s", "0s", "0.2ms", "1000000h", "1s2m"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_duration(text).ok());
  }
  CHECK(contains(parse_duration("30").error(), "'30' is not a duration; write a number and its unit: 500ms, 30s"));
}

TEST_CASE("numbers as people read them") {
  CHECK(duration_text(640) == "640 ms");
  CHECK(duration_text(999.6) == "1.0 s");
  CHECK(duration_text(12'340) == "12.3 s");
  CHECK(duration_text(99'960) == "1 min 40 s");
  CHECK(duration_text(120'000) == "2 min");
  CHECK(duration_text(7'500'000) == "2 h 5 min");
  CHECK(time_text(0) == "-");
  CHECK(time_text(12.314) == "12.31 us");
  CHECK(time_text(214.26) == "214.3 us");
  CHECK(time_text(15'150) == "15.15 ms");
  CHECK(time_text(2.5e6) == "2.50 s");
  CHECK(ratio_text(15, 12) == "1.25x");
  CHECK(ratio_text(0, 12) == "-");
  CHECK(bytes_text(1) == "1 byte");
  CHECK(bytes_text(1023) == "1023 bytes");
  CHECK(bytes_text(40'960) == "40.0 KiB");
  CHECK(bytes_text(150'000'000'000) == "139.7 GiB");
  CHECK(count_text(1, "config") == "1 config");
  CHECK(count_text(0, "config") == "0 configs");
  CHECK(join_words({}).empty());
  CHECK(join_words({"a"}) == "a");
  CHECK(join_words({"a", "b", "c"}) == "a, b and c");
}

TEST_CASE("a table lines its columns up and leaves no spaces at line ends") {
  Table table({{"kernel"}, {"time", Table::Align::right}, {"note"}});
  table.add({"gemm", "1.5 us", ""});
  table.add({"größe", "12.5 us", "x"});
  table.add({"k"});
  CHECK(table.text(1) ==
        " kernel     time  note\n"
        " gemm     1.5 us\n"
        " größe   12.5 us  x\n"
        " k\n");
}

TEST_CASE("time left goes by the pace and ends with the budget") {
  ProgressState state{.label = "k", .total = 100, .done = 0, .elapsed_ms = 1000};
  CHECK(time_left_ms(state) < 0);
  state.done = 25;
  CHECK(time_left_ms(state) == doctest::Approx(3000));
  state.budget_ms = 2500;
  CHECK(time_left_ms(state) == doctest::Approx(1500));
  state.elapsed_ms = 9000;
  CHECK(time_left_ms(state) == 0);
  state.done = 100;
  state.budget_ms = 0;
  CHECK(time_left_ms(state) == 0);
  state.total = 0;
  CHECK(time_left_ms(state) < 0);
}

TEST_CASE("a bar fits its line and says what matters first") {
  const ProgressState state{.label = "2/6 gemm T=half M=4096 N=4096 K=4096",
                            .total = 72,
                            .done = 36,
                            .failed = 2,
                            .best_us = 12.31,
                            .default_us = 15.14,
                            .elapsed_ms = 12'000};
  CHECK(bar_line(state, 200) ==
        "2/6 gemm T=half M=4096 N=4096 K=4096 [##########..........] 36/72 configs, 2 failed, best 12.31 us, default "
        "15.14 us, 12.0 s left");
  for (int width = 20; width < 200; ++width) {
    const std::string line = bar_line(state, width);
    CAPTURE(width);
    CHECK(line.size() <= static_cast<size_t>(width));
    CHECK(contains(line, "36/72 configs"));
  }
  CHECK(contains(bar_line(state, 80), "12.0 s left"));
  CHECK(plain_line(state) ==
        "2/6 gemm T=half M=4096 N=4096 K=4096: 36/72 configs, 2 failed, best 12.31 us, default 15.14 us, 12.0 s left "
        "(12.0 s so far)");
  CHECK(bar_line({.label = "k", .done = 3}, 80) == "k 3 configs");
  CHECK(bar_line({.label = "k", .done = 3, .failed = 1, .skipped = 2}, 80) == "k 3 configs, 1 failed, 2 skipped");
}
