// Studies by hand: Tuner::tune and Tuner::compile, and a study as a file.
#include "jitune/study.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/files.hpp"
#include "base/json.hpp"
#include "jitune/scoped_inputs.hpp"
#include "runtime/caller_data.hpp"
#include "runtime/capture.hpp"
#include "runtime/kernel_state.hpp"
#include "runtime/resolver.hpp"
#include "runtime/tuning_devices.hpp"
#include "search/strategy.hpp"
#include "tune/compiler.hpp"
#include "tune/tune.hpp"

namespace jitune {
namespace {

constexpr int kFormat = 1;

Trial trial_of(const store::TrialRow& row) {
  Trial trial;
  trial.config = row.config;
  trial.status = row.status;
  trial.error = row.error;
  trial.samples = row.samples;
  trial.min_us = row.min_us;
  trial.median_us = row.median_us;
  trial.stddev_us = row.stddev_us;
  trial.default_us = row.default_us;
  trial.occupancy = row.occupancy;
  trial.wall_ms = row.wall_ms;
  return trial;
}

Json to_json(const Trial& trial) {
  return {{"config", trial.config},       {"status", trial.status},         {"error", trial.error},
          {"samples", trial.samples},     {"min_us", trial.min_us},         {"median_us", trial.median_us},
          {"stddev_us", trial.stddev_us}, {"default_us", trial.default_us}, {"occupancy", trial.occupancy},
          {"wall_ms", trial.wall_ms}};
}

Trial trial_from(const Json& json) {
  Trial trial;
  trial.config = json.at("config").get<std::string>();
  trial.status = json.at("status").get<std::string>();
  trial.error = json.at("error").get<std::string>();
  trial.samples = json.at("samples").get<int>();
  trial.min_us = json.at("min_us").get<double>();
  trial.median_us = json.at("median_us").get<double>();
  trial.stddev_us = json.at("stddev_us").get<double>();
  trial.default_us = json.at("default_us").get<double>();
  trial.occupancy = json.at("occupancy").get<double>();
  trial.wall_ms = json.at("wall_ms").get<double>();
  return trial;
}

/// The context in which a study by hand looks: that of the calling thread.
const gpu::Driver& usable_driver() {
  auto driver = gpu::driver();
  if (!driver) throw Error(ErrorCode::no_gpu, driver.error());
  CUcontext current = nullptr;
  if ((*driver)->cuCtxGetCurrent(&current) != CUDA_SUCCESS || current == nullptr)
    throw Error(ErrorCode::launch_failed,
                "no CUDA context is current on this thread; call cudaSetDevice or cuCtxSetCurrent before");
  return **driver;
}

}  // namespace

void Study::save(const std::string& path) const {
  Json tried = Json::array();
  for (const Trial& trial : trials) tried.push_back(to_json(trial));
  const Json json{{"jitune_study", kFormat},
                  {"kernel", kernel},
                  {"problem", problem},
                  {"key", key},
                  {"outcome", outcome},
                  {"note", note},
                  {"winner", winner},
                  {"time_us", time_us},
                  {"default_us", default_us},
                  {"compilations", compilations},
                  {"wall_ms", wall_ms},
                  {"compile_ms", compile_ms},
                  {"measure_ms", measure_ms},
                  {"trials", std::move(tried)},
                  {"gpus", gpus}};
  const auto text = json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (auto written = write_file_atomically(path, text); !written) throw Error(ErrorCode::bad_options, written.error());
}

Study Study::load(const std::string& path) {
  auto text = read_file(path);
  if (!text) throw Error(ErrorCode::bad_options, text.error());
  try {
    const Json json = Json::parse(*text);
    if (json.at("jitune_study").get<int>() != kFormat)
      throw Error(ErrorCode::bad_options,
                  "'" + path + "' is a study of another format, this jitune reads format " + std::to_string(kFormat));
    Study study;
    study.kernel = json.at("kernel").get<std::string>();
    study.problem = json.at("problem").get<std::string>();
    study.key = json.at("key").get<std::string>();
    study.outcome = json.at("outcome").get<std::string>();
    study.note = json.at("note").get<std::string>();
    study.winner = json.at("winner").get<std::string>();
    study.time_us = json.at("time_us").get<double>();
    study.default_us = json.at("default_us").get<double>();
    study.compilations = json.at("compilations").get<int>();
    study.wall_ms = json.at("wall_ms").get<double>();
    study.compile_ms = json.at("compile_ms").get<double>();
    study.measure_ms = json.at("measure_ms").get<double>();
    study.gpus = json.value("gpus", 0);  // not in those of earlier versions
    for (const Json& trial : json.at("trials")) study.trials.push_back(trial_from(trial));
    return study;
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::bad_options, "'" + path + "' is not a study as Study::save writes it: " + error.what());
  }
}

Study Tuner::tune(UntypedKernel& kernel, const Problem& problem, const StudyOptions& options) {
  return kernel.state_->study(problem, options);
}

std::vector<CompiledConfig> Tuner::compile(UntypedKernel& kernel, const Problem& problem,
                                           const std::vector<std::string>& configs) {
  return kernel.state_->compile(problem, configs);
}

namespace runtime {
namespace {

constexpr uint64_t kMostCompiled = 10'000;  // where no configs are named

}  // namespace

Study KernelState::study(const Problem& problem, const StudyOptions& options) {
  check_usable(problem);
  const gpu::Driver& driver = usable_driver();
  driver_.store(&driver, std::memory_order_release);
  const RelaxedCapture relaxed(driver);
  Resolver resolver(*this, driver, options.stream, problem, {}, true, false);
  Study study = resolver.study(options);
  CUcontext context = nullptr;
  if (!study.winner.empty() && driver.cuCtxGetCurrent(&context) == CUDA_SUCCESS)
    refresh(problem, context, study.key, {"tuned in this process by hand (" + study.outcome + ")", study.note});
  return study;
}

/// The GPUs that StudyOptions::more_gpus names.
std::vector<space::DeviceInfo> Resolver::more_devices(const std::vector<std::string>& names) const {
  const auto refuse = [&](const std::string& why) {
    kernel_.raise(ErrorCode::bad_options, "StudyOptions::more_gpus: " + why);
  };
  if (!names.empty() && services_->options().in_process) refuse("measuring in this process goes on in one context");
  auto found = find_tuning_devices(names, instance_->device());
  if (!found.wrong.empty()) refuse(found.wrong.front());
  return std::move(found.devices);
}

Study Resolver::study(const StudyOptions& options) {
  bind();
  if (options.budget.count() < 0)
    throw Error(ErrorCode::bad_options, "StudyOptions::budget is less than 0", kernel_.model().name());
  const auto names = search::strategy_names();
  if (std::find(names.begin(), names.end(), options.strategy) == names.end())
    throw Error(ErrorCode::bad_options, "there is no search strategy '" + options.strategy + "'",
                kernel_.model().name());
  Study study;
  study.kernel = kernel_.model().name();
  study.problem = space::canonical(instance_->problem());
  study.key = key_->sha256;
  const auto stopped = [&] { return options.stop.stop_requested() || !tuner_.may_tune(); };
  while (!tuner_.begin_tuning(study.key)) {  // a launch of this process tunes it: that is waited for
    (void)tuner_.wait_tuned(study.key, Clock::now() + std::chrono::milliseconds(50));
    if (!stopped()) continue;
    study.outcome = "cancelled";
    return study;
  }
  struct Ended {
    TunerState& tuner;
    const std::string& key;
    ~Ended() { tuner.end_tuning(key); }
  } ended{tuner_, study.key};
  tune::Request request;
  request.instance = &*instance_;
  request.key = *key_;
  request.budget = options.budget;
  request.force = options.force;
  request.resume = true;
  request.more_devices = more_devices(options.more_gpus);
  request.seed = options.seed;
  request.search.strategy = options.strategy;
  request.search.trials = options.trials;
  request.search.measure_all = options.measure_all;
  request.cancelled = stopped;
  request.context = context_for_measuring();
  request.on_trial = [&](const store::TrialRow& row) {
    study.trials.push_back(trial_of(row));
    if (options.on_trial) options.on_trial(study.trials.back());
  };
  CallerData data;
  if (wants_data()) {
    auto config = instance_->default_config();
    auto args =
        config ? instance_->args(*config, {1, 0, 0, 1}) : Result<std::vector<space::ArgSpec>>(Failure{config.error()});
    if (args) {
      auto exported =
          CallerData::export_from(driver_, stream_, study.kernel, *args, {}, services_->options().in_process);
      if (!exported) kernel_.raise(ErrorCode::bad_arguments, exported.error());
      data = std::move(*exported);
    }
  }
  request.data = data.sources();
  const auto outcome = tune::tune(*services_, request);
  tuner_.trials.fetch_add(outcome.trials, std::memory_order_relaxed);
  tuner_.compilations.fetch_add(outcome.compilations, std::memory_order_relaxed);
  study.outcome = outcome.outcome;
  study.note = outcome.note;
  study.gpus = outcome.devices;
  if (outcome.winner) {
    study.winner = outcome.winner->config;
    study.time_us = outcome.winner->median_us;
    study.default_us = outcome.winner->default_us;
  }
  study.compilations = outcome.compilations;
  study.wall_ms = outcome.wall_ms;
  study.compile_ms = outcome.compile_ms;
  study.measure_ms = outcome.measure_ms;
  return study;
}

std::vector<CompiledConfig> KernelState::compile(const Problem& problem, const std::vector<std::string>& configs) {
  check_usable(problem);
  const gpu::Driver& driver = usable_driver();
  return Resolver(*this, driver, nullptr, problem, {}, false, false).compile(configs);
}

std::vector<CompiledConfig> Resolver::compile(const std::vector<std::string>& configs) {
  bind();
  auto compiler = services_->compiler();
  if (!compiler) kernel_.raise(ErrorCode::no_runnable_config, compiler.error());
  auto source = services_->source_hash(*instance_);
  if (!source) kernel_.raise(ErrorCode::no_runnable_config, source.error());
  std::vector<std::string> wanted = configs;
  if (wanted.empty())
    for (const auto& config : instance_->space().list(kMostCompiled)) wanted.push_back(space::canonical(config));
  std::vector<CompiledConfig> results(wanted.size());
  std::map<std::string, std::vector<size_t>> waiting;  // by canonical config
  const int before = (*compiler)->compilations();
  tune::Compiler::Stream stream(**compiler, wanted.size() > 3);
  for (size_t i = 0; i < wanted.size(); ++i) {
    results[i].config = wanted[i];
    auto config = space::parse_values(wanted[i]);
    const std::string wrong = !config ? config.error() : instance_->reject(*config).value_or("");
    auto job = wrong.empty() ? tune::make_job(*instance_, *config, *source, (*compiler)->nvrtc().build)
                             : Result<tune::CompileJob>(Failure{wrong});
    if (!job) {
      results[i].error = job.error();
      continue;
    }
    results[i].config = space::canonical(*config);
    auto& places = waiting[job->build.config];
    places.push_back(i);
    if (places.size() == 1) stream.submit(std::move(*job));
  }
  while (auto compiled = stream.next(Clock::time_point::max())) {
    const auto& artifact = compiled->artifact;
    CompiledConfig result;
    if (artifact.status != "ok") result.error = artifact.log.empty() ? artifact.status : artifact.log;
    result.cubin = artifact.cubin;
    result.lowered_name = artifact.lowered_name;
    result.regs = artifact.regs;
    result.spill_bytes = artifact.spill_bytes;
    auto geometry =
        instance_->geometry(compiled->job.config, {artifact.regs, artifact.static_smem_bytes, artifact.local_bytes, 1});
    if (geometry) {
      result.grid = geometry->grid;
      result.block = geometry->block;
      result.shared_bytes = geometry->shared_bytes;
    } else if (result.error.empty()) {
      result.error = geometry.error();
    }
    for (const size_t place : waiting[compiled->job.build.config]) {
      result.config = results[place].config;
      results[place] = result;
    }
  }
  tuner_.compilations.fetch_add((*compiler)->compilations() - before, std::memory_order_relaxed);
  return results;
}

}  // namespace runtime
}  // namespace jitune
