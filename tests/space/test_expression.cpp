// The expression language: what it computes, against C++'s own results, and what it refuses, with the column.
#include <limits>
#include <optional>
#include <random>

#include "space/expression.hpp"
#include "support/support.hpp"

using namespace jitune;
using namespace jitune::space;

namespace {

struct Fixture {
  Symbols symbols;
  std::vector<Cell> cells;

  Fixture() {
    set("A", 7);
    set("B", -3);
    set("Z", 0);
    set("BLOCK", 256);
    set("device.cc", 90);
    set_word("T", "half");
    set_word("LAYOUT", "row");
    symbols.slot("LATER");
    cells.resize(static_cast<size_t>(symbols.size()));
  }
  void set(const std::string& name, int64_t value) { put(name, {Cell::Kind::number, value}); }
  void set_word(const std::string& name, const std::string& word) { put(name, {Cell::Kind::word, symbols.word(word)}); }
  void put(const std::string& name, Cell cell) {
    const auto slot = static_cast<size_t>(symbols.slot(name));
    if (cells.size() <= slot) cells.resize(slot + 1);
    cells[slot] = cell;
  }
  Evaluation run(const std::string& text) { return Expression::parse(text, symbols).evaluate(cells); }
  int64_t value(const std::string& text) {
    const Evaluation result = run(text);
    CHECK_MESSAGE(result.status == EvalStatus::ok, text << ": " << to_string(result.status));
    return result.value;
  }
};

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

}  // namespace

// NOLINTBEGIN(misc-redundant-expression,bugprone-*,readability-*): every row is the same text for both compilers.
#define SAME(expression) CHECK_MESSAGE(fixture.value(#expression) == static_cast<int64_t>(expression), #expression)

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wparentheses"
#pragma GCC diagnostic ignored "-Wbool-operation"
TEST_CASE("precedence and operators are C's") {
  Fixture fixture;
  [[maybe_unused]] const int64_t A = 7, B = -3, Z = 0, BLOCK = 256;
  SAME(1 + 2 * 3);
  SAME((1 + 2) * 3);
  SAME(20 - 5 - 3);
  SAME(100 / 5 / 2);
  SAME(100 / 7 * 7 + 100 % 7);
  SAME(B / 2);
  SAME(B % 2);
  SAME(-A % 4);
  SAME(-A / 4);
  SAME(1 << 2 + 3);
  SAME(1 + 1 << 4);
  SAME(256 >> 2 >> 1);
  SAME(B >> 1);
  SAME(1 | 2 ^ 3 & 4);
  SAME(6 & 3 ^ 5 | 8);
  SAME(A & 3 == 3);
  SAME(A | B == 0);
  SAME(1 || 0 && 0);
  SAME(0 && 1 || 1);
  SAME(!A || !Z);
  SAME(!0 + !5);
  SAME(~A & 0xff);
  SAME(- -A);
  SAME(-~A);
  SAME(+A);
  SAME(A < BLOCK && B < Z);
  SAME(A <= 7);
  SAME(A >= 8);
  SAME(A > B);
  SAME(A == 7);
  SAME(A != 7);
  SAME((A + 1 > B * 2) == true);
  SAME((A < BLOCK) == (B < Z));
  SAME(A ? B : Z);
  SAME(Z ? 1 : A ? 2 : 3);
  SAME(A > 3 ? A > 5 ? 50 : 40 : 30);
  SAME(1 ? 2 : 3 + 10);
  SAME(Z || B);
  SAME(A && B);
  SAME(A && Z);
  SAME(0x10 + 0xFf);
  SAME(BLOCK / 32 * 4);
  SAME(5 && 6);
  SAME(0 || 7);
}
#pragma GCC diagnostic pop
// NOLINTEND

TEST_CASE("functions") {
  Fixture fixture;
  const std::pair<const char*, int64_t> rows[] = {{"ceil_div(10, 3)", 4},
                                                  {"ceil_div(9, 3)", 3},
                                                  {"ceil_div(0, 3)", 0},
                                                  {"ceil_div(-10, 3)", -3},
                                                  {"min(3, 1, 2)", 1},
                                                  {"max(3, 1, 2, 9)", 9},
                                                  {"min(A, B)", -3},
                                                  {"pow2_ceil(0)", 1},
                                                  {"pow2_ceil(1)", 1},
                                                  {"pow2_ceil(5)", 8},
                                                  {"pow2_ceil(64)", 64},
                                                  {"pow2_ceil(4611686018427387904)", int64_t{1} << 62},
                                                  {"pow2_floor(5)", 4},
                                                  {"pow2_floor(9223372036854775807)", int64_t{1} << 62},
                                                  {"log2(1)", 0},
                                                  {"log2(255)", 7},
                                                  {"log2(256)", 8},
                                                  {"abs(B)", 3},
                                                  {"align_up(10, 16)", 16},
                                                  {"align_up(32, 16)", 32},
                                                  {"sizeof(T)", 2},
                                                  {"sizeof(double)", 8},
                                                  {"sizeof(bfloat16) + sizeof(int)", 6},
                                                  {"sizeof(A > 3 ? float : half)", 4},
                                                  {"sizeof('fp8_e4m3')", 1},
                                                  {"16 / sizeof(T)", 8},
                                                  {"device.cc >= 80", 1},
                                                  {"max(1, min(2, 3) * 4)", 8}};
  for (const auto& [text, expected] : rows) CHECK_MESSAGE(fixture.value(text) == expected, text);
}

TEST_CASE("words: compared, chosen, and second names mean the same") {
  Fixture fixture;
  CHECK(fixture.value("T == half") == 1);
  CHECK(fixture.value("T == float16") == 1);
  CHECK(fixture.value("T != float") == 1);
  CHECK(fixture.value("LAYOUT == 'row'") == 1);
  CHECK(fixture.value("LAYOUT == 'column'") == 0);
  CHECK(fixture.value("LAYOUT != 'column' && T == half") == 1);
  const Evaluation chosen = fixture.run("A > 3 ? float32 : half");
  CHECK(chosen.is_word);
  CHECK(fixture.symbols.word_text(chosen.value) == "float");
  CHECK(fixture.run("T").is_word);
}

TEST_CASE("&&, || and ?: evaluate only what they need") {
  Fixture fixture;
  CHECK(fixture.value("Z == 0 || 8 / Z > 1") == 1);
  CHECK(fixture.value("Z != 0 && 8 / Z > 1") == 0);
  CHECK(fixture.value("Z ? 8 / Z : 5") == 5);
  CHECK(fixture.value("A ? 5 : LATER") == 5);
  CHECK(fixture.run("Z == 1 || 8 / Z > 1").status == EvalStatus::division_by_zero);
}

TEST_CASE("arithmetic is checked") {
  Fixture fixture;
  const std::pair<const char*, EvalStatus> rows[] = {
      {"9223372036854775807 + 1", EvalStatus::overflow},
      {"-9223372036854775808 - 1", EvalStatus::overflow},
      {"4611686018427387904 * 2", EvalStatus::overflow},
      {"-(-9223372036854775808)", EvalStatus::overflow},
      {"-9223372036854775808 / -1", EvalStatus::overflow},
      {"-9223372036854775808 % -1", EvalStatus::overflow},
      {"abs(-9223372036854775808)", EvalStatus::overflow},
      {"1 << 63", EvalStatus::overflow},
      {"-1 << 63", EvalStatus::ok},
      {"3 << 62", EvalStatus::overflow},
      {"1 << 62", EvalStatus::ok},
      {"1 << 64", EvalStatus::out_of_range},
      {"1 << -1", EvalStatus::out_of_range},
      {"1 >> 64", EvalStatus::out_of_range},
      {"A / Z", EvalStatus::division_by_zero},
      {"A % Z", EvalStatus::division_by_zero},
      {"ceil_div(A, Z)", EvalStatus::division_by_zero},
      {"ceil_div(A, B)", EvalStatus::out_of_range},
      {"align_up(A, Z)", EvalStatus::division_by_zero},
      {"align_up(9223372036854775807, 2)", EvalStatus::overflow},
      {"pow2_ceil(B)", EvalStatus::out_of_range},
      {"pow2_ceil(4611686018427387905)", EvalStatus::overflow},
      {"pow2_floor(Z)", EvalStatus::out_of_range},
      {"log2(Z)", EvalStatus::out_of_range},
      {"LATER + 1", EvalStatus::unset},
      {"T == 3", EvalStatus::not_a_number},
      {"T + 1", EvalStatus::not_a_number},
      {"T && 1", EvalStatus::not_a_number},
      {"T ? 1 : 2", EvalStatus::not_a_number},
      {"sizeof(A)", EvalStatus::not_a_type},
      {"sizeof(LAYOUT)", EvalStatus::not_a_type},
      {"-9223372036854775808", EvalStatus::ok},
  };
  for (const auto& [text, status] : rows) {
    CAPTURE(text);
    const Evaluation result = fixture.run(text);
    CHECK_MESSAGE(result.status == status, to_string(result.status));
  }
  CHECK(fixture.value("-9223372036854775808") == kMin);
  CHECK(fixture.value("9223372036854775807") == kMax);
  CHECK(Expression().evaluate({}).status == EvalStatus::unset);
}

TEST_CASE("mistakes are reported with the column") {
  struct Row {
    const char* text;
    int column;
    const char* part;
  };
  const Row rows[] = {
      {"", 1, "empty"},
      {"   ", 1, "empty"},
      {"A +", 4, "ends where a value"},
      {"A + * B", 5, "before '*'"},
      {"(A + B", 7, "')' is missing"},
      {"A B", 3, "operator was expected before 'B'"},
      {"A = B", 3, "=="},
      {"A and B", 3, "&&"},
      {"A or B", 3, "||"},
      {"not A", 1, "!"},
      {"1 < A < 3", 7, "chained"},
      {"64 <= A * B <= 1024", 13, "chained"},
      {"A == B == Z", 8, "chained"},
      {"A == B < Z", 3, "chained"},
      {"A < B != Z", 7, "chained"},
      {"BLOK * 4", 1, "did you mean 'BLOCK'"},
      {"4 * block", 5, "did you mean 'BLOCK'"},
      {"device.ccc", 1, "did you mean 'device.cc'"},
      {"device.foo", 1, "there are device.cc"},
      {"frob(A)", 1, "no function"},
      {"celi_div(A, B)", 1, "did you mean 'ceil_div'"},
      {"ceil_div(A)", 1, "takes 2"},
      {"min(A)", 1, "two or more"},
      {"log2(A, B)", 1, "takes 1"},
      {"sizeof(A, B)", 9, "')' is missing"},
      {"sizeof(4)", 8, "not a number"},
      {"1.5 * A", 2, "only integers"},
      {"010", 1, "octal"},
      {"12u", 3, "suffixes"},
      {"0x", 1, "hexadecimal"},
      {"1'000", 2, "suffixes"},
      {"9223372036854775808", 1, "64-bit"},
      {"99999999999999999999", 1, "64-bit"},
      {"0x10000000000000000", 1, "64-bit"},
      {"A ? B", 6, "':' is missing"},
      {"A $ B", 3, "character"},
      {"'row", 1, "closing '"},
      {"''", 1, "empty"},
      {"half + 1", 1, "word"},
      {"'row' < 3", 1, "word"},
      {"half == 3", 1, "word"},
      {"!half", 2, "word"},
      {"half && 1", 1, "word"},
      {"row == LAYOUT", 1, "single quotes"},
      {"A,B", 2, "operator"},
      {"A ; B", 3, "character"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.text);
    Fixture fixture;
    try {
      Expression::parse(row.text, fixture.symbols);
      FAIL("it parsed");
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::bad_expression);
      CHECK(error.text() == row.text);
      CHECK_MESSAGE(error.column() == row.column, error.what());
      CHECK_MESSAGE(error.message().find(row.part) != std::string::npos, error.message());
    }
  }
}

TEST_CASE("depth and length are bounded, long chains are not deep") {
  Fixture fixture;
  const auto nested = [](int depth) {
    return std::string(static_cast<size_t>(depth), '(') + "A" + std::string(static_cast<size_t>(depth), ')');
  };
  CHECK(fixture.value(nested(90)) == 7);
  CHECK_THROWS_AS(Expression::parse(nested(101), fixture.symbols), Error);
  CHECK_THROWS_AS(Expression::parse(nested(2000), fixture.symbols), Error);
  CHECK_THROWS_AS(Expression::parse(std::string(3000, '-') + "A", fixture.symbols), Error);
  std::string chain = "A", spiral = "A";
  for (int i = 0; i < 900; ++i) chain += " + A";
  CHECK(fixture.value(chain) == 901 * 7);
  CHECK_THROWS_AS(Expression::parse(chain + chain + chain, fixture.symbols), Error);
  // As many open operands as nesting allows: refused, not run over.
  for (int i = 0; i < 95; ++i) spiral = "1|1^1&1+1*(" + spiral + ")";
  CHECK_THROWS_AS(Expression::parse(spiral, fixture.symbols), Error);
}

TEST_CASE("an expression knows which names it reads, and what they must be") {
  Fixture fixture;
  const Expression expression =
      Expression::parse("sizeof(T) * BLOCK + (Z ? A : BLOCK) + (LAYOUT == 'row')", fixture.symbols);
  std::vector<std::string> names, numbers, types;
  for (const int slot : expression.slots()) names.push_back(fixture.symbols.name(slot));
  for (const int slot : expression.number_slots()) numbers.push_back(fixture.symbols.name(slot));
  for (const int slot : expression.type_slots()) types.push_back(fixture.symbols.name(slot));
  CHECK(names == std::vector<std::string>{"A", "Z", "BLOCK", "T", "LAYOUT"});
  CHECK(numbers == std::vector<std::string>{"Z", "BLOCK"});
  CHECK(types == std::vector<std::string>{"T"});
  CHECK(expression.text().rfind("sizeof(T)", 0) == 0);
  CHECK_FALSE(expression.empty());
  CHECK(Expression().empty());
}

TEST_CASE("a filter hides names, and its reason is reported at the name") {
  Fixture fixture;
  const Expression::NameFilter filter = [&](int slot) -> std::string {
    if (fixture.symbols.name(slot) == "A") return "is for other places";
    return fixture.symbols.name(slot) == "B" ? "unknown" : "";
  };
  CHECK_NOTHROW(Expression::parse("BLOCK + Z", fixture.symbols, filter));
  try {
    Expression::parse("BLOCK + A", fixture.symbols, filter);
    FAIL("it parsed");
  } catch (const Error& error) {
    CHECK(error.message() == "'A' is for other places");
    CHECK(error.column() == 9);
  }
  CHECK_THROWS_WITH_AS(Expression::parse("B", fixture.symbols, filter), doctest::Contains("not known"), Error);
}

namespace {

/// A random expression with its value computed beside it in 128 bits; nothing where it is not defined.
struct Random {
  std::mt19937_64 engine;
  uint64_t below(uint64_t bound) { return engine() % bound; }

  std::pair<std::string, std::optional<__int128>> make(int depth) {
    if (depth == 0) {
      const auto number = static_cast<int64_t>(below(50));
      return {std::to_string(number), number};
    }
    auto [left, a] = make(depth - 1);
    auto [right, b] = make(depth - 1);
    static const char* const kOps[] = {"+", "-", "*", "/", "%", "<", "==", "&", "|", "^"};
    const uint64_t op = below(10);
    std::optional<__int128> result;
    if (a && b) {
      switch (op) {
        case 0:
          result = *a + *b;
          break;
        case 1:
          result = *a - *b;
          break;
        case 2:
          result = *a * *b;
          break;
        case 3:
          if (*b != 0) result = *a / *b;
          break;
        case 4:
          if (*b != 0) result = *a % *b;
          break;
        case 5:
          result = *a < *b;
          break;
        case 6:
          result = *a == *b;
          break;
        case 7:
          result = *a & *b;
          break;
        case 8:
          result = *a | *b;
          break;
        default:
          result = *a ^ *b;
      }
      if (result && (*result > kMax || *result < kMin)) result.reset();
    }
    return {"(" + left + " " + kOps[op] + " " + right + ")", result};
  }
};

}  // namespace

TEST_CASE("random expressions agree with 128-bit arithmetic") {
  Fixture fixture;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Random random{std::mt19937_64(seed)};
    const auto [text, expected] = random.make(5);
    const Evaluation result = fixture.run(text);
    REQUIRE_MESSAGE((result.status == EvalStatus::ok) == expected.has_value(), text);
    if (expected) REQUIRE_MESSAGE(result.value == static_cast<int64_t>(*expected), text);
  }
}
