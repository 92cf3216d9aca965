#include "tune/doubts.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

namespace jitune::tune {
namespace {

constexpr double kLowOccupancy = .25;  // what fills more of an SM is never in doubt
constexpr double kNearBest = 1.1;      // what such a config has is no doubt
// With fewer witnesses, or such as lost by less, searches to which the doubt meant nothing lost speed by it.
constexpr int kWitnesses = 12;
constexpr double kLost = 1.3;
constexpr int kRunsAnyway = 8;  // one in so many

template <class... Values>
std::string format(const char* text, Values... values) {
  std::array<char, 240> buffer{};
  std::snprintf(buffer.data(), buffer.size(), text, values...);
  return buffer.data();
}

}  // namespace

void Doubts::set_default(const Promise& promise) {
  has_default_ = true;
  default_ = promise;
}

void Doubts::note(const Promise& promise, double us) {
  if (us <= 0) return;
  seen_.push_back({promise, us});
  if (best_us_ == 0 || us < best_us_) best_us_ = us;
}

/// What is not held against a config: as much as the default config and those near the best have.
Doubts::Limits Doubts::limits() const {
  Limits limits{kLowOccupancy, 0};
  const auto allow = [&](const Promise& promise) {
    if (promise.occupancy > 0) limits.occupancy = std::min(limits.occupancy, promise.occupancy);
    limits.spill_bytes = std::max(limits.spill_bytes, promise.spill_bytes);
  };
  if (has_default_) allow(default_);
  for (const Seen& seen : seen_)
    if (seen.us <= kNearBest * best_us_) allow(seen.promise);
  return limits;
}

bool Doubts::doubted(const Promise& promise) const {
  const Limits limits = this->limits();
  return (promise.occupancy > 0 && promise.occupancy < limits.occupancy) || promise.spill_bytes > limits.spill_bytes;
}

std::string Doubts::why_skip(const Promise& promise) {
  const Limits limits = this->limits();
  struct {
    int count = 0;
    double best_us = 0;
    void add(double us) {
      if (count++ == 0 || us < best_us) best_us = us;
    }
  } thin, spilling;
  for (const Seen& seen : seen_) {
    const Promise& other = seen.promise;
    if (other.occupancy > 0 && other.occupancy < limits.occupancy && other.occupancy >= promise.occupancy)
      thin.add(seen.us);
    if (other.spill_bytes > limits.spill_bytes && other.spill_bytes <= promise.spill_bytes) spilling.add(seen.us);
  }
  const auto condemn = [&](const auto& witnesses) {
    return witnesses.count >= kWitnesses && witnesses.best_us >= kLost * best_us_;
  };
  constexpr int kPercent = 100;
  const auto slower = [&](const auto& witnesses) { return kPercent * (witnesses.best_us / best_us_ - 1); };
  std::string why;
  if (promise.spill_bytes > limits.spill_bytes && condemn(spilling))
    why = format("not run: it spills %lld bytes; of %d configs that spill less (over %lld), the best is %.0f %% slower",
                 static_cast<long long>(promise.spill_bytes), spilling.count,
                 static_cast<long long>(limits.spill_bytes), slower(spilling));
  else if (promise.occupancy > 0 && promise.occupancy < limits.occupancy && condemn(thin))
    why = format("not run: its occupancy is %.3f; of %d configs with more (below %.3f), the best is %.0f %% slower",
                 promise.occupancy, thin.count, limits.occupancy, slower(thin));
  if (why.empty()) return why;
  return ++asked_ % kRunsAnyway == 0 ? std::string() : why;
}

}  // namespace jitune::tune
