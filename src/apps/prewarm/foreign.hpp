#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "apps/prewarm/session.hpp"
#include "apps/prewarm/today.hpp"

namespace jitune::prewarm {

/// The text, decompressed, of a file that holds answers of another system: SGLang's fused-MoE configs, a tuned table as
/// aiter's, a Kernel Tuner cache or T4 results, KTT's results. Nothing: it is ours. Judged by its content; a database
/// is never opened for that. Throws Stop where it can't be read.
std::optional<std::string> foreign_text(const std::string& path);

struct ForeignWinners {
  std::string format;  ///< `SGLang`, `table`, `Kernel Tuner`, `T4`, `KTT`
  std::vector<store::WinnerRecord> records;
  std::map<std::string, std::vector<std::string>> refused;  ///< places by reason
  std::vector<std::string> notes;                           ///< what was passed over
};

/// Reads such a file as winners of a kernel of `today` (--kernel names it where there are several): its params and
/// problem values are found by name, after --map THEIRS=OURS; what the file does not say of the problem comes from
/// --problem. The device is that of --arch or --device: the file's own is provenance. Throws Stop.
ForeignWinners read_foreign(Session& session, const std::string& path, const std::string& text, const Today& today);

}  // namespace jitune::prewarm
