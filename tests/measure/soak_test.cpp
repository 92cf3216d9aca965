// Thousands of configs through one worker: nothing stays behind.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "support/support.hpp"
#include "worker.hpp"

using namespace jitune;
using namespace jitune::measure;
using namespace jitune::measure::test;

namespace {

// A sanitizer keeps freed memory for a while, and says itself what leaked.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kResidentTells = false;
constexpr int kConfigs = 500;
#else
constexpr bool kResidentTells = true;
constexpr int kConfigs = 4000;
#endif

int64_t resident_kib() {
  int64_t kib = 0;
  FILE* status = std::fopen("/proc/self/status", "re");
  char line[256];
  while (std::fgets(line, sizeof line, status) != nullptr)
    if (std::sscanf(line, "VmRSS: %ld kB", &kib) == 1) break;
  std::fclose(status);
  return kib;
}

}  // namespace

TEST_CASE("memory stays flat over thousands of configs, good and bad, stream and graph") {
  const auto& driver = fake(R"({"kernels": [{"match": "scale<[0-9]*7>", "fault": "wrong", "time_us": 10},
                                            {"match": "scale<[0-9]*3>", "fault": "launch_error"},
                                            {"match": "scale", "time_us": 10}]})");
  for (const Policy::Method method : {Policy::Method::stream, Policy::Method::graph}) {
    Worker worker;
    const auto args = scale_args();
    Setup setup = setup_for(args);
    setup.policy.method = method;
    REQUIRE(worker.setup(setup).ok);
    REQUIRE(worker.reference(candidate(mangled("scale", 1), args)).status == TrialStatus::ok);
    const int64_t modules = driver.modules();
    int64_t bytes = 0, resident = 0;
    for (int i = 0; i < kConfigs; ++i) {
      const TrialReply reply = worker.trial(candidate(mangled("scale", i), args), 10);
      CHECK(reply.status == (i % 10 == 7   ? TrialStatus::wrong_result
                             : i % 10 == 3 ? TrialStatus::launch_error
                                           : TrialStatus::ok));
      if (i % 500 == 499)
        CHECK(worker.rematch({candidate(mangled("scale", 1), args), candidate(mangled("scale", 2), args)}).ok);
      if (i == kConfigs / 4) {
        bytes = driver.allocated_bytes();
        resident = resident_kib();
      }
    }
    CHECK(driver.modules() == modules);
    CHECK(driver.allocated_bytes() == bytes);
    MESSAGE(std::string(to_string(method))
            << ": resident " << resident << " KiB after a quarter, " << resident_kib() << " at the end");
    CHECK((!kResidentTells || resident_kib() < resident + 4096));
    CHECK(worker.finish() == 0);
  }
  CHECK(driver.modules() == 0);
}
