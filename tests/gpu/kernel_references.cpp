#include "kernel_references.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "space/scalar_bytes.hpp"

namespace jitune::test {
namespace {

using Values = std::vector<float>;

float from_half(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 31) return mantissa != 0 ? NAN : static_cast<float>(sign * INFINITY);
  if (exponent == 0) return static_cast<float>(sign * std::ldexp(mantissa, -24));
  return static_cast<float>(sign * std::ldexp(mantissa + 1024, exponent - 25));
}

const Values& all_halves() {
  static const Values table = [] {
    Values values(65536);
    for (size_t bits = 0; bits < values.size(); ++bits) values[bits] = from_half(static_cast<uint16_t>(bits));
    return values;
  }();
  return table;
}

/// Half the distance between neighbouring numbers, relative.
double rounding(Type type) {
  return type == Type::half ? 0x1p-11 : type == Type::bfloat16 ? 0x1p-8 / 2 : 0x1p-24;
}

/// Room for a rounded intermediate, the rounding of the result, and the fast functions of the GPU.
double relative_tolerance(Type type) {
  return 4 * rounding(type) + 1e-4;
}

double round_to(Type type, double value) {
  const auto bytes = space::scalar_bytes(type, value);
  if (!bytes) throw std::runtime_error(bytes.error());
  return element(type, *bytes, 0);
}

/// The value of the distribution below which a share `p` of all values lies.
double quantile(const Fill& fill, double p) {
  if (fill.kind == Fill::Kind::uniform) return fill.low + (fill.high - fill.low) * p;
  if (fill.kind != Fill::Kind::normal) throw std::runtime_error("kernel_check fills inputs normal or uniform only");
  // The logistic distribution of the same deviation: close enough to a normal one, and it can be inverted.
  return fill.low + fill.high * std::sqrt(3.0) / M_PI * std::log(p / (1 - p));
}

/// Draws from a table of rounded values, so that millions of elements cost no conversion each.
void fill(HostArg& arg, uint64_t seed) {
  constexpr uint64_t kDistinct = 8191;
  std::vector<uint8_t> bytes;
  Values values;
  for (uint64_t i = 0; i < kDistinct; ++i) {
    const double value = quantile(arg.spec.fill, (static_cast<double>(i) + 0.5) / kDistinct);
    const auto rounded = space::scalar_bytes(*arg.spec.type, value);
    if (!rounded) throw std::runtime_error(rounded.error());
    bytes.insert(bytes.end(), rounded->begin(), rounded->end());
    values.push_back(static_cast<float>(element(*arg.spec.type, *rounded, 0)));
  }
  const auto size = static_cast<size_t>(arg.spec.element_bytes);
  uint64_t state = seed * 0x9E3779B97F4A7C15ull + 1;
  for (size_t i = 0; i < arg.values.size(); ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    const size_t draw = (state >> 32) * kDistinct >> 32;
    std::memcpy(&arg.bytes[i * size], &bytes[draw * size], size);
    arg.values[i] = values[draw];
  }
}

size_t find(const std::vector<HostArg>& args, const std::string& name) {
  for (size_t i = 0; i < args.size(); ++i)
    if (args[i].spec.name == name) return i;
  throw std::runtime_error("the definition has no arg '" + name + "', which its reference needs");
}

size_t size_of(const space::ProblemValues& problem, const char* name) {
  return static_cast<size_t>(problem.at(name).as_int());
}

/// All rows of a small problem, every so many of a big one, always the last. An odd step meets all rows of a tile.
std::vector<size_t> some_rows(size_t rows, size_t cols) {
  const size_t step = rows * cols / 2'000'000 | 1;
  std::vector<size_t> some;
  for (size_t row = 0; row < rows; row += step) some.push_back(row);
  if (some.back() != rows - 1) some.push_back(rows - 1);
  return some;
}

std::vector<Expected> rmsnorm(const space::ProblemValues& problem, const std::vector<HostArg>& args, bool fused) {
  const size_t rows = size_of(problem, "rows"), hidden = size_of(problem, "hidden");
  const Values& x = args[find(args, "x")].values;
  const Values& weight = args[find(args, "weight")].values;
  const size_t y = find(args, fused ? "x" : "y");
  const Type type = *args[y].spec.type;
  std::vector<Expected> expected{{y, relative_tolerance(type), 1e-6, {}}};
  if (fused) expected.push_back({find(args, "residual"), 2 * rounding(type), 1e-7, {}});
  std::vector<double> row(hidden);
  for (const size_t r : some_rows(rows, hidden)) {
    double squares = 0;
    for (size_t c = 0; c < hidden; ++c) {
      row[c] = x[r * hidden + c];
      if (fused) row[c] = round_to(type, row[c] + args[expected[1].arg].values[r * hidden + c]);
      squares += row[c] * row[c];
    }
    if (fused) expected[1].spans.push_back({r * hidden, row});
    const double factor = 1 / std::sqrt(squares / static_cast<double>(hidden) + 1e-6);
    for (size_t c = 0; c < hidden; ++c) row[c] *= factor * weight[c];
    expected[0].spans.push_back({r * hidden, row});
  }
  return expected;
}

std::vector<Expected> softmax(const space::ProblemValues& problem, const std::vector<HostArg>& args) {
  const size_t rows = size_of(problem, "rows"), cols = size_of(problem, "cols");
  const Values& x = args[find(args, "x")].values;
  const size_t y = find(args, "y");
  Expected expected{y, relative_tolerance(*args[y].spec.type), 1e-6, {}};
  std::vector<double> row(cols);
  for (const size_t r : some_rows(rows, cols)) {
    const float* in = &x[r * cols];
    const double top = *std::max_element(in, in + cols);
    double sum = 0;
    for (size_t c = 0; c < cols; ++c) sum += row[c] = std::exp(in[c] - top);
    for (double& value : row) value /= sum;
    expected.spans.push_back({r * cols, row});
  }
  return {expected};
}

std::vector<Expected> transpose(const space::ProblemValues& problem, const std::vector<HostArg>& args) {
  const size_t rows = size_of(problem, "rows"), cols = size_of(problem, "cols");
  const Values& in = args[find(args, "in")].values;
  Expected expected{find(args, "out"), 0, 0, {}};
  for (const size_t c : some_rows(cols, rows)) {
    std::vector<double> row(rows);
    for (size_t r = 0; r < rows; ++r) row[r] = in[r * cols + c];
    expected.spans.push_back({c * rows, std::move(row)});
  }
  return {expected};
}

std::vector<Expected> reduce_sum(const space::ProblemValues& problem, const std::vector<HostArg>& args) {
  const size_t rows = size_of(problem, "rows"), cols = size_of(problem, "cols");
  const Values& x = args[find(args, "x")].values;
  std::vector<double> sums(rows);
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < cols; ++c) sums[r] += x[r * cols + c];
  return {{find(args, "sums"), 1e-3, 1e-3, {{0, std::move(sums)}}}};
}

std::vector<Expected> gemm(const space::ProblemValues& problem, const std::vector<HostArg>& args) {
  const size_t m = size_of(problem, "M"), n = size_of(problem, "N"), k = size_of(problem, "K");
  const Values& a = args[find(args, "A")].values;
  const Values& b = args[find(args, "B")].values;
  const size_t c = find(args, "C");
  Expected expected{c, relative_tolerance(*args[c].spec.type), 1e-2, {}};
  const auto add = [&](size_t row, size_t col, size_t width) {
    Expected::Span span{row * n + col, std::vector<double>(width)};
    for (size_t i = 0; i < k; ++i)
      for (size_t j = 0; j < width; ++j) span.values[j] += double{a[row * k + i]} * b[i * n + col + j];
    expected.spans.push_back(std::move(span));
  };
  constexpr size_t kProducts = 300'000'000, kWidth = 64;
  if (m * n * k <= kProducts || n <= kWidth) {
    for (size_t row = 0; row < m; ++row) add(row, 0, n);
    return {expected};
  }
  add(m - 1, n - kWidth, kWidth);
  for (size_t i = 0; i < kProducts / (kWidth * k); ++i) add(i * 7919 % m, std::min(i * 104729 % n, n - kWidth), kWidth);
  return {expected};
}

}  // namespace

double element(Type type, const std::vector<uint8_t>& bytes, size_t index) {
  uint32_t word = 0;
  uint16_t half = 0;
  switch (type) {
    case Type::float32:
      std::memcpy(&word, &bytes[index * 4], 4);
      return std::bit_cast<float>(word);
    case Type::bfloat16:
      std::memcpy(&half, &bytes[index * 2], 2);
      return std::bit_cast<float>(uint32_t{half} << 16);
    case Type::half:
      std::memcpy(&half, &bytes[index * 2], 2);
      return all_halves()[half];
    default:
      throw std::runtime_error(std::string("kernel_check can't read ") + type_info(type).word);
  }
}

std::vector<HostArg> make_host_args(const std::vector<space::ArgSpec>& specs) {
  std::vector<HostArg> args;
  for (const space::ArgSpec& spec : specs) {
    HostArg& arg = args.emplace_back(HostArg{spec, {}, {}});
    if (!spec.is_buffer()) continue;
    arg.bytes.resize(static_cast<size_t>(spec.bytes()));
    if (spec.kind != ArgKind::in && spec.kind != ArgKind::inout) continue;
    arg.values.resize(static_cast<size_t>(spec.count));
    fill(arg, args.size());
  }
  return args;
}

std::vector<Expected> reference(const std::string& kernel, const space::ProblemValues& problem,
                                const std::vector<HostArg>& args) {
  if (kernel == "rmsnorm") return rmsnorm(problem, args, false);
  if (kernel == "fused_add_rmsnorm") return rmsnorm(problem, args, true);
  if (kernel == "softmax") return softmax(problem, args);
  if (kernel == "transpose") return transpose(problem, args);
  if (kernel == "reduce_sum") return reduce_sum(problem, args);
  if (kernel == "gemm") return gemm(problem, args);
  throw std::runtime_error("there is no reference for kernel '" + kernel + "': add one to kernel_references.cpp");
}

}  // namespace jitune::test
