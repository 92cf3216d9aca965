#include "compile/choose_nvrtc.hpp"

#include <algorithm>
#include <cstdio>

namespace jitune::compile {
namespace {

struct Version {
  int major = 0, minor = 0;
};

Version parse(const std::string& text) {
  Version version;
  std::sscanf(text.c_str(), "%d.%d", &version.major, &version.minor);
  return version;
}

/// 90 of sm_90a; 0 when it is none.
int number_of(const std::string& arch) {
  const size_t at = arch.find('_');
  return at == std::string::npos ? 0 : std::atoi(arch.c_str() + at + 1);
}

const std::vector<int> k12{50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90};
const std::vector<int> k12_8{100, 101, 120}, k12_9{103, 121};  // what they added
const std::vector<int> k13{75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};

bool in(const std::vector<int>& list, int number) {
  return std::find(list.begin(), list.end(), number) != list.end();
}

std::string driver_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// Why cubins of this NVRTC don't load, or "".
std::string why_not_loaded(const NvrtcFile& file, int driver_version) {
  if (driver_version <= 0 || parse(file.version).major <= driver_version / 1000) return "";
  return "the driver is for CUDA " + driver_text(driver_version) + " and loads no cubin of a later major version";
}

std::string unknown_arch(const NvrtcFile& file, const NvrtcTarget& target) {
  for (const std::string& arch : target.archs)
    if (!knows_arch(file.version, arch)) return arch;
  return "";
}

/// Whether the driver can compile PTX of this NVRTC for a device that the NVRTC does not know.
bool serves_by_ptx(const NvrtcFile& file, const NvrtcTarget& target) {
  const Version version = parse(file.version);
  if (target.driver_version > 0 && version.major * 1000 + version.minor * 10 > target.driver_version) return false;
  return std::all_of(target.archs.begin(), target.archs.end(), [&](const std::string& arch) {
    if (knows_arch(file.version, arch)) return true;
    // Code for one arch alone (sm_90a) has no PTX that another would take; and PTX runs on later devices only.
    const bool plain = !arch.empty() && arch.back() >= '0' && arch.back() <= '9';
    const int oldest = version.major >= 13 ? k13.front() : k12.front();
    return plain && number_of(arch) > oldest;
  });
}

}  // namespace

bool knows_arch(const std::string& version, const std::string& arch) {
  const Version of = parse(version);
  const int number = number_of(arch);
  if (of.major < 12) return of.major == 11 && of.minor >= 8 && in(k12, number);
  if (of.major == 12)
    return in(k12, number) || (of.minor >= 8 && in(k12_8, number)) || (of.minor >= 9 && in(k12_9, number));
  if (of.major == 13 && of.minor == 0) return in(k13, number);
  return in(k13, number) || number > k13.back();
}

NvrtcChoice choose_nvrtc(const std::vector<NvrtcFile>& found, const NvrtcTarget& target) {
  NvrtcChoice choice;
  for (size_t i = 0; i < found.size(); ++i) {
    std::string reason = why_not_loaded(found[i], target.driver_version);
    if (reason.empty())
      if (const std::string arch = unknown_arch(found[i], target); !arch.empty())
        reason = "it does not compile for " + arch;
    if (reason.empty()) {
      reason = choice.index < 0 ? "used" : "older than the one used";
      if (choice.index < 0) choice.index = static_cast<int>(i);
    }
    choice.reasons.push_back(reason);
  }
  for (size_t i = 0; i < found.size() && choice.index < 0; ++i) {
    if (!serves_by_ptx(found[i], target)) continue;
    choice.index = static_cast<int>(i);
    choice.note = "NVRTC " + found[i].build + " does not know " + unknown_arch(found[i], target) +
                  ": code is made as PTX for the newest arch that both know, and the driver compiles it when it is "
                  "loaded; a newer CUDA Toolkit would give better code";
    choice.reasons[i] = "used, for PTX only: " + choice.reasons[i];
  }
  return choice;
}

}  // namespace jitune::compile
