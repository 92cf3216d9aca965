#pragma once

#include <cuda.h>

#include <cstdint>
#include <span>
#include <string>

#include "base/result.hpp"
#include "gpu/driver.hpp"
#include "key/key.hpp"
#include "space/instance.hpp"

namespace jitune::runtime {

/// Where launches that JITUNE_CAPTURE names are kept: `DATABASE.captures`, or below the temporary directory without a
/// database.
std::string capture_directory(const std::string& database);

/// Stores one launch for `jit-prewarm tune --capture`: the definition with its source, the exact problem, scalars, and
/// what the inputs hold before the launch where they are no more than `most_bytes` together. One file of JSON,
/// `KERNEL-KEY.json`, and beside it one for each input; nothing is done where the JSON is there already. Waits for
/// `stream` and copies from the GPU. Returns the JSON's path, "" where it was there.
Result<std::string> write_capture(const gpu::Driver& driver, CUstream stream, const std::string& directory,
                                  const std::string& definition, const space::Instance& instance,
                                  const key::TuningKey& key, std::span<const void* const> arguments,
                                  int64_t most_bytes);

}  // namespace jitune::runtime
