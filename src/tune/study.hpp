#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "measure/early_stop.hpp"
#include "measure/samples.hpp"
#include "search/strategy.hpp"
#include "tune/compiler.hpp"
#include "tune/doubts.hpp"
#include "tune/lanes.hpp"
#include "tune/run_deadline.hpp"
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
  /// Where configs are measured: at what tune_at names for the key's bucket, else at the request's own problem.
  struct Place {
    space::Instance instance;
    double weight = 1;
    std::string text;  ///< `rows=4096`; "": the request's own
  };
  /// A config that ran and was right.
  struct Good {
    Compiled compiled;
    std::shared_ptr<const measure::Candidate> candidate;
    double median_us = 0;  ///< as on the first GPU when the study began
    size_t lane = 0;       ///< where it was measured last
    bool failed = false;   ///< later, on another GPU
  };
  /// A compiled config on its way to a GPU.
  struct Item {
    Compiled compiled;
    int losses = 0;  ///< GPUs that were lost while it ran there
  };
  /// One trial on a lane: what it is given, and what came of it.
  struct Flight {
    Item item;
    double bound_us = 0;        ///< as on the first GPU when the study began; 0: none yet
    bool as_reference = false;  ///< its outputs become what others are compared with
    std::vector<double> margins;
    std::chrono::milliseconds limit{0};
    std::optional<measure::TrialReply> anchor_reply;
    std::shared_ptr<const measure::Candidate> candidate;  ///< null: `error` says why there is none
    std::string error;
    measure::TrialReply reply;
    double scale = 1;  ///< the lane's, then
  };

  bool fail(std::string outcome, std::string note);
  double elapsed_ms() const { return ms_since(start_); }
  bool out_of_time() const;
  bool was_cancelled();
  std::optional<Compiled> next(Compiler::Stream& stream, Clock::time_point deadline);
  int compile_width() const;
  void used_gpu(const measure::TrialReply& reply) const;
  Result<measure::Setup> make_setup(const space::Config& config, const Compiled& utility) const;
  /// `measurer`: asked for what only the driver knows.
  Result<measure::Candidate> make_candidate(const Compiled& compiled, Measurer* measurer) const;
  Result<measure::Candidate> candidate_at(const Place& place, const Compiled& compiled, Measurer* measurer) const;
  Result<std::vector<space::ArgSpec>> args_of(const Place& place, const space::Config& config,
                                              const space::KernelFacts& facts) const;
  static std::vector<Place> places_of(Services& services, const Request& request);
  std::string refused_at(const space::Config& config) const;
  std::string places_text() const;
  std::optional<space::Config> any_config() const;
  bool submit_reference();
  bool run_reference(std::optional<Compiled> compiled);
  bool run_host_reference();
  void note_wrong_default(const std::string& error);
  void read_history();
  Result<void> prepare_search();
  void tell_history();
  double modelled_time(const space::Config& config) const;
  /// `scale`: how much slower the GPU was at that trial than the first one when the study began.
  void tell_search(const store::TrialRow& row, double scale);
  size_t trials_left() const;
  void refill();
  Result<void> open_lanes();
  bool begin_lanes(const measure::Setup& setup);
  void join(Lane& lane);
  bool trust(Lane& lane) const;
  void on_lane(Lane& lane, const std::function<void(Measurer&)>& work);
  void found_yardstick(Lane& lane, const Good& good, const measure::TrialReply& reply, bool is_default);
  static void set_anchor(Lane& lane, std::shared_ptr<const measure::Candidate> candidate, double raw_us, double us);
  bool lanes_left();
  Lane* free_lane();
  Lane* judge();
  void end_lane(Lane& lane, const std::string& why);
  double bound_on(const Lane& lane) const;
  void start_trial(Lane& lane, Item item);
  void fly(Lane& lane, Flight& flight) const;
  void note_flight(Lane& lane, Flight& flight);
  void requeue(Item item);
  void run_on(Lane& lane, Compiled compiled);
  void drain(bool everything);
  bool step();
  bool refused(const Compiled& compiled);
  bool skipped(const Compiled& compiled);
  Promise promise_of(const Compiled& compiled, int64_t* shared_bytes = nullptr) const;
  void handle(Lane& lane, Compiled compiled);
  static store::TrialRow row_of(const Compiled& compiled);
  void note_reply(Lane& lane, Flight& flight);
  void note_good(Lane& lane, Flight& flight, const measure::Summary& summary, double us);
  void add_row(store::TrialRow row, double scale = 1);
  void write_rows();
  void report();
  std::chrono::milliseconds run_limit() const;
  static void follow_drift(Lane& lane, Flight& flight);
  void note_costs(const measure::TrialReply& reply);
  void note_seen(const space::Config& config, measure::TrialStatus status, const measure::Summary& summary,
                 double scale);
  void give_second_chances();
  void note_group(const Lane& lane, const space::Config& config, const measure::TrialReply& reply);
  void report_disagreement();
  std::vector<size_t> finalists() const;
  void keep_best(std::vector<size_t>& chosen) const;
  void log_finalists(const std::vector<size_t>& chosen, const std::vector<std::vector<double>>& series_us);
  void add_old_finalists();
  void check_again(Lane& lane, std::vector<size_t>& chosen);
  /// The finalists' times, measured in turns; the first ones where that can't be done.
  std::vector<std::vector<double>> time_finalists(std::vector<size_t>& chosen);
  bool rematch_on(Lane& lane, const std::vector<size_t>& chosen, std::vector<std::vector<double>>& series_us);
  store::WinnerRow winner_row(const Good& good, double median_us, double default_us) const;

  Services& services_;
  const Request& request_;
  std::vector<Place> places_;
  bool is_representative_ = false;   // places_ are tune_at's: a caller's data are of another problem
  const space::Instance& instance_;  // of the first of them: its space is searched, its default config serves
  Clock::time_point start_ = Clock::now();
  Clock::time_point explore_until_;
  Outcome outcome_;
  store::Lease lease_;
  int64_t study_ = 0;
  Compiler* compiler_ = nullptr;
  bool facts_needed_ = false;
  std::optional<space::Config> default_config_;
  key::SourceHash source_;
  std::unique_ptr<Compiler::Stream> first_, rest_;
  std::unique_ptr<search::Strategy> strategy_;
  search::BudgetMeter meter_{{}};
  uint64_t asked_ = 0;
  std::map<std::string, store::TrialRow> history_;  // by config; trials of earlier studies of this key
  std::vector<store::TrialRow> unwritten_;
  std::vector<Good> good_;
  std::optional<size_t> default_good_;  // index in good_
  // A reference that the definition names (references.cpp).
  std::vector<space::Instance::ReferenceSpec> reference_;  // by place
  std::string reference_build_;                            // its build key
  std::shared_ptr<const measure::Candidate> trusted_kernel_;
  std::shared_ptr<const Measurer::AllHostOutputs> trusted_outputs_;
  bool cancelled_ = false;
  bool lease_lost_ = false;
  bool trusted_reference_ = false;  // configs are compared with it
  // The first config that ran and was right. Every GPU times it; without a trusted reference others are compared with
  // it.
  std::shared_ptr<const measure::Candidate> yardstick_;
  double yardstick_us_ = 0;  // as on the first GPU when the study began
  measure::Policy::Method method_ = measure::Policy::Method::automatic;
  bool sort_wrong_results_ = false;
  double best_us_ = 0;
  double default_us_ = 0;
  double told_default_us_ = 0;  // of the default config, as far as the search is told; 0: default_us_
  std::string best_config_;
  // Early stop.
  std::optional<measure::EarlyStop> early_stop_;
  double quickest_ms_ = 0;  // of the good trials, as the worker saw it
  int best_samples_ = 0;
  int launches_ = 1;                // of a sample
  std::vector<int> also_launches_;  // at the other places
  std::vector<std::pair<space::Config, measure::SeenTrial>> seen_;
  std::map<std::string, int> value_ids_;
  // What was compiled and not run.
  Doubts doubts_;
  std::vector<std::pair<space::Config, Promise>> skipped_;
  // Where the default config gives no reference: who agrees with whom.
  struct Group {
    int configs = 0;
    std::string example;
  };
  std::map<int, Group> groups_;
  int compilations_before_ = 0;
  bool space_used_up_ = false;
  bool no_workers_ = false;  // a config could not be given to any compile worker
  // The GPUs. Last: their threads use the rest.
  std::deque<Item> queue_;  // compiled, to be measured before anything else
  int in_flight_ = 0;
  bool lost_device_ = false;  // a GPU failed: what was measured there alone is not to be published
  std::atomic<bool> give_up_{false};
  Lanes lanes_;
};

/// A trial as a search sees it.
search::Told told_of(const store::TrialRow& row);

/// CUDA source of the measuring worker's own kernels as a compile job for `arch`.
CompileJob utility_job(const std::string& arch, const std::string& nvrtc_build);

}  // namespace jitune::tune
