#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "base/result.hpp"
#include "measure/samples.hpp"
#include "space/instance.hpp"

namespace jitune::measure {

/// How times are taken. Part of the tuning key: times under different policies are not comparable.
struct Policy {
  /// stream: CUDA events around one launch. graph: events around a graph of launches over copies of the buffers, each
  /// used once, so that launches of a few microseconds are resolved. automatic: graph where the default config takes
  /// less than 20 us. cupti: the GPU's own record of each launch, without launch latency; needs libcupti.
  enum class Method : uint8_t { automatic, stream, graph, cupti };
  Method method = Method::automatic;
  bool cold_l2 = true;  ///< L2 is flushed before each sample, outside the timed region
  int min_samples = 3;
  int max_samples = 7;
  std::vector<double> margins{0.15, 0.08, 0.05, 0.04};  ///< EarlyStop's fixed ones; empty: no early stop
  double lost_best = 0.05;  ///< EarlyStop's probability that a study gives up its true best config
  double fixed_ms = 0;      ///< more than 0: every config is sampled for so long, whatever else is said here
  double tie = 0.01;        ///< relative difference below which two configs are equal
  bool check = true;        ///< false: outputs are not compared; writes out of bounds are still found

  /// `cold-l2 auto samples=3..7 stop=15/8/5/4% lost=5% tie=1%`, and ` unchecked`: for the key and for people.
  std::string text() const;
};
const char* to_string(Policy::Method method) noexcept;
std::optional<Policy::Method> parse_method(std::string_view word) noexcept;

/// Where the worker gets a buffer's contents from.
struct DataSource {
  enum class Kind : uint8_t { fill, ipc, shared_memory, device };
  Kind kind = Kind::fill;
  std::string ipc_handle;  ///< the 64 bytes of a CUipcMemHandle; the mapping is closed before any candidate runs
  int64_t offset = 0;      ///< of the buffer within the mapped allocation
  std::string shm_name;    ///< for shm_open: `/jitune-...`
  uint64_t address = 0;    ///< device: an address in the measuring context, only where that is the caller's
};

/// The first request to a fresh worker: which GPU, which buffers. Candidates may run once it is answered.
struct Setup {
  std::string device_uuid;
  std::vector<space::ArgSpec> args;  ///< of the default config: sizes of buffers do not depend on the config
  std::vector<DataSource> data;      ///< by arg; empty: fills for all
  uint64_t seed = 1;
  Policy policy;
  std::string utility_cubin;       ///< utility_source() compiled for this device
  std::string toolkit_dir;         ///< of NVRTC's library, beside which libcupti may lie
  int64_t memory_limit_bytes = 0;  ///< 0: nine tenths of what is free
  int launches = 0;                ///< of a graph sample; 0: by the reference's time. Set when a worker is replaced

  /// The other problems of a study that is made at several: buffers of their own, filled. Candidates hold a view for
  /// each, and times are means by weight.
  struct Problem {
    std::string text;  ///< `rows=4096`, for errors
    double weight = 1;
    std::vector<space::ArgSpec> args;
    int launches = 0;  ///< as above
  };
  std::string text;   ///< of the first problem, likewise
  double weight = 1;  ///< likewise
  std::vector<Problem> also;
};

struct SetupReply {
  bool ok = false;
  bool out_of_memory = false;  ///< the study's outcome, not a config's fault
  std::string error;
  double ready_ms = 0;  ///< context, buffers and copies
  int64_t buffer_bytes = 0;
  int64_t free_bytes = 0;  ///< of the GPU's memory, beside these buffers
};

/// A compiled config, ready to run.
struct Candidate {
  std::string cubin;
  std::string lowered_name;
  space::Geometry geometry;
  std::vector<space::ArgSpec> args;
  /// Of a reference kernel: which args are its parameters, in its order. Empty: those with `pass`, as they stand. A
  /// reference kernel never decides how the study's samples are taken, and need not have its symbols.
  std::vector<int> order = {};
  /// At the setup's other problems, in their order: geometry and args. The rest is as here, and does not travel.
  std::vector<Candidate> also = {};
};

struct TrialRequest {
  Candidate candidate;
  bool reference = false;                                     ///< its outputs become what the others are compared with
  bool group = false;                                         ///< the reference is none to trust: sort wrong results
  double bound_us = std::numeric_limits<double>::infinity();  ///< best median so far
  std::vector<double> margins;                                ///< early stop after sample 1, 2, ...; empty: never
  /// How the study's first GPU takes samples, and launches in one; 0: as the policy says. Counts until a worker has
  /// taken samples: a study's times are all of one method.
  Policy::Method method = Policy::Method::automatic;
  int launches = 0;
  std::vector<int> also_launches = {};  ///< at the other problems
};

/// A policy in the words of Options::measure: `cold` or `hot`, `auto`, `stream` or `graph`, `unchecked`, in any order.
Result<Policy> parse_policy(std::string_view words);

/// Words of the trial status in tables and messages; the compile side's are added by tune.
enum class TrialStatus : uint8_t {
  ok,
  early_stopped,
  skipped,
  compile_error,
  compile_timeout,
  compile_crash,
  launch_error,
  run_timeout,
  run_crash,
  wrong_result,
  out_of_bounds,
};
const char* to_string(TrialStatus status) noexcept;
std::optional<TrialStatus> parse_trial_status(std::string_view word) noexcept;

struct TrialReply {
  TrialStatus status = TrialStatus::launch_error;
  std::vector<double> samples_us;  ///< those that rank: after warm-up, in order
  double first_us = 0;             ///< the very first launch, never scored
  space::KernelFacts facts;
  int clock_mhz = 0;                               ///< SM clock right after the samples; 0 when unknown
  Policy::Method method = Policy::Method::stream;  ///< how the samples were taken; never automatic
  int launches = 1;                                ///< launches that a sample is the mean of
  std::vector<int> also_launches;                  ///< at the other problems
  std::string stop;                                ///< why sampling ended: agreed, count, time, lost
  std::string error;  ///< a sentence; names the output and the first differing element for wrong_result
  int group = 0;  ///< of a wrong result where asked for: 1, 2, ...: all of one number agree; 0: too many to tell apart
  bool context_lost = false;  ///< the worker ends after this reply
  bool device_lost = false;   ///< the GPU failed, not the config
  bool not_run = false;       ///< the host's word, not on the wire: there was no worker to run it
  double load_ms = 0;         ///< module and arguments
  double check_ms = 0;        ///< runs over poison, comparison
  double run_ms = 0;          ///< warm-up and samples
  double wall_ms = 0;
};

/// Interleaved re-measuring of finalists, by the rules of Duel. Beyond 15 rounds it goes on only while fewer than 100
/// ms are spent: samples of a 70 us kernel scatter by 1.1 % on an H200, and 15 of them do not tell 0.6 % from nothing.
struct RematchRequest {
  std::vector<Candidate> candidates;
  int fewest_rounds = 8;
  int most_rounds = 60;
  int default_index = -1;  ///< the default config's place among them; -1: it is not
  double share = 1;        ///< of the GPU's time: beside an application it rests after every few milliseconds
};

struct RematchReply {
  bool ok = false;
  std::string error;
  std::vector<std::vector<double>> samples_us;  ///< by candidate, by round; shorter where one lost early
  int discarded = 0;                            ///< rounds that did not count: throttling or drift within them
  bool context_lost = false;
  int launches = 1;  ///< that a sample is the mean of
};

/// Occupancy of a compiled config, where the grid or scratch sizes depend on it (`kernel.max_blocks_per_sm`).
struct FactsRequest {
  std::string cubin, lowered_name;
  space::Geometry geometry;  ///< block and shared_bytes count
};

/// Moves the study's data between the worker's buffers and shared memory of the host, for a reference that the host
/// computes.
struct HostDataRequest {
  /// inputs: what configs read, out of the worker. outputs: the reference, into it. outputs_again: made a second time
  /// over another poison, so that elements that kept both are known to be unwritten.
  enum class What : uint8_t { inputs, outputs, outputs_again };
  What what = What::inputs;
  std::string shm_name;
  std::vector<int64_t> offsets;            ///< by arg; -1: not in there
  uint32_t poison = 0, second_poison = 0;  ///< outputs_again
  int problem = 0;                         ///< of the setup's; 0 is the first
};

struct HostDataReply {
  bool ok = false;
  std::string error;
  bool context_lost = false;
};

// Every message is a map with `op`: setup, trial, rematch, facts. from_json fails on what is not one.
Json to_json(const Setup& setup);
Json to_json(const TrialRequest& request);
Json to_json(const RematchRequest& request);
Json to_json(const FactsRequest& request);
Json to_json(const HostDataRequest& request);
Json to_json(const HostDataReply& reply);
Result<HostDataRequest> host_data_request_from_json(const Json& json);
Result<HostDataReply> host_data_reply_from_json(const Json& json);
Json to_json(const SetupReply& reply);
Json to_json(const TrialReply& reply);
Json to_json(const RematchReply& reply);
Result<Setup> setup_from_json(const Json& json);
Result<TrialRequest> trial_request_from_json(const Json& json);
Result<RematchRequest> rematch_request_from_json(const Json& json);
Result<FactsRequest> facts_request_from_json(const Json& json);
Result<SetupReply> setup_reply_from_json(const Json& json);
Result<TrialReply> trial_reply_from_json(const Json& json);
Result<RematchReply> rematch_reply_from_json(const Json& json);
Json facts_to_json(const space::KernelFacts& facts, const std::string& error);
Result<space::KernelFacts> facts_from_json(const Json& json);  ///< fails with the worker's error

/// CUDA source of the worker's own kernels (fills, comparison of outputs), without any #include. Compiled by tune like
/// any other source; `utility_entries` are its extern "C" names.
std::string utility_source();

}  // namespace jitune::measure
