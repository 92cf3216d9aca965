// That kernel_check can fail: it runs on the stand-in for the driver, whose kernels do as they are told.
#include <string>

#include "support/support.hpp"

namespace {

/// kernel_check on one small problem, with one config, under a rule for the stand-in's kernels.
jitune::test::ProgramResult check(const std::string& rule) {
  return jitune::test::run_program("LD_LIBRARY_PATH='" JITUNE_FAKE_CUDA_DIR "' JITUNE_FAKE_CUDA='{\"kernels\": [" +
                                   rule +
                                   "]}' '" JITUNE_KERNEL_CHECK "' --kernels '" JITUNE_SOURCE_DIR
                                   "/kernels_src' --only fused_add_rmsnorm --problem 'T=half rows=5 hidden=17' "
                                   "--sample 1 --hang-after 2");
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("kernel_check passes a kernel that is right and notices every fault") {
  const auto good = check("");
  if (has(good.out, "skipped (nvrtc)")) return jitune::test::skip("nvrtc", good.out);
  CAPTURE(good.out);
  CAPTURE(good.err);
  CHECK(good.exit_code == 0);
  CHECK(has(good.out, "T=half rows=5 hidden=17: 1 right, 0 wrong"));

  struct Fault {
    const char* name;
    const char* words;
  };
  for (const Fault& fault : {Fault{"wrong", "'x': 1 of 85 looked at are wrong"},
                             {"half", "looked at are wrong"},
                             {"out_of_bounds", "wrote past the end of 'x'"},
                             {"before_bounds", "wrote before the start of 'x'"},
                             {"launch_error", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
                             {"illegal_address", "CUDA_ERROR_ILLEGAL_ADDRESS"},
                             {"hang", "HANGS fused_add_rmsnorm"}}) {
    CAPTURE(fault.name);
    const auto bad = check(std::string(R"({"match": "fused_add_rmsnorm", "fault": ")") + fault.name + "\"}");
    CAPTURE(bad.out);
    CHECK(bad.exit_code == 1);
    CHECK(has(bad.out, fault.words));
    CHECK(has(bad.out, "something is wrong with fused_add_rmsnorm"));
  }
}
