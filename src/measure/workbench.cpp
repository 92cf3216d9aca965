#include "measure/workbench.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "measure/duel.hpp"

namespace jitune::measure {
namespace {

constexpr double kFirstSettleMs = 30;  // a fresh context: clocks from the bottom
constexpr double kShortUs = 20;        // below, a single launch is not resolved to 1 % (SEARCH.md, Timing)
constexpr double kHopelessFactor = 6;  // first launches of good configs were seen to take 4 times their time
constexpr double kHopelessUs = 20;     // what a first launch may cost on top, whatever the kernel
constexpr double kHopelessAlone = 3;   // the second launch, without that excuse
constexpr double kWarmUpShare = 0.2;   // of a fixed time
constexpr int kRoundsInAnyCase = 15;   // of a rematch; more where they cost little
constexpr double kLongRematchMs = 100;
constexpr double kOverheadUs = 10;  // of events around a single launch, generously

/// A number in [0, bound) for this seed and counter (the finaliser of splitmix64).
uint64_t draw(uint64_t seed, uint64_t counter, uint64_t bound) {
  uint64_t z = seed + (counter + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return (z ^ (z >> 31)) % bound;
}

/// Leaves the GPU to an application for the rest of the time: after every few milliseconds of use, a pause.
class Rests {
 public:
  explicit Rests(double share) : share_(share) {}

  /// True where there was a pause.
  bool rest() {
    const double busy_ms = ms_since(since_);
    if (share_ >= 1 || busy_ms < kPieceMs) return false;
    const double pause_ms = busy_ms * (1 / share_ - 1);
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(pause_ms));
    rested_ms_ += pause_ms;
    since_ = Clock::now();
    return true;
  }
  double rested_ms() const { return rested_ms_; }

 private:
  static constexpr double kPieceMs = 1;
  double share_;
  double rested_ms_ = 0;
  Clock::time_point since_ = Clock::now();
};

}  // namespace

Workbench::Workbench(const gpu::Driver& driver, Setup&& setup, CUstream_st* stream, int64_t memory_bytes)
    : driver_(driver),
      setup_(std::move(setup)),
      memory_bytes_(memory_bytes),
      buffers_(driver_, utility_, stream),
      checker_(driver_, utility_, buffers_, timer_, stream) {
  stream_.driver = &driver;
  stream_.handle = stream;
}

gpu::Trouble Workbench::prepare(int64_t l2_bytes, const Workbench* first) {
  if (auto bad = utility_.load(driver_, setup_.utility_cubin, stream_.handle)) return bad;
  if (auto bad = buffers_.build(setup_)) return bad;
  if (auto bad = timer_.prepare(driver_, utility_, buffers_, stream_.handle, l2_bytes, setup_.policy.cold_l2))
    return bad;
  if (first != nullptr)
    timer_.use_kernel_times(first->kernel_times_.get());
  else if (auto bad = use_kernel_times())
    return bad;
  return checker_.prepare();
}

gpu::Trouble Workbench::use_kernel_times() {
  if (setup_.policy.method != Policy::Method::cupti) return {};
  auto opened = KernelTimes::open(setup_.toolkit_dir);
  if (!opened) return {CUDA_ERROR_NOT_SUPPORTED, opened.error()};
  kernel_times_ = std::move(*opened);
  timer_.use_kernel_times(kernel_times_.get());
  return {};
}

gpu::Trouble Workbench::load(const Candidate& candidate, Loaded& loaded) {
  loaded.candidate = &candidate;
  if (auto bad = loaded.module.load(driver_, candidate.cubin, candidate.lowered_name)) return bad;
  if (auto bad = loaded.module.prepare(candidate.geometry)) return bad;
  if (auto bad = buffers_.fit_scratch(candidate.args)) return bad;
  if (auto bad = loaded.arguments.bind(driver_, candidate, buffers_)) return bad;
  return Arguments::fill_symbols(driver_, loaded.module, buffers_, stream_.handle, !candidate.order.empty());
}

gpu::Trouble Workbench::fit_scratch_everywhere(const Candidate& candidate) {
  if (candidate.also.size() != also_.size())
    return {CUDA_ERROR_INVALID_VALUE, "the candidate is for another number of problems"};
  if (auto bad = buffers_.fit_scratch(candidate.args)) return bad;
  for (size_t i = 0; i < also_.size(); ++i)
    if (auto bad = also_[i].bench->buffers_.fit_scratch(candidate.also[i].args)) return bad;
  return {};
}

gpu::Trouble Workbench::load_everywhere(const Candidate& candidate, Loaded& loaded) {
  if (auto bad = load(candidate, loaded)) return bad;
  for (size_t i = 0; i < also_.size(); ++i) {
    loaded.also.push_back(std::make_unique<Loaded>());
    if (auto bad = also_[i].bench->load(candidate.also[i], *loaded.also.back())) return bad;
  }
  return {};
}

/// A sample at each problem, right after each other; their mean by weight, or one that does not count where one of them
/// does not.
gpu::Trouble Workbench::sample_everywhere(Loaded& loaded, double& us) {
  if (auto bad = timer_.sample(loaded, us)) return bad;
  double sum = weight_ * us, weights = weight_;
  bool counts = us > 0;
  for (size_t i = 0; i < also_.size(); ++i) {
    double other_us = 0;
    if (auto bad = also_[i].bench->timer_.sample(*loaded.also[i], other_us)) return bad;
    sum += also_[i].weight * other_us;
    weights += also_[i].weight;
    counts = counts && other_us > 0;
  }
  us = counts ? sum / weights : 0;
  return {};
}

/// After a rest the SMs are kept busy until their clock is what it was under load.
gpu::Trouble Workbench::warm_up() {
  const Clock::time_point start = Clock::now();
  while (true) {
    int mhz = 0;
    if (auto bad = timer_.read_clock(mhz)) return bad;
    if (clock_gate_.open(mhz, ms_since(start))) return {};
    if (auto bad = timer_.warm_up(1)) return bad;
  }
}

gpu::Trouble Workbench::trial(const TrialRequest& request, TrialReply& reply, Finding& finding) {
  const bool rested = timer_.rested();
  Loaded loaded;
  Clock::time_point start = Clock::now();
  const auto lap = [&start] {
    const Clock::time_point now = Clock::now();
    return std::chrono::duration<double, std::milli>(now - std::exchange(start, now)).count();
  };
  if (auto bad = load(request.candidate, loaded)) return bad;
  if (auto bad = loaded.module.facts(request.candidate.geometry, reply.facts)) return bad;
  reply.load_ms = lap();
  const bool reference = request.reference && setup_.policy.check;
  if (auto bad = reference ? checker_.make_reference(loaded, reply.first_us, finding)
                           : checker_.run(loaded, reply.first_us, finding))
    return bad;
  reply.check_ms = lap();
  if (finding.status == TrialStatus::wrong_result && request.group) return checker_.sort(finding.group);
  if (finding.status != TrialStatus::ok) return {};
  if (!request.candidate.order.empty()) return time_reference(loaded, reply);
  if (rested && !first_trial_)
    if (auto bad = warm_up()) return bad;
  if (!std::exchange(method_chosen_, true)) {
    if (request.launches > 0) {
      setup_.policy.method = request.method;
      setup_.launches = request.launches;
    }
    if (auto bad = choose_method(loaded, reply)) return bad;
  }
  bool hopeless = false;
  if (auto bad = is_hopeless(loaded, request, reply, hopeless)) return bad;
  if (!hopeless)
    if (auto bad = take_samples(loaded, request, reply)) return bad;
  reply.run_ms = lap();
  if (auto bad = checker_.look_again(finding)) return bad;
  reply.check_ms += lap();
  return {};
}

/// Single launches: a reference kernel may be many times slower than what is tuned, and its time is only shown.
gpu::Trouble Workbench::time_reference(Loaded& loaded, TrialReply& reply) {
  const Clock::time_point start = Clock::now();
  while (reply.samples_us.size() < 3 && (reply.samples_us.empty() || ms_since(start) < kLongRematchMs)) {
    double us = 0;
    if (auto bad = timer_.time_alone(loaded, us)) return bad;
    reply.samples_us.push_back(us);
  }
  reply.stop = "count";
  reply.run_ms = ms_since(start);
  return {};
}

/// Decided once, by the study's first candidate that runs: times of two methods are not comparable.
gpu::Trouble Workbench::choose_method(Loaded& loaded, const TrialReply& reply) {
  const Policy::Method wanted = setup_.policy.method;
  if (wanted == Policy::Method::stream || wanted == Policy::Method::cupti) return {};
  double us = reply.first_us;
  for (int i = 0; i < 2; ++i) {  // without the cost of a first launch
    double again_us = 0;
    if (auto bad = timer_.time_alone(loaded, again_us)) return bad;
    us = std::min(us, again_us);
  }
  if (wanted == Policy::Method::automatic && us >= kShortUs) return {};
  const int launches = setup_.launches > 0 ? setup_.launches : Timer::graph_launches(us);
  return timer_.use_graph(launches, memory_bytes_);
}

/// A graph of launches of a config that is many times slower than the best would cost more than it tells: two single
/// launches are enough then. Its sample is the second one.
gpu::Trouble Workbench::is_hopeless(Loaded& loaded, const TrialRequest& request, TrialReply& reply, bool& hopeless) {
  hopeless = false;
  if (timer_.launches() < 2 || setup_.policy.fixed_ms > 0 || request.margins.empty() ||
      !std::isfinite(request.bound_us))
    return {};
  if (reply.first_us < kHopelessFactor * request.bound_us + kHopelessUs) return {};
  double us = 0;
  if (auto bad = timer_.time_alone(loaded, us)) return bad;
  if (us < kHopelessAlone * request.bound_us + kOverheadUs) return {};
  hopeless = true;
  reply.status = TrialStatus::early_stopped;
  reply.samples_us = {us};
  reply.stop = "lost";
  return {};
}

gpu::Trouble Workbench::take_samples(Loaded& loaded, const TrialRequest& request, TrialReply& reply) {
  reply.method = kernel_times_ != nullptr ? Policy::Method::cupti
                 : timer_.launches() > 1  ? Policy::Method::graph
                                          : Policy::Method::stream;
  reply.launches = timer_.launches();
  // The check run was the config's warm-up, which others than single launches by events can't be compared with.
  Series::Rules rules{.min_samples = setup_.policy.min_samples,
                      .max_samples = setup_.policy.max_samples,
                      .margins = request.margins,
                      .bound_us = request.bound_us,
                      .first_us = reply.method == Policy::Method::stream ? reply.first_us : 0,
                      .rested = first_trial_ || timer_.rested()};
  if (std::exchange(first_trial_, false)) rules.settle_limit_ms = kFirstSettleMs;
  if (setup_.policy.fixed_ms > 0) return sample_for_a_time(loaded, reply);
  Series series(rules);
  const Clock::time_point start = Clock::now();
  for (Series::Next next = Series::Next::more; next == Series::Next::more;) {
    double us = 0;
    if (auto bad = timer_.sample(loaded, us)) return bad;
    next = series.add(us, ms_since(start));
    if (next == Series::Next::lost) reply.status = TrialStatus::early_stopped;
    if (next == Series::Next::unusable) {
      reply.status = TrialStatus::launch_error;
      reply.error = "the driver's event times are not usable: zero, negative or not a number again and again";
    }
  }
  reply.samples_us = series.samples_us();
  reply.stop = series.stop();
  if (auto bad = timer_.read_clock(reply.clock_mhz)) return bad;
  clock_gate_.note_busy(reply.clock_mhz);
  return {};
}

/// As tuners do that know no early stop: the first fifth of the time warms up.
gpu::Trouble Workbench::sample_for_a_time(Loaded& loaded, TrialReply& reply) {
  const Clock::time_point start = Clock::now();
  for (double spent_ms = 0; spent_ms < setup_.policy.fixed_ms || reply.samples_us.empty(); spent_ms = ms_since(start)) {
    double us = 0;
    if (auto bad = timer_.sample(loaded, us)) return bad;
    if (ms_since(start) >= setup_.policy.fixed_ms * kWarmUpShare) reply.samples_us.push_back(us);
  }
  reply.stop = "time";
  return timer_.read_clock(reply.clock_mhz);
}

/// The first sample of each, which records its graph and uploads it.
gpu::Trouble Workbench::sample_first(std::vector<Loaded>& loaded, size_t& failed, double& best_us) {
  best_us = std::numeric_limits<double>::infinity();
  for (failed = 0; failed < loaded.size(); ++failed) {
    double us = 0;
    if (auto bad = sample_everywhere(loaded[failed], us)) return bad;
    if (us > 0) best_us = std::min(best_us, us);
  }
  return {};
}

/// Loads finalists and takes the first sample of each. The default config's time decided how many launches make a
/// sample; finalists may be many times faster.
gpu::Trouble Workbench::load_finalists(const RematchRequest& request, std::vector<Loaded>& loaded, size_t& failed) {
  // Scratch grows to the largest first: the addresses that arguments hold must not move afterwards.
  for (failed = 0; failed < loaded.size(); ++failed)
    if (auto bad = fit_scratch_everywhere(request.candidates[failed])) return bad;
  for (failed = 0; failed < loaded.size(); ++failed)
    if (auto bad = load_everywhere(request.candidates[failed], loaded[failed])) return bad;
  double best_us = 0;
  if (auto bad = sample_first(loaded, failed, best_us)) return bad;
  // At several problems each has as many launches a sample as its own first config called for.
  if (!also_.empty() || timer_.launches() < 2 || Timer::graph_launches(best_us) <= timer_.launches()) return {};
  for (Loaded& each : loaded) each.batch.clear();
  failed = 0;
  if (auto bad = timer_.refine(best_us, memory_bytes_)) return bad;
  return sample_first(loaded, failed, best_us);
}

gpu::Trouble Workbench::host_data(const HostDataRequest& request, const SharedMemory& memory) {
  const auto& args = buffers_.args();
  const auto refused = [](const std::string& why) { return gpu::Trouble{CUDA_ERROR_INVALID_VALUE, why}; };
  if (request.offsets.size() != args.size()) return refused("the host's data is of another study");
  for (size_t i = 0; i < args.size(); ++i) {
    const int64_t offset = request.offsets[i];
    const int64_t bytes = args[i].bytes();
    if (offset < 0 || bytes == 0) continue;
    if (offset + bytes > static_cast<int64_t>(memory.bytes()))
      return refused("`" + args[i].name + "` lies outside the shared memory");
    std::byte* host = memory.data() + offset;
    const Buffer& buffer = buffers_[i];
    const auto size = static_cast<size_t>(bytes);
    CUresult result = CUDA_SUCCESS;
    if (request.what == HostDataRequest::What::inputs)
      result = driver_.cuMemcpyDtoH(host, buffer.pristine != 0 ? buffer.pristine : buffer.data, size);
    else if (!buffer.is_output())
      return refused("`" + args[i].name + "` is no output");
    else if (request.what == HostDataRequest::What::outputs)
      result = driver_.cuMemcpyHtoD(buffer.reference, host, size);
    else
      result = driver_.cuMemcpyHtoD(buffer.data, host, size);
    if (auto bad = trouble(driver_, "moving data of the host's reference", result)) return bad;
  }
  // From pageable memory a call may return while the last piece is still on its way.
  if (auto bad = trouble(driver_, "moving data of the host's reference", driver_.cuCtxSynchronize())) return bad;
  if (request.what == HostDataRequest::What::outputs) return checker_.use_reference();
  if (request.what == HostDataRequest::What::outputs_again)
    return checker_.mask_unwritten(request.poison, request.second_poison);
  return {};
}

gpu::Trouble Workbench::rematch(const RematchRequest& request, RematchReply& reply, size_t& failed) {
  const size_t count = request.candidates.size();
  std::vector<Loaded> loaded(count);
  reply.samples_us.assign(count, {});
  if (auto bad = load_finalists(request, loaded, failed)) return bad;
  if (auto bad = warm_up()) return bad;
  Duel duel(count, {.fewest_rounds = request.fewest_rounds,
                    .most_rounds = request.most_rounds,
                    .tie = setup_.policy.tie,
                    .default_index = request.default_index});
  const uint64_t seed = setup_.seed + (++rematches_ << 32);
  std::vector<double> times_us(count);
  std::vector<int> clocks_mhz(count);
  const Clock::time_point start = Clock::now();
  Rests rests(request.share);
  for (uint64_t round = 0; !duel.is_over(); ++round) {
    if (duel.rounds() >= kRoundsInAnyCase && ms_since(start) - rests.rested_ms() > kLongRematchMs) break;
    if (rests.rest())
      if (auto bad = warm_up()) return bad;
    std::vector<size_t> order;
    for (size_t i = 0; i < count; ++i)
      if (duel.is_in(i)) order.push_back(i);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[draw(seed, round * count + i, i)]);
    for (const size_t i : order) {
      failed = i;
      if (auto bad = sample_everywhere(loaded[i], times_us[i])) return bad;
      if (auto bad = timer_.read_clock(clocks_mhz[i])) return bad;
    }
    double again_us = 0;
    failed = order.front();
    if (auto bad = sample_everywhere(loaded[failed], again_us)) return bad;
    duel.add(times_us, clocks_mhz, failed, again_us);
  }
  reply.samples_us = duel.samples_us();
  reply.discarded = duel.discarded();
  reply.launches = timer_.launches();
  return {};
}

}  // namespace jitune::measure
