#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace jitune::measure {

/// Summary of samples in microseconds.
struct Summary {
  int samples = 0;
  double min_us = 0, median_us = 0, mean_us = 0, stddev_us = 0, max_us = 0;
};

/// Drops what is not a time (zero, negative, NaN, infinite) and sums up the rest; samples = 0 when nothing is left.
Summary summarise(std::span<const double> samples_us);

/// For a GPU that another process uses in turns: drops samples that its time slices are likely to be in, those more
/// than 30 % above the shortest. At least two stay where there are two.
void drop_foreign_slices(std::vector<double>& samples_us);

/// Whether a config has clearly lost after these samples: even its best one is above the bound by the margin of that
/// many samples (the last one holds on; EarlyStop makes them). Pure; never true without a finite bound.
bool has_lost(std::span<const double> samples_us, double bound_us, std::span<const double> margins);

/// Whether enough samples were taken: at least `min_samples`, and either they agree within 1 % or there are
/// `max_samples`, or they took 150 ms together.
bool is_settled(std::span<const double> samples_us, int min_samples, int max_samples);

/// Whether the GPU is up to speed, by its SM clock. Pure; one for each worker.
class ClockGate {
 public:
  /// A clock seen right after samples. The fastest one is what the GPU can do under this load.
  void note_busy(int mhz);

  /// Whether measuring may begin: the clock is 90 % of the busy one, or either is not known, or 20 ms were spent on
  /// waiting. The last case makes today's clock the busy one: a GPU that stays slow is not waited for every time.
  bool open(int mhz, double waited_ms);

 private:
  int busy_mhz_ = 0;
};

/// Takes samples of one config as they come and says when to stop. Pure: the caller tells how much time has passed.
///
/// A GPU that rested has to come up to speed: until two samples in a row agree within 3 %, or 20 ms are spent, the
/// older one is dropped and only a config that is 50 % behind is given up.
class Series {
 public:
  struct Rules {
    int min_samples = 3;
    int max_samples = 7;
    std::span<const double> margins;
    double bound_us = 0;  ///< no bound unless it is a finite time
    double first_us = 0;  ///< the launch before the first sample, if it is known
    bool rested = true;   ///< the GPU idled before
    double settle_limit_ms = 20;
    double wall_limit_ms = 1000;  ///< so much time for one config is enough, restoring and flushing included
  };
  enum class Next : uint8_t { more, enough, lost, unusable };

  explicit Series(const Rules& rules) : rules_(rules), settled_(!rules.rested), before_us_(rules.first_us) {}

  /// `elapsed_ms` since the first sample began. What is not a time is dropped; more of them than max_samples: unusable.
  Next add(double us, double elapsed_ms);

  const std::vector<double>& samples_us() const { return samples_us_; }

  /// Why it ended: lost, agreed (within 1 %), count (the most samples), time, unusable; "" before.
  const char* stop() const { return stop_; }

 private:
  Rules rules_;
  bool settled_;
  double before_us_;
  int dropped_ = 0;
  const char* stop_ = "";
  std::vector<double> samples_us_;
};

}  // namespace jitune::measure
