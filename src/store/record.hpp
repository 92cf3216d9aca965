#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "key/key.hpp"
#include "store/store.hpp"

namespace jitune::store {

/// Strict order of winners of one key, whatever file they came from: what a person pinned goes first, then what was
/// timed, then the faster one; then one with a cubin, the older, and the rest by their text. So a merge gives the same
/// result in whatever order its files are named.
bool beats(const WinnerRecord& a, const WinnerRecord& b);

/// One record for each key, sorted by what people read first (kernel, problem, arch, NVRTC). Where artifacts of one
/// build key have different bytes (NVRTC is not deterministic everywhere) all records get those with the smallest
/// SHA-256. `dropped` counts the records that others beat.
std::vector<WinnerRecord> reduce(std::vector<WinnerRecord> records, size_t* dropped = nullptr);

/// Writes a database of these records alone, to be shipped or read-only: a rollback journal, no other file beside it,
/// readable by all, its times those of the records. The file appears whole or not at all; what was at `path` is
/// replaced.
Result<void> write_bundle(const std::string& path, const std::vector<WinnerRecord>& records);

}  // namespace jitune::store
