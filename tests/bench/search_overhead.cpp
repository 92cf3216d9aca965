#include "search_overhead.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "compile/nvrtc.hpp"
#include "search/strategy.hpp"
#include "space/instance.hpp"
#include "space/valid_set.hpp"

using namespace jitune;

namespace {

double cpu_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

/// A quarter of a million valid configs.
space::Space large_space() {
  std::vector<space::PlainParam> params;
  for (const char* name : {"A", "B", "C", "D", "E", "F"}) {
    params.push_back({name, {}});
    for (int value = 1; value <= 8; ++value) params.back().values.emplace_back(value);
  }
  return space::plain_space(params, {"A * B <= 56"});
}

/// Made up.
double time_of(const space::Config& config) {
  double time = 10;
  for (const auto& [name, value] : config) time += std::abs(static_cast<double>(value.as_int()) - 5);
  return time;
}

double compile_gemm_ms(const char* path) {
  const char* explicit_path = std::getenv("JITUNE_NVRTC");
  const char* home = std::getenv("CUDA_HOME");
  const auto found =
      compile::find_nvrtc({explicit_path != nullptr ? explicit_path : "", home != nullptr ? home : "", {}, {}});
  if (found.found.empty()) return 0;
  const compile::NvrtcFile& file = found.found.front();
  auto nvrtc = compile::Nvrtc::load(file.path);
  if (!nvrtc) return 0;
  const auto bound =
      space::Instance::bind(space::Model::make(load(path)), {{"T", "bfloat16"}, {"M", 2048}, {"N", 2048}, {"K", 2048}},
                            *space::nominal_device("sm_90"));
  if (!bound) return 0;
  std::vector<double> times;
  for (const space::Config& config : bound->space().list(4)) {
    auto spec = bound->build(config);
    if (!spec) return 0;
    const double start = cpu_ms();
    const auto artifact = (*nvrtc)->compile({std::move(*spec), file.path, file.include_dirs, ""});
    if (artifact.status == compile::Status::ok) times.push_back(cpu_ms() - start);
  }
  if (times.empty()) return 0;
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace

SearchOverhead measure_search_overhead(const char* gemm) {
  constexpr uint64_t kTrials = 400;
  SearchOverhead overhead;
  const double start = cpu_ms();
  const space::Space space = large_space();
  auto strategy = search::make_strategy(space, {.trials = kTrials});
  for (uint64_t i = 0; i < kTrials; ++i)
    for (const space::Config& config : (*strategy)->ask(1))
      (*strategy)->tell(config, {search::Fate::ok, time_of(config), 0});
  overhead.proposal_ms = (cpu_ms() - start) / kTrials;
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  overhead.peak_mb = static_cast<double>(usage.ru_maxrss) / 1000;
  overhead.configs = static_cast<uint64_t>(space::ValidSet(space).size());
  overhead.compile_ms = compile_gemm_ms(gemm);
  return overhead;
}
