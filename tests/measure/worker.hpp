#pragma once

#include <string>
#include <thread>
#include <vector>

#include "fake_cuda/cubin.hpp"
#include "fake_cuda/loaded.hpp"
#include "measure/protocol.hpp"

namespace jitune::measure::test {

inline constexpr const char* kUuid = "GPU-fa4e0000-0000-4000-8000-000000000000";

/// The stand-in driver, loaded once into this process and given a fresh spec.
const fake_cuda::Loaded& fake(const std::string& spec = "{}");

/// The real serve() on a thread, spoken to over pipes as a host does.
class Worker {
 public:
  Worker();
  ~Worker();

  SetupReply setup(const Setup& setup);
  TrialReply trial(const Candidate& candidate, double bound_us = std::numeric_limits<double>::infinity());
  TrialReply reference(const Candidate& candidate);
  RematchReply rematch(std::vector<Candidate> candidates);
  Json ask(const Json& request);

  /// Closes the worker's input and waits for its exit code.
  int finish();
  const Json& hello() const { return hello_; }

 private:
  int to_ = -1, from_ = -1;
  int exit_code_ = -1;
  int64_t id_ = 0;
  std::thread thread_;
  Json hello_;
};

space::ArgSpec floats(ArgKind kind, const char* name, int64_t count, Fill fill = Fill::normal(0, 1));
space::ArgSpec scalar(int value);
space::ArgSpec scalar(float value);

/// A candidate whose cubin has this one function. `name` is plain or mangled.
Candidate candidate(const std::string& name, std::vector<space::ArgSpec> args);

/// The mangled name of `base<number>()` as a template of one int, so that the stand-in sees `base<number>`.
std::string mangled(const std::string& base, int number);

Setup setup_for(std::vector<space::ArgSpec> args);

/// y = 2 x over `count` floats: args and candidate of the stand-in's `scale`.
std::vector<space::ArgSpec> scale_args(int count = 4096);

}  // namespace jitune::measure::test
