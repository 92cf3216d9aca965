#include "compile/choose_nvrtc.hpp"
#include "support/support.hpp"

using namespace jitune;
using compile::choose_nvrtc;
using compile::NvrtcFile;
using compile::NvrtcTarget;

namespace {

std::vector<NvrtcFile> files(const std::vector<std::string>& builds) {
  std::vector<NvrtcFile> list;
  for (const std::string& build : builds) {
    NvrtcFile file;
    file.path = "/opt/cuda-" + build + "/lib64/libnvrtc.so";
    file.build = build;
    file.version = build.substr(0, build.rfind('.'));
    list.push_back(file);
  }
  return list;
}

std::string chosen(const std::vector<NvrtcFile>& found, const NvrtcTarget& target) {
  const auto choice = choose_nvrtc(found, target);
  CHECK(choice.reasons.size() == found.size());
  return choice.index < 0 ? "none"
                          : found[static_cast<size_t>(choice.index)].build + (choice.note.empty() ? "" : " PTX");
}

}  // namespace

TEST_CASE("the newest NVRTC whose cubins the driver loads and that knows the device") {
  const auto found = files({"13.0.88", "12.9.86", "12.6.77", "11.8.89"});
  CHECK(chosen(found, {}) == "13.0.88");
  struct Case {
    const char* arch;
    int driver;
    const char* expected;
  };
  const Case cases[] = {
      {"sm_90", 13000, "13.0.88"},      {"sm_90", 13020, "13.0.88"},
      {"sm_90", 12090, "12.9.86"},      {"sm_90", 12020, "12.9.86"},  // minor version compatibility
      {"sm_90", 11080, "11.8.89"},      {"sm_90a", 12020, "12.9.86"},
      {"sm_70", 13000, "12.9.86"},   // 13 has dropped it
      {"sm_110", 13000, "13.0.88"},  // only 13 knows it
      {"sm_110", 12090, "12.9.86 PTX"}, {"sm_121", 12090, "12.9.86"},
      {"sm_120", 12080, "12.9.86"},     {"sm_130", 13000, "13.0.88 PTX"},
      {"sm_130", 12080, "12.6.77 PTX"},  // PTX of 12.9 is too new for a 12.8 driver
      {"sm_130a", 13000, "none"},        // code for one arch alone
      {"sm_90", 10020, "none"},         {"sm_130", 0, "13.0.88 PTX"},
  };
  for (const Case& one : cases) {
    CAPTURE(one.arch);
    CAPTURE(one.driver);
    CHECK(chosen(found, {{one.arch}, one.driver}) == one.expected);
  }
  CHECK(chosen(found, {{"sm_70", "sm_90"}, 13000}) == "12.9.86");
  CHECK(chosen(files({"14.1.2", "13.0.88"}), {{"sm_90"}, 13000}) == "13.0.88");
  CHECK(chosen(files({"14.1.2"}), {{"sm_200"}, 14010}) == "14.1.2");
  CHECK(chosen({}, {{"sm_90"}, 13000}) == "none");
}

TEST_CASE("each NVRTC that is passed over has its reason") {
  const auto found = files({"13.0.88", "12.9.86", "12.6.77"});
  auto choice = choose_nvrtc(found, {{"sm_90"}, 12090});
  CHECK(choice.reasons[0].find("the driver is for CUDA 12.9") != std::string::npos);
  CHECK(choice.reasons[1] == "used");
  CHECK(choice.reasons[2] == "older than the one used");
  choice = choose_nvrtc(found, {{"sm_70"}, 13000});
  CHECK(choice.reasons[0].find("does not compile for sm_70") != std::string::npos);
  choice = choose_nvrtc(found, {{"sm_130"}, 13000});
  CHECK(choice.reasons[0].find("PTX") != std::string::npos);
  CHECK(choice.note.find("sm_130") != std::string::npos);
}
