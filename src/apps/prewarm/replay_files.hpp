#pragma once

#include <string>

#include "base/json.hpp"
#include "base/result.hpp"
#include "search/replay.hpp"

namespace jitune::prewarm {

/// Reads a measured space of others: replay-csv-1, a Kernel Tuner cache, a T4 result or a KTT result file; each as it
/// is or compressed with gzip. The failure names the file and what is wrong with it. Where stated constraints do not
/// give exactly the rows of the file, the rows are the space.
Result<search::RecordedSpace> read_recorded(const std::string& path);
/// The same of a JSON file that was parsed; `path` names it in failures.
Result<search::RecordedSpace> read_recorded_json(const Json& json, const std::string& path);

/// The space whose configs are those of `rows`. Fails when there are none, or their params differ.
Result<search::RecordedSpace> recorded_from_rows(const std::string& name, std::vector<search::RecordedSpace::Row> rows);

/// replay-csv-1 of a recording, without what only its origin knows. `about` fields go into the header.
std::string write_replay_csv(const search::RecordedSpace& recorded, const std::string& device,
                             const std::string& origin);

/// The bytes of a file, decompressed where they are gzip's.
Result<std::string> read_maybe_gzip(const std::string& path);

/// A Python expression over integers in our expressions' terms: and, or, not, //, chained comparisons.
std::string from_python(const std::string& text);

}  // namespace jitune::prewarm
