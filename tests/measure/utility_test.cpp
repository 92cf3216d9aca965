#include "measure/utility.hpp"

#include <cmath>
#include <cstring>
#include <set>

#include "measure/buffers.hpp"
#include "support/support.hpp"
#include "worker.hpp"

using namespace jitune;
using namespace jitune::measure;
using namespace jitune::measure::test;

namespace {

/// The worker's kernels on memory that is host memory here.
struct Bench {
  Bench() {
    fake();
    driver = *gpu::driver();
    REQUIRE(gpu::use_primary_context(*driver, 0));
    REQUIRE_FALSE(utility.load(*driver, fake_cuda::utility_cubin(), nullptr));
    REQUIRE_FALSE(memory.allocate(*driver, 1 << 20, "test"));
  }
  template <class T>
  T* data() const {
    return reinterpret_cast<T*>(memory.address());
  }
  const gpu::Driver* driver = nullptr;
  Utility utility;
  DeviceMemory memory;
};

space::ArgSpec filled(Type type, int64_t count, const Fill& fill) {
  space::ArgSpec arg;
  arg.type = type;
  arg.element_bytes = type_info(type).size_bytes;
  arg.count = count;
  arg.fill = fill;
  return arg;
}

double element(const Bench& bench, const space::ArgSpec& arg, uint64_t index) {
  double number = 0;
  DeviceMemory result;
  REQUIRE_FALSE(result.allocate(*bench.driver, 8, "result"));
  REQUIRE_FALSE(bench.utility.decode(bench.memory.address(), index, arg, result.address()));
  std::memcpy(&number, reinterpret_cast<void*>(result.address()), sizeof number);
  return number;
}

constexpr Type kAllTypes[] = {Type::half,  Type::bfloat16, Type::float32,  Type::float64,  Type::int8,
                              Type::uint8, Type::int16,    Type::uint16,   Type::int32,    Type::uint32,
                              Type::int64, Type::uint64,   Type::fp8_e4m3, Type::fp8_e5m2, Type::boolean};

}  // namespace

TEST_CASE("constants have the bits that the types' formats say") {
  const Bench bench;
  struct Row {
    Type type;
    double value;
    uint64_t bits;
  };
  for (const Row& row : {
           Row{Type::half, 1.0, 0x3C00},
           Row{Type::half, -2.5, 0xC100},
           Row{Type::half, 65504, 0x7BFF},
           Row{Type::half, 1e6, 0x7C00},
           Row{Type::half, 6e-8, 0x0001},
           Row{Type::half, 1e-9, 0x0000},
           Row{Type::half, 0.1, 0x2E66},
           Row{Type::half, 65519.9, 0x7BFF},
           Row{Type::half, 65520, 0x7C00},
           Row{Type::half, 1.00048828125, 0x3C00},  // halfway: to even
           Row{Type::half, 1.00146484375, 0x3C02},
           Row{Type::bfloat16, 1.0, 0x3F80},
           Row{Type::bfloat16, -0.1, 0xBDCD},
           Row{Type::bfloat16, 3.0e38, 0x7F62},
           Row{Type::fp8_e4m3, 1.0, 0x38},
           Row{Type::fp8_e4m3, 448, 0x7E},
           Row{Type::fp8_e4m3, 1e9, 0x7E},
           Row{Type::fp8_e4m3, 0.001953125, 0x01},
           Row{Type::fp8_e5m2, 1.0, 0x3C},
           Row{Type::fp8_e5m2, 57344, 0x7B},
           Row{Type::fp8_e5m2, -1e9, 0xFB},
           Row{Type::float32, 0.1, 0x3DCCCCCD},
           Row{Type::float64, 0.1, 0x3FB999999999999A},
           Row{Type::int8, -200, 0x80},
           Row{Type::uint8, 300, 0xFF},
           Row{Type::int16, -2.6, 0xFFFD},
           Row{Type::uint16, -5, 0},
           Row{Type::int32, 3e9, 0x7FFFFFFF},
           Row{Type::uint32, 3e9, 0xB2D05E00},
           Row{Type::int64, -1, 0xFFFFFFFFFFFFFFFF},
           Row{Type::uint64, 7, 7},
           Row{Type::boolean, 2, 1},
       }) {
    const space::ArgSpec arg = filled(row.type, 3, Fill::constant(row.value));
    CAPTURE(type_info(row.type).word);
    CAPTURE(row.value);
    REQUIRE_FALSE(bench.utility.fill(bench.memory.address(), arg, 1));
    uint64_t bits = 0;
    std::memcpy(&bits, bench.data<char>() + 2 * arg.element_bytes, static_cast<size_t>(arg.element_bytes));
    CHECK(bits == row.bits);
  }
}

TEST_CASE("every finite value of the small types survives decoding and encoding") {
  const Bench bench;
  for (const Type type : {Type::half, Type::bfloat16, Type::fp8_e4m3, Type::fp8_e5m2}) {
    const int64_t codes = type_info(type).size_bytes == 2 ? 65536 : 256;
    const space::ArgSpec arg = filled(type, codes, {});
    int64_t changed = 0;
    for (int64_t code = 0; code<codes; code += codes> 256 ? 7 : 1) {
      std::memcpy(bench.data<char>(), &code, static_cast<size_t>(arg.element_bytes));
      const double value = element(bench, arg, 0);
      if (!std::isfinite(value)) continue;
      REQUIRE_FALSE(bench.utility.fill(bench.memory.address(), filled(type, 1, Fill::constant(value)), 1));
      int64_t back = 0;
      std::memcpy(&back, bench.data<char>(), static_cast<size_t>(arg.element_bytes));
      changed += back != code;
    }
    CHECK(changed == 0);
  }
}

TEST_CASE("fills have the distribution they are named for, the same for a seed and another for another") {
  const Bench bench;
  constexpr int64_t kCount = 20'000;
  const auto fill = [&](const space::ArgSpec& arg, uint64_t seed) {
    REQUIRE_FALSE(bench.utility.fill(bench.memory.address(), arg, seed));
    return std::string(bench.data<char>(), static_cast<size_t>(arg.bytes()));
  };
  const auto moments = [&](const space::ArgSpec& arg) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < kCount; ++i) sum += bench.data<float>()[i];
    for (int64_t i = 0; i < kCount; ++i) squares += std::pow(bench.data<float>()[i] - sum / kCount, 2);
    CHECK(arg.count == kCount);
    return std::pair{sum / kCount, std::sqrt(squares / kCount)};
  };
  const auto normal = filled(Type::float32, kCount, Fill::normal(3, 2));
  const std::string first = fill(normal, 1);
  const auto [mean, deviation] = moments(normal);
  CHECK(mean == doctest::Approx(3).epsilon(0.02));
  CHECK(deviation == doctest::Approx(2).epsilon(0.02));
  CHECK(fill(normal, 2) != first);
  CHECK(fill(normal, 1) == first);

  const auto uniform = filled(Type::float32, kCount, Fill::uniform(0.5, 1.5));
  fill(uniform, 1);
  CHECK(moments(uniform).first == doctest::Approx(1).epsilon(0.02));
  CHECK(moments(uniform).second == doctest::Approx(std::sqrt(1 / 12.0)).epsilon(0.02));
  for (int64_t i = 0; i < kCount; ++i) CHECK_UNARY(bench.data<float>()[i] >= 0.5f && bench.data<float>()[i] <= 1.5f);

  std::set<int> seen;
  fill(filled(Type::int32, 1000, Fill::integers(-2, 2)), 1);
  for (int i = 0; i < 1000; ++i) seen.insert(bench.data<int>()[i]);
  CHECK(seen == std::set<int>{-2, -1, 0, 1, 2});
  auto indices = filled(Type::int64, 1000, Fill::indices("n"));
  indices.index_bound = 3;
  fill(indices, 1);
  std::set<int64_t> places;
  for (int i = 0; i < 1000; ++i) places.insert(bench.data<int64_t>()[i]);
  CHECK(places == std::set<int64_t>{0, 1, 2});

  for (const Type type : kAllTypes) {
    CAPTURE(type_info(type).word);
    for (const auto& [kind, value] : {std::pair{Fill::zeros(), 0.0}, std::pair{Fill::ones(), 1.0}}) {
      const auto arg = filled(type, 5, kind);
      fill(arg, 1);
      CHECK(element(bench, arg, 4) == value);
    }
  }
}

TEST_CASE("comparison: what counts as equal") {
  const Bench bench;
  constexpr float kNan = NAN, kInfinite = INFINITY;
  struct Row {
    float got, expected;
    Tolerance tolerance;
    bool equal;
  };
  const Tolerance loose = Tolerance::within(0.01, 0.001);
  Tolerance strict_nan = loose;
  strict_nan.nan_equal = false;
  Tolerance exact;
  for (const Row& row : {
           Row{1.0f, 1.0f, exact, true},
           Row{1.0f, 1.0000001f, exact, false},
           Row{0.0f, -0.0f, exact, false},
           Row{0.0f, -0.0f, loose, true},
           Row{1.01f, 1.0f, loose, true},
           Row{1.02f, 1.0f, loose, false},
           Row{0.0009f, 0.0f, loose, true},
           Row{kNan, kNan, loose, true},
           Row{kNan, kNan, strict_nan, false},
           Row{kNan, 1.0f, loose, false},
           Row{1.0f, kNan, loose, false},
           Row{kInfinite, kInfinite, loose, true},
           Row{kInfinite, -kInfinite, loose, false},
           Row{1.0f, kInfinite, loose, false},
           Row{kInfinite, 1.0f, loose, false},
       }) {
    CAPTURE(row.got);
    CAPTURE(row.expected);
    auto arg = filled(Type::float32, 1, {});
    arg.tolerance = row.tolerance;
    bench.data<float>()[0] = row.got;
    bench.data<float>()[1] = row.expected;
    auto* result = bench.data<uint64_t>() + 8;
    std::fill(result, result + 3, 0);
    const CUdeviceptr base = bench.memory.address();
    REQUIRE_FALSE(bench.utility.compare(base, base + 4, 0, arg, 0, base + 64));
    CHECK((result[0] == 0) == row.equal);
  }
}

TEST_CASE("comparison: number, place and size of the differences; marked elements do not count") {
  const Bench bench;
  const CUdeviceptr base = bench.memory.address();
  auto arg = filled(Type::int32, 100, {});
  arg.tolerance = Tolerance{};
  int* got = bench.data<int>();
  int* expected = got + 100;
  auto* skip = bench.data<uint8_t>() + 1000;
  auto* result = bench.data<uint64_t>() + 200;
  std::memset(bench.data<char>(), 0, 4096);
  got[30] = 5;
  got[70] = -9;
  got[10] = 100;
  skip[10] = 1;
  REQUIRE_FALSE(bench.utility.compare(base, base + 400, base + 1000, arg, 0, base + 1600));
  CHECK(result[0] == 2);
  CHECK(100 - result[1] == 30);
  double worst = 0;
  std::memcpy(&worst, &result[2], sizeof worst);
  CHECK(worst == 9);
  CHECK(expected[0] == 0);
  arg.type.reset();  // bytes: elements of four
  std::fill(result, result + 3, 0);
  REQUIRE_FALSE(bench.utility.compare(base, base + 400, 0, arg, 0, base + 1600));
  CHECK(result[0] == 3);
}

TEST_CASE("each poison is NaN in every floating type, and no run's poison is the one before") {
  std::set<uint32_t> seen;
  for (uint64_t run = 0; run < 1000; ++run) {
    const uint32_t word = poison_word(run);
    seen.insert(word);
    float single = 0;
    std::memcpy(&single, &word, sizeof single);
    CHECK_UNARY(std::isnan(single));
    const uint64_t two = uint64_t{word} << 32 | word;
    double wide = 0;
    std::memcpy(&wide, &two, sizeof wide);
    CHECK_UNARY(std::isnan(wide));
    for (const uint32_t half : {word & 0xFFFF, word >> 16}) {
      CHECK((half & 0x7C00) == 0x7C00);  // half: all bits of the exponent
      CHECK((half & 0x03FF) != 0);
      CHECK((half & 0x7F80) == 0x7F80);  // bfloat16
      CHECK((half & 0x007F) != 0);
    }
  }
  CHECK(seen.size() == 1000);
}

TEST_CASE("a checksum changes with any byte") {
  const Bench bench;
  constexpr int64_t kBytes = 1003;
  std::memset(bench.data<char>(), 0x5A, 2048);
  auto* sum = bench.data<uint64_t>() + 200;
  const auto checksum = [&] {
    *sum = 0;
    REQUIRE_FALSE(bench.utility.checksum(bench.memory.address(), kBytes, bench.memory.address() + 1600));
    return *sum;
  };
  std::set<uint64_t> sums{checksum()};
  for (int64_t i = 0; i < kBytes; ++i) {
    bench.data<char>()[i] ^= 1;
    sums.insert(checksum());
    bench.data<char>()[i] ^= 1;
  }
  CHECK(sums.size() == kBytes + 1);
}
