#include "runtime/kernel_state.hpp"

#include <algorithm>
#include <cstring>
#include <iomanip>
#include <sstream>
#include <utility>

#include "gpu/driver.hpp"
#include "runtime/capture.hpp"
#include "runtime/resolver.hpp"
#include "runtime/signature.hpp"
#include "space/definition_json.hpp"

namespace jitune::runtime {
namespace {

constexpr size_t kMaxArgs = 64;  // Plan keeps a launch's parameters on the stack
constexpr size_t kMaxTensorMaps = 8;
constexpr std::chrono::milliseconds kLookWhileWaiting{20};

enum ValueKind : uint8_t { kUnset, kInt, kBool, kWord };  // two bits each in Problem::kinds_
static_assert(Problem::kMaxValues * 2 <= 32);

ValueKind kind_of(uint32_t kinds, size_t slot) {
  return static_cast<ValueKind>(kinds >> 2 * slot & 3);
}

void check_sizes(const KernelDefinition& definition) {
  if (definition.problem.size() > Problem::kMaxValues)
    throw Error(ErrorCode::bad_definition,
                "there are " + std::to_string(definition.problem.size()) + " problem values, at most " +
                    std::to_string(Problem::kMaxValues) + " fit a Problem",
                definition.name);
  auto check_args = [&](const std::vector<Arg>& args) {
    const auto maps =
        std::count_if(args.begin(), args.end(), [](const Arg& arg) { return arg.kind == ArgKind::tensor_map; });
    if (args.size() > kMaxArgs || static_cast<size_t>(maps) > kMaxTensorMaps)
      throw Error(ErrorCode::bad_definition,
                  "at most " + std::to_string(kMaxArgs) + " args and " + std::to_string(kMaxTensorMaps) +
                      " tensor maps can be launched",
                  definition.name);
  };
  check_args(definition.args);
  for (const auto& variant : definition.variants)
    if (variant.args) {
      check_args(*variant.args);
      // What callers pass can't depend on the device that they happen to run on.
      const auto own = caller_args(definition.args), other = caller_args(*variant.args);
      const bool same = std::equal(own.begin(), own.end(), other.begin(), other.end(), [](const Arg* a, const Arg* b) {
        return a->name == b->name && (a->kind == ArgKind::scalar) == (b->kind == ArgKind::scalar);
      });
      if (!same)
        throw Error(
            ErrorCode::bad_definition,
            "the args that callers pass (buffers and scalars) must be the same, in the same order, in every variant",
            definition.name, variant.when);
    }
}

}  // namespace

KernelState::KernelState(std::shared_ptr<TunerState> tuner, KernelDefinition definition) : tuner_(std::move(tuner)) {
  check_sizes(definition);
  if (definition.host_reference && !definition.host_reference->function)
    throw Error(ErrorCode::bad_definition, "host_reference has a version but no function", definition.name);
  model_ = space::Model::make(std::move(definition));
  caller_args_ = caller_args(model_->definition().args).size();
}

void KernelState::raise(ErrorCode code, const std::string& message) const {
  throw Error(code, message, model_->name());
}

Problem KernelState::make_problem(std::initializer_list<std::pair<const char*, Value>> values) {
  Problem problem;
  problem.kernel_ = this;
  problem.names_ = weak_from_this();
  problem.count_ = static_cast<uint8_t>(model_->problem().size());
  for (const auto& [name, value] : values) set(problem, name, value);
  return problem;
}

void KernelState::set(Problem& problem, const char* name, const Value& value) {
  const auto& known = model_->problem();
  const auto found =
      std::find_if(known.begin(), known.end(), [&](const ProblemValue& each) { return each.name == name; });
  if (found == known.end()) {
    std::string names;
    for (const auto& each : known) names += (names.empty() ? "" : ", ") + each.name;
    raise(ErrorCode::bad_problem, std::string("there is no problem value '") + name + "'; it has: " + names);
  }
  const auto slot = static_cast<unsigned>(found - known.begin());
  ValueKind kind = kUnset;
  if (value.is_word()) {
    const std::lock_guard lock(mutex_);
    const auto word = std::find(words_.begin(), words_.end(), value.as_word());
    problem.values_[slot] = word - words_.begin();
    kind = kWord;
    if (word == words_.end()) words_.push_back(value.as_word());
  } else {
    problem.values_[slot] = value.as_int();
    kind = value.is_bool() ? kBool : kInt;
  }
  problem.kinds_ = (problem.kinds_ & ~(3u << 2 * slot)) | uint32_t{kind} << 2 * slot;
  problem.hash_ = PlanKey::hash_of(problem.values_, problem.kinds_, problem.count_, problem.config_);
}

void KernelState::set_config(Problem& problem, std::initializer_list<std::pair<const char*, Value>> config) {
  space::Config given;
  for (const auto& [name, value] : config) {
    if (!has_param(name)) raise(ErrorCode::bad_problem, std::string("there is no param '") + name + "'");
    given[name] = value;
  }
  const std::lock_guard lock(mutex_);
  const auto known = std::find(configs_.begin(), configs_.end(), given);
  problem.config_ = given.empty() ? 0 : static_cast<uint32_t>(known - configs_.begin()) + 1;
  if (!given.empty() && known == configs_.end()) configs_.push_back(std::move(given));
  problem.hash_ = PlanKey::hash_of(problem.values_, problem.kinds_, problem.count_, problem.config_);
}

bool KernelState::has_param(const std::string& name) const {
  const auto& definition = model_->definition();
  const auto in = [&](const std::vector<Param>& params) {
    return std::any_of(params.begin(), params.end(), [&](const Param& param) { return param.name == name; });
  };
  return in(definition.params) ||
         std::any_of(definition.configs.begin(), definition.configs.end(),
                     [&](const auto& config) {
                       return std::any_of(config.begin(), config.end(), [&](const auto& p) { return p.first == name; });
                     }) ||
         std::any_of(definition.variants.begin(), definition.variants.end(),
                     [&](const Variant& variant) { return variant.params && in(*variant.params); });
}

space::Config KernelState::given_config(const Problem& problem) {
  const std::lock_guard lock(mutex_);
  return problem.config_ == 0 ? space::Config() : configs_[problem.config_ - 1];
}

space::ProblemValues KernelState::values_of(const Problem& problem) {
  space::ProblemValues values;
  const auto& known = model_->problem();
  for (size_t i = 0; i < known.size(); ++i) {
    switch (kind_of(problem.kinds_, i)) {
      case kInt:
        values[known[i].name] = Value(static_cast<long long>(problem.values_[i]));
        break;
      case kBool:
        values[known[i].name] = Value(problem.values_[i] != 0);
        break;
      case kWord: {
        const std::lock_guard lock(mutex_);
        values[known[i].name] = Value(words_[static_cast<size_t>(problem.values_[i])]);
        break;
      }
      default:
        raise(ErrorCode::bad_problem, "the problem value '" + known[i].name + "' was not set");
    }
  }
  return values;
}

void KernelState::check_usable(const Problem& problem) const {
  if (!tuner_->is_open()) raise(ErrorCode::lifetime, "it is used after its Tuner was destroyed; keep the Tuner longer");
  if (is_forked_child())
    raise(ErrorCode::lifetime, "it is used in a forked child; CUDA and jitune work only in the process that made them");
  if (problem.kernel_ != this)
    raise(ErrorCode::bad_problem, problem.kernel_ == nullptr ? "the Problem is empty; make it with Kernel::problem"
                                                             : "the Problem was made by another kernel");
}

/// The current context's number; 0 when none is current.
uint64_t KernelState::context_number(const gpu::Driver& driver) noexcept {
  if (driver.cuCtxGetId != nullptr) {
    unsigned long long number = 0;
    return driver.cuCtxGetId(nullptr, &number) == CUDA_SUCCESS ? number : 0;
  }
  CUcontext context = nullptr;  // drivers older than 12.0: the pointer must do
  return driver.cuCtxGetCurrent(&context) == CUDA_SUCCESS ? reinterpret_cast<uintptr_t>(context) : 0;
}

/// The plan of a problem that was seen before in the current context, if it is still the one to launch.
[[gnu::always_inline]] inline Plan* KernelState::known_plan(const Problem& problem, bool may_tune) const noexcept {
  const gpu::Driver* driver = driver_.load(std::memory_order_acquire);
  if (problem.kernel_ != this || driver == nullptr || !tuner_->is_open() || is_forked_child()) return nullptr;
  const Track track = track_of(problem);
  const bool heuristic = track == Track::heuristic;
  const uint64_t context = context_number(*driver);
  Plan* plan = plans_.find(problem.hash_, PlanKey::tag_of(problem.hash_, context, heuristic), [&](const Plan& each) {
    return each.fits(context, heuristic, problem.kinds_, problem.config_, problem.count_, problem.values_.data());
  });
  return plan == nullptr || plan->is_stale(may_tune ? track : Track::lookup) ? nullptr : plan;
}

Plan& KernelState::plan(CUstream stream, const Problem& problem, std::span<const void* const> arguments,
                        bool may_tune) {
  if (Plan* known = known_plan(problem, may_tune)) return *known;
  check_usable(problem);
  const gpu::Driver* driver = driver_.load(std::memory_order_acquire);
  if (driver == nullptr) {
    auto loaded = gpu::driver();
    if (!loaded) raise(ErrorCode::no_gpu, loaded.error());
    driver = *loaded;
    driver_.store(driver, std::memory_order_release);
  }
  PlanKey key;
  CUcontext current = nullptr;
  const CUresult code = driver->cuCtxGetCurrent(&current);
  if (code != CUDA_SUCCESS) raise(ErrorCode::launch_failed, driver->describe("asking for the current context", code));
  if (current == nullptr)
    raise(ErrorCode::launch_failed,
          "no CUDA context is current on this thread; call cudaSetDevice or cuCtxSetCurrent before the launch");
  key.context = context_number(*driver);
  key.values = problem.values_;
  key.kinds = problem.kinds_;
  key.count = problem.count_;
  key.config = problem.config_;
  for (size_t i = 0; i < key.count; ++i)
    if (kind_of(problem.kinds_, i) == kUnset) (void)values_of(problem);  // throws, naming the value
  const Track track = track_of(problem);
  key.heuristic = track == Track::heuristic;
  const bool capturing = is_capturing(*driver, stream);
  if (Plan* known = plans_.find(key))
    if (capturing || !known->is_stale(may_tune ? track : Track::lookup)) return *known;
  // One thread makes a problem's plan, the others wait for it; not in a capture, which may not wait for tuning.
  if (!may_tune || capturing) return make_plan(*driver, stream, problem, arguments, may_tune, capturing, key);
  if (Plan* made = take_turn(key, problem)) return *made;
  struct Turn {
    KernelState& kernel;
    const PlanKey& key;
    ~Turn() { kernel.end_turn(key); }
  } turn{*this, key};
  return make_plan(*driver, stream, problem, arguments, may_tune, capturing, key);
}

Plan& KernelState::make_plan(const gpu::Driver& driver, CUstream stream, const Problem& problem,
                             std::span<const void* const> arguments, bool may_tune, bool capturing,
                             const PlanKey& key) {
  const auto started = Clock::now();
  const RelaxedCapture relaxed(driver);
  Resolver resolver(*this, driver, stream, problem, arguments, may_tune, capturing);
  Plan& made = *plans_.insert(resolver.resolve(key, [&](std::unique_ptr<Plan> meanwhile) {
    plans_.insert(std::move(meanwhile));
    made_.notify_all();
  }));
  resolver.start_behind();  // its result replaces this plan, so not before
  const double wall_ms = ms_since(started);
  tuner_->stalls.fetch_add(1, std::memory_order_relaxed);
  tuner_->stall_us.fetch_add(static_cast<long long>(wall_ms * 1000), std::memory_order_relaxed);
  tell_choice(made, problem, wall_ms, wall_ms, resolver.fallback());
  if (!capturing) tuner_->tell_misses_now_and_then();
  return made;
}

void KernelState::prepare_default(CUstream stream, const Problem& problem, const Plan& chosen) {
  const gpu::Driver& driver = *driver_.load(std::memory_order_acquire);
  PlanKey key = chosen.key();
  if (key.heuristic || key.config != 0 || is_capturing(driver, stream)) return;
  key.heuristic = true;
  if (plans_.find(key) != nullptr) return;
  const RelaxedCapture relaxed(driver);
  const Problem plain = Problem(problem).on(Track::heuristic);
  // A bundle's winner serves where no NVRTC is installed, and processes that are started again and again on one would
  // compile each time.
  const bool may_compile = chosen.choice().source != Choice::Source::bundle;
  Resolver resolver(*this, driver, stream, plain, {}, false, false);
  if (auto plan = resolver.default_plan(key, may_compile)) plans_.insert(std::move(plan));
}

/// Waits while another thread makes this plan. Null: it is this thread's turn to make it, and to end_turn.
Plan* KernelState::take_turn(const PlanKey& key, const Problem& problem) {
  std::unique_lock lock(making_mutex_);
  while (std::find(making_.begin(), making_.end(), key) != making_.end()) {
    made_.wait_for(lock, kLookWhileWaiting);
    if (Plan* ready = known_plan(problem, true)) return ready;
    if (!tuner_->is_open()) check_usable(problem);  // throws
  }
  if (Plan* ready = known_plan(problem, true)) return ready;
  making_.push_back(key);
  return nullptr;
}

void KernelState::end_turn(const PlanKey& key) {
  {
    const std::lock_guard lock(making_mutex_);
    making_.erase(std::find(making_.begin(), making_.end(), key));
  }
  made_.notify_all();
}

/// One line for each decision: which rule gave which config, and what it took; and the counters' callback.
void KernelState::tell_choice(const Plan& plan, const Problem& problem, double wall_ms, double stall_ms,
                              const std::string& fallback) {
  const std::string values = space::short_text(values_of(problem));
  std::ostringstream text;
  text << values << ": " << plan.choice() << " (" << std::fixed << std::setprecision(1) << wall_ms << " ms)";
  tuner_->log().info("chosen", model_->name(), text.str());
  const std::string& rule = plan.choice().rule;
  tuner_->count_decision(rule);
  const auto& hook = tuner_->settings().options.decisions;
  if (hook.function == nullptr) return;
  Decision decision;
  decision.kernel = model_->name();
  decision.problem = values;
  decision.rule = rule;
  decision.config = plan.choice().config;
  decision.miss = plan.miss() != nullptr;
  decision.hit = !decision.miss && rule != "given" && rule != "heuristic" && rule != "default";
  decision.stall_ms = stall_ms;
  decision.fallback = fallback;
  hook.function(hook.user, decision);
}

/// What misses are tuned by; made once.
const std::string& KernelState::definition_text() {
  std::call_once(definition_once_, [&] { definition_text_ = space::definition_text(space::self_contained(*model_)); });
  return definition_text_;
}

/// The problem whose values a plan was made for.
Problem KernelState::problem_of(const PlanKey& key) {
  Problem problem;
  problem.kernel_ = this;
  problem.names_ = weak_from_this();
  problem.count_ = key.count;
  problem.kinds_ = key.kinds;
  problem.values_ = key.values;
  problem.config_ = key.config;
  problem.hash_ = PlanKey::hash_of(key.values, key.kinds, key.count, key.config);
  return problem;
}

void KernelState::refresh(const Problem& problem, CUcontext context, const std::string& key_sha256,
                          const Reasons& reasons) {
  const gpu::Driver* driver = driver_.load(std::memory_order_acquire);
  if (driver == nullptr || driver->cuCtxPushCurrent(context) != CUDA_SUCCESS) return;
  PlanKey key;
  key.context = context_number(*driver);
  key.values = problem.values_;
  key.kinds = problem.kinds_;
  key.count = problem.count_;
  key.config = problem.config_;
  std::vector<std::pair<PlanKey, const Plan*>> outdated{{key, plans_.find(key)}};
  for (Plan* each : plans_.all()) {
    if (each->miss() == nullptr || each->miss()->key.sha256 != key_sha256 || each->key() == key) continue;
    if (each->key().context == key.context)
      outdated.emplace_back(each->key(), each);
    else
      each->supersede();  // another context's launches look for themselves
  }
  for (const auto& [each, old] : outdated) {
    const auto started = Clock::now();
    const Problem exact = problem_of(each).on(track_of(problem));
    try {
      Resolver resolver(*this, *driver, nullptr, exact, {}, false, false);
      resolver.explain(reasons);
      auto plan = resolver.resolve(each, {});
      if (old != nullptr)
        for (CUstream stream : old->streams()) (void)plan->reserve(stream);
      tell_choice(*plans_.insert(std::move(plan)), exact, ms_since(started), 0, resolver.fallback());
    } catch (const std::exception& error) {
      tuner_->log().warning("swap_failed", model_->name(), error.what(), key_sha256);
    }
  }
  driver->cuCtxPopCurrent(nullptr);
}

void KernelState::end() noexcept {
  if (is_forked_child()) return;
  try {
    if (auto services = tuner_->services()) tell_misses(services->store());
  } catch (...) {  // out of memory: counts are lost, nothing else
  }
}

void KernelState::tell_misses(store::Store& store) {
  for (Plan* each : plans_.all()) {
    const Miss* miss = each->miss();
    const long long count = miss == nullptr ? 0 : each->take_misses();
    if (count <= 0) continue;
    if (auto told = store.record_miss(miss->key, miss->problem, miss->device, {}, count); !told)
      tuner_->log().debug("miss_not_recorded", model_->name(), told.error());
  }
}

void KernelState::launch(CUstream stream, const Problem& problem, std::span<const void* const> arguments) {
  Plan* chosen = known_plan(problem, true);
  if (chosen == nullptr || !chosen->is_plain() || arguments.size() != caller_args_) [[unlikely]] {
    launch_any(chosen, stream, problem, arguments);
    return;
  }
  const CUresult code = chosen->launch_plain(*driver_.load(std::memory_order_relaxed), stream, arguments);
  if (code != CUDA_SUCCESS) [[unlikely]]
    raise_launch(code, *chosen);
  chosen->count_miss();
  tuner_->launches.add(1);
}

/// Everything that is not one look-up and one cuLaunchKernel; apart, so that the path of those stays small.
void KernelState::launch_any(Plan* chosen, CUstream stream, const Problem& problem,
                             std::span<const void* const> arguments) {
  if (arguments.size() != caller_args_)
    raise(ErrorCode::bad_arguments, std::to_string(arguments.size()) + " arguments were given, it takes " +
                                        std::to_string(caller_args_) +
                                        ": buffers and scalars, in the definition's order");
  if (chosen == nullptr) chosen = &plan(stream, problem, arguments, true);
  const auto launched = chosen->launch(stream, arguments);
  if (launched.needs_memory)
    raise(
        ErrorCode::not_prepared,
        "the stream is being captured and this kernel has no scratch memory for it yet; call prepare with this stream "
        "before the capture");
  if (launched.code != CUDA_SUCCESS) raise_launch(launched.code, launched.what);
  chosen->count_miss();
  tuner_->launches.add(1);
}

void KernelState::raise_launch(CUresult code, const Plan& plan) const {
  raise_launch(code, "launching with config " + plan.choice().config);
}

void KernelState::raise_launch(CUresult code, const std::string& what) const {
  raise(ErrorCode::launch_failed, driver_.load(std::memory_order_relaxed)->describe(what, code));
}

void KernelState::set_symbol(const std::string& name, const void* data, size_t bytes) {
  const auto& args = model_->definition().args;
  const bool known = std::any_of(args.begin(), args.end(),
                                 [&](const Arg& arg) { return arg.kind == ArgKind::symbol && arg.name == name; });
  if (!known) raise(ErrorCode::bad_arguments, "it has no symbol arg '" + name + "'");
  {
    const std::lock_guard lock(mutex_);
    symbols_[name].assign(static_cast<const char*>(data), bytes);
  }
  for (Plan* each : plans_.all())
    if (auto trouble = each->set_symbol(name, data, bytes)) raise(ErrorCode::bad_arguments, trouble.message);
}

}  // namespace jitune::runtime
