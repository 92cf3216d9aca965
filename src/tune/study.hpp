#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "measure/early_stop.hpp"
#include "measure/samples.hpp"
#include "search/strategy.hpp"
#include "tune/compiler.hpp"
#include "tune/measurer.hpp"
#include "tune/tune.hpp"

namespace jitune::tune {

/// One study in progress: the steps that tune() puts in order. Not thread-safe; lives for one call.
class Study {
 public:
  Study(Services& services, const Request& request);
  ~Study();

  /// Takes the lease. False when another process tunes this key or its winner is stored: outcome() then says so.
  bool claim();

  /// Starts workers, writes the study's row, submits what is needed first. False: the study can't be done.
  bool prepare();

  /// Sets the measuring worker up, runs the reference, if the definition names one, and the default config, which is
  /// the reference otherwise. False: the study can't go on.
  bool measure_default();

  /// Asks the search for configs, compiles them side by side and measures each as soon as it is there, until the space
  /// or the budget is used up.
  void explore();

  /// Measures the finalists and the default config again, interleaved, and decides.
  void rematch();

  /// Ends the study's row with the decision: winner and cubin in one transaction.
  void publish();

  Outcome outcome() && { return std::move(outcome_); }

 private:
  /// A config that ran and was right.
  struct Good {
    Compiled compiled;
    measure::Candidate candidate;
    double median_us = 0;   ///< at the GPU's speed when the study began
    bool verified = false;  ///< ran in this study, so its time and result are of today
  };

  bool fail(std::string outcome, std::string note);
  double elapsed_ms() const { return ms_since(start_); }
  bool out_of_time() const;
  bool was_cancelled();
  std::optional<Compiled> next(Compiler::Stream& stream, Clock::time_point deadline);
  int compile_width() const;
  void used_gpu(const measure::TrialReply& reply);
  Result<measure::Setup> make_setup(const space::Config& config, const Compiled& utility) const;
  Result<measure::Candidate> make_candidate(const Compiled& compiled);
  Result<std::vector<space::ArgSpec>> args_of(const space::Config& config, const space::KernelFacts& facts) const;
  std::optional<space::Config> any_config() const;
  bool submit_reference();
  bool run_reference(std::optional<Compiled> compiled);
  bool run_host_reference();
  void note_wrong_default(const std::string& error);
  void read_history();
  Result<void> prepare_search();
  /// `drift`: how much slower the GPU was at that trial than when the study began.
  void tell_search(const store::TrialRow& row, double drift);
  size_t trials_left() const;
  void refill();
  void handle(Compiled compiled);
  void run(Compiled compiled);
  void note_reply(Compiled compiled, measure::Candidate candidate, const measure::TrialReply& reply);
  void add_row(store::TrialRow row, double drift = 1);
  void report();
  std::chrono::milliseconds run_limit() const;
  void follow_drift();
  void note_costs(const measure::TrialReply& reply);
  void note_seen(const space::Config& config, measure::TrialStatus status, const measure::Summary& summary);
  void give_second_chances();
  void note_group(const space::Config& config, const measure::TrialReply& reply);
  void report_disagreement();
  std::string stored_note() const;
  std::vector<size_t> finalists();
  void log_finalists(const std::vector<size_t>& chosen, const std::vector<std::vector<double>>& series_us);
  void add_old_finalists();
  store::WinnerRow winner_row(const Good& good, double median_us, double default_us) const;

  Services& services_;
  const Request& request_;
  const space::Instance& instance_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point explore_until_;
  Outcome outcome_;
  store::Lease lease_;
  int64_t study_ = 0;
  Compiler* compiler_ = nullptr;
  Measurer* measurer_ = nullptr;
  bool measuring_ = false;
  bool facts_needed_ = false;
  std::optional<space::Config> default_config_;
  key::SourceHash source_;
  std::unique_ptr<Compiler::Stream> first_, rest_;
  std::unique_ptr<search::Strategy> strategy_;
  search::BudgetMeter meter_{{}};
  uint64_t asked_ = 0;
  std::map<std::string, store::TrialRow> history_;  // by config; trials of earlier studies of this key
  std::vector<Good> good_;
  std::optional<size_t> default_good_;  // index in good_
  bool has_reference_ = false;
  // A reference that the definition names (references.cpp).
  std::optional<space::Instance::ReferenceSpec> reference_;
  std::string reference_build_;     // its build key
  bool trusted_reference_ = false;  // has_reference_, and it is the definition's
  bool cancelled_ = false;
  double best_us_ = 0;
  double default_us_ = 0;
  std::string best_config_;
  // Early stop and drift.
  std::optional<measure::EarlyStop> early_stop_;
  measure::DriftMonitor drift_;
  size_t anchor_ = 0;  // index in good_: the incumbent, whose time tells the GPU's speed
  int best_samples_ = 0;
  int trials_since_anchor_ = 0;
  double measured_ms_ = 0;  // since the anchor was timed
  int launches_ = 1;        // of a sample
  std::vector<std::pair<space::Config, measure::SeenTrial>> seen_;
  std::map<std::string, int> value_ids_;
  // Where the default config gives no reference: who agrees with whom.
  struct Group {
    int configs = 0;
    std::string example;
  };
  std::map<int, Group> groups_;
  int compilations_before_ = 0;
  bool space_used_up_ = false;
  bool no_workers_ = false;  // a config could not be given to any compile worker
};

/// A trial as a search sees it.
search::Told told_of(const store::TrialRow& row);

/// CUDA source of the measuring worker's own kernels as a compile job for `arch`.
CompileJob utility_job(const std::string& arch, const std::string& nvrtc_build);

}  // namespace jitune::tune
