#pragma once

#include <string>
#include <vector>

#include "compile/nvrtc.hpp"

namespace jitune::compile {

/// What the code is for. Empty and 0: not known, so nothing is ruled out for it.
struct NvrtcTarget {
  std::vector<std::string> archs;  ///< sm_90, sm_90a; all must be compiled for
  int driver_version = 0;          ///< cuDriverGetVersion of the machine that will run it: 13000
};

/// Which of several NVRTCs is used, and why not the others.
struct NvrtcChoice {
  int index = -1;                    ///< into the files chosen from; -1: none will do
  std::vector<std::string> reasons;  ///< one a file: `used`, `older than the one used`, why it is passed over
  std::string note;  ///< "" or what follows from the choice: code as PTX, and that the driver compiles it again
};

/// Chooses the newest NVRTC that knows every arch and whose cubins the driver loads: those of its own major version,
/// whatever the minor one, and of all before it (CUDA's minor version compatibility). When none knows an arch, the
/// newest whose PTX the driver reads (not newer than the driver itself). CUDA_HOME does not outrank a newer toolkit;
/// Options::nvrtc and JITUNE_NVRTC leave nothing to choose. `found` is sorted newest first, as find_nvrtc gives it.
NvrtcChoice choose_nvrtc(const std::vector<NvrtcFile>& found, const NvrtcTarget& target);

/// Whether an NVRTC of `version` (`12.9`) compiles for `arch`. By the release notes' lists; a version newer than 13.0
/// is taken to know all that 13.0 does and anything newer.
bool knows_arch(const std::string& version, const std::string& arch);

}  // namespace jitune::compile
